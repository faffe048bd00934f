package committer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/quota"
)

// begins counts the batches that were decided.
type begins struct {
	*replica.Store
	n atomic.Int64
}

func (b *begins) Transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	defer b.n.Add(1)
	return b.Store.Transact(ctx, batch)
}

// forwards returns a batch when it is committed, as a server of a cluster does that does not decide.
type forwards struct{ begins }

func (f *forwards) Transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	outcome, err := db.Transact(ctx, &f.begins, batch)
	return outcome, nil, err
}

// TestPipeline: a batch is decided while the one before is written. No answer and no read is returned before the state
// that it depends on is durable; refusals wait too. If the write fails, nobody learns the decisions.
func TestPipeline(t *testing.T) {
	for name, failure := range map[string]error{"committed": nil, "failed": errors.New("boom")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := disktest.New()
				store, err := replica.OpenWith(filepath.Join(t.TempDir(), "data"), replica.Options{Disk: disk})
				committertest.Check(t, err)
				counted := &begins{Store: store}
				c := committer.New(counted, committer.Config{
					Timeout: committertest.Timeout, Log: slog.New(slog.DiscardHandler), Metrics: committer.NewMetrics(prometheus.NewRegistry()),
				})
				process := ifrit.Invoke(c)
				lock := func(owner string) <-chan error {
					done := make(chan error, 1)
					go func() {
						_, err := c.Do(context.Background(), claim.Acquire{ID: owner, Resource: "r", Owner: owner, TTL: time.Hour})
						done <- err
					}()
					synctest.Wait()
					return done
				}
				gate := make(chan struct{})
				disk.SetFault(func(string) error { <-gate; return failure })
				first, second, read := lock("a"), lock("b"), make(chan error, 1)
				go func() {
					_, err := store.Holder(context.Background(), "r")
					read <- err
				}()
				synctest.Wait()
				if n := counted.n.Load(); n != 2 {
					t.Errorf("%d batches are decided", n)
				}
				select {
				case <-first:
					t.Error("who has the lock was answered")
				case <-second:
					t.Error("who was refused was answered")
				case <-read:
					t.Error("a reader was answered")
				default:
				}
				close(gate)
				a, b, seen := <-first, <-second, <-read
				if failure == nil {
					if collision := (*claim.CollisionError)(nil); a != nil || !errors.As(b, &collision) || seen != nil {
						t.Errorf("%v, %v, and the reader %v", a, b, seen)
					}
				} else {
					for _, err := range []error{a, b, seen} {
						if !errors.Is(err, db.ErrOutcomeUnknown) && !errors.Is(err, db.ErrUnavailable) {
							t.Errorf("%v, %v, and the reader %v", a, b, seen)
						}
					}
				}
				committertest.Stop(t, process)
				committertest.Check(t, store.Close())
			})
		})
	}
}

// TestGather: a batch waits for the callers of the last one, which send their next requests at different times.
func TestGather(t *testing.T) {
	const callers, rounds = 40, 20
	batches := func(gather time.Duration) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			disk := disktest.New()
			store, err := replica.OpenWith(filepath.Join(t.TempDir(), "data"), replica.Options{Disk: disk})
			committertest.Check(t, err)
			counted := &forwards{begins{Store: store}}
			c := committer.New(counted, committer.Config{
				Timeout: committertest.Timeout, Gather: gather, Log: slog.New(slog.DiscardHandler), Metrics: committer.NewMetrics(prometheus.NewRegistry()),
			})
			process := ifrit.Invoke(c)
			disk.SetFault(func(string) error { time.Sleep(time.Millisecond / 2); return nil }) // real time: none, in a bubble
			var working sync.WaitGroup
			for caller := range callers {
				working.Go(func() {
					for n := range rounds {
						time.Sleep(time.Duration(caller+1) * 6 * time.Microsecond) // real time: none, in a bubble
						id := fmt.Sprint(caller, "/", n)
						if _, err := c.Do(context.Background(), claim.Acquire{ID: id, Resource: id, Owner: "a", TTL: time.Hour}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			working.Wait()
			n = counted.n.Load()
			disk.SetFault(nil)
			committertest.Stop(t, process)
			committertest.Check(t, store.Close())
		})
		return n
	}
	alone, gathered := batches(0), batches(2*time.Millisecond)
	t.Logf("%d batches; gathered, %d", alone, gathered)
	if gathered > alone*3/4 {
		t.Errorf("%d batches; gathered, %d", alone, gathered)
	}
}

// TestHeldBack: requests that wait for the commit of others are carried out after it, even if a beat comes between.
func TestHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := disktest.New()
		store, err := replica.OpenWith(filepath.Join(t.TempDir(), "data"), replica.Options{Disk: disk})
		committertest.Check(t, err)
		c := committer.New(store, committer.Config{
			Timeout: committertest.Timeout, Log: slog.New(slog.DiscardHandler), Metrics: committer.NewMetrics(prometheus.NewRegistry()),
		})
		process := ifrit.Invoke(c)
		disk.SetFault(func(operation string) error {
			if strings.HasPrefix(operation, "sync ") {
				time.Sleep(200 * time.Millisecond)
			}
			return nil
		})
		var callers sync.WaitGroup
		for i := range 20 {
			callers.Go(func() {
				for n := range 10 {
					time.Sleep(time.Duration(i*13+n*7) * time.Millisecond)
					name := fmt.Sprint(i, "/", n)
					if _, err := c.Do(context.Background(), claim.Acquire{ID: name, Resource: name, Owner: "o", TTL: time.Hour}); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		callers.Wait()
		committertest.Stop(t, process)
		committertest.Check(t, store.Close())
	})
}

// lateFailure is a store that decides batches, and then does not commit them, until it is fixed.
type lateFailure struct {
	*committertest.Store
	fixed atomic.Bool
}

var errRollback = errors.New("not committed")

func (s *lateFailure) Transact(ctx context.Context, batch db.Batch) (outcome db.Outcome, _ db.Completion, err error) {
	fixed := s.fixed.Load()
	err = s.Update(ctx, func(tx db.Tx) (err error) {
		if outcome, err = batch.CarryOut(tx); err == nil && !fixed {
			err = errRollback
		}
		return err
	})
	if errors.Is(err, errRollback) {
		return outcome, ended{db.ErrUnavailable}, nil
	}
	return outcome, ended{}, err
}

// ended is a commit that has ended.
type ended struct{ err error }

func (ended) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func (e ended) Wait(context.Context) error { return e.err }

// TestQuotaOfFailedCommit: a claim that was decided and not committed does not count against the caller's quota when it
// asks again.
func TestQuotaOfFailedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lateFailure{Store: committertest.New(t, 0).Store}
		c := committer.New(store, committer.Config{
			Timeout: committertest.Timeout, Log: slog.New(slog.DiscardHandler), Metrics: committer.NewMetrics(prometheus.NewRegistry()),
			Guard: quota.New(store, func(string) {}),
		})
		committertest.Run(t, c)
		caller := access.Caller{Identity: access.Identity{Name: "cert:ann"}, Quota: &access.Quota{Held: 1}}
		ann := access.WithCaller(t.Context(), func() access.Caller { return caller })
		create := claim.Create{ID: "a", Resource: "a", TTL: time.Hour}
		if _, err := c.Do(ann, create); !errors.Is(err, db.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
		store.fixed.Store(true)
		if _, err := c.Do(ann, create); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}
