package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
)

// TestSignalledWhileAsking: a session's runner that is signalled while the server executes its LOCK returns when the
// server has withdrawn the lock. A process that exits then leaves nothing behind.
func TestSignalledWhileAsking(t *testing.T) {
	for name, make := range map[string]func(*lock.Client) ifrit.Runner{
		"lock":     func(c *lock.Client) ifrit.Runner { return lock.NewSessionRunner(c, "k") },
		"presence": func(c *lock.Client) ifrit.Runner { return lock.NewSessionPresenceRunner(c, "k", "here") },
		"shared":   func(c *lock.Client) ifrit.Runner { return lock.NewSessionRunner(c, "k", lock.WithShared()) },
		"joint":    func(c *lock.Client) ifrit.Runner { return lock.NewJoint(lock.NewSessionRunner(c, "k")) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				client := w.client()
				must(t, client.Do(t.Context(), "first", func(context.Context, uint64) error { return nil }))
				w.Down.Store(100) // bytes a second, so that answers take some
				p := ifrit.Background(make(client))
				time.Sleep(time.Second / 2)
				if owner, _ := w.holder("k"); name != "shared" && owner != client.Owner() {
					t.Fatalf("%q holds before the signal", owner)
				}
				p.Signal(os.Interrupt)
				must(t, <-p.Wait())
				w.Down.Store(0)
				w.Set(locktest.Cut) // as after the exit of the process
				if holders := w.holding("k"); len(holders) > 0 {
					t.Errorf("after its end it holds %v", holders)
				}
				w.Set(locktest.Open)
			})
		})
	}
}

// TestEndsWhileAsking: when nobody waits for the answer to a LOCK any longer, its claim is released at once, without
// waiting for the answer. Other requests are served after that.
func TestEndsWhileAsking(t *testing.T) {
	for name, wait := range map[string]func(ctx context.Context, c *lock.Client, s *lock.Session) error{
		"Acquire": func(ctx context.Context, c *lock.Client, _ *lock.Session) error { return second(c.Acquire(ctx, "k")) },
		"TryAcquire": func(ctx context.Context, c *lock.Client, _ *lock.Session) error {
			return second(c.TryAcquire(ctx, "k"))
		},
		"Do": func(ctx context.Context, c *lock.Client, _ *lock.Session) error {
			return c.Do(ctx, "k", func(context.Context, uint64) error { return nil })
		},
		"Campaign": func(ctx context.Context, c *lock.Client, _ *lock.Session) error {
			return second(lock.NewElection(c, "k").Campaign(ctx, "me"))
		},
		"Mutex": func(ctx context.Context, _ *lock.Client, s *lock.Session) error {
			return lock.NewMutex(s, "k").Lock(ctx)
		},
		"RWMutex": func(ctx context.Context, _ *lock.Client, s *lock.Session) error {
			return lock.NewRWMutex(s, "k").RLock(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script) {
				client := s.client(lock.WithTTL(time.Hour))
				session, err := client.Session()
				must(t, err)
				st := s.Attach()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- wait(ctx, client, session) }()
				asked := st.Next()
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				synctest.Wait()
				if len(st.Requests) == 0 {
					t.Fatal("it is not given up before the answer")
				}
				unlock := st.Next()
				if unlock.GetUnlock().GetResource() != "k" || unlock.GetUnlock().Token != nil {
					t.Fatalf("it is not given up: %v", unlock)
				}
				go func() { ended <- session.UnlockAll(context.Background()) }() // any later request
				st.Next()
				other := make(chan *lock.Hold, 1)
				go func() {
					hold, err := client.Acquire(context.Background(), "k", lock.WithValue("another"))
					if err != nil {
						t.Error(err)
					}
					other <- hold
				}()
				synctest.Wait()
				if len(st.Requests) > 0 {
					t.Fatal("it asks for another claim before the one is given up")
				}
				st.Answer(asked, locktest.Holds("k", 1, 1))
				st.Answer(unlock, locktest.Ended("k", 1, 2, models.Status_STATUS_RELEASED))
				asked = st.Next()
				if asked.GetLock().GetValue() != "another" {
					t.Fatalf("then it asks for %v", asked)
				}
				st.Answer(asked, locktest.Holds("k", 3, 3))
				if hold := <-other; fmt.Sprint(hold.Token(), hold.Err()) != "3 <nil>" {
					t.Errorf("the next holds with %d: %v", hold.Token(), hold.Err())
				}
			})
		})
	}
}
