package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestWrongTTLs: the error for an invalid TTL names its value and the limits, and no other setting.
func TestWrongTTLs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client, server := w.client(), w.own()
		const years = 365 * 24 * time.Hour
		check := func(name, value string, err error) {
			t.Helper()
			text := fmt.Sprint(err)
			if strings.Count(text, " is ") != 1 || !strings.Contains(text, "the TTL is "+value+", and must be 1s to ") {
				t.Errorf("%s: %s", name, text)
			}
		}
		for _, ttl := range []time.Duration{-time.Second, time.Nanosecond, 100 * time.Millisecond, 999 * time.Millisecond, 200 * years} {
			check("NewClient", ttl.String(), second(lock.NewClient(anyAddress, lock.WithTTL(ttl))))
			check("NewSession", ttl.String(), second(lock.NewSession(anyAddress, lock.WithTTL(ttl))))
			check("Acquire", ttl.String(), second(client.Acquire(t.Context(), "k", lock.WithTTL(ttl))))
			check("NewSessionRunner", ttl.String(), <-ifrit.Background(lock.NewSessionRunner(client, "k", lock.WithTTL(ttl))).Wait())
			check("NewLockRunner", ttl.String(), <-ifrit.Background(lock.NewLockRunner(server, resource("k", "a"), ttl, retry)).Wait())
			check("NewPresenceRunner", ttl.String(), <-ifrit.Background(lock.NewPresenceRunner(server, resource("k", "a"), ttl, retry)).Wait())
		}
		for _, seconds := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 1e18, -1e300} {
			claim := &models.CreateClaimRequest{Resource: "k", Ttl: proto.Float64(seconds)}
			value := fmt.Sprintf("%vs", seconds)
			check("NewClaimRunner", value, <-ifrit.Background(lock.NewClaimRunner(server, claim)).Wait())
		}
	})
}

// TestWrongWaitTTLs: a claim with an invalid wait TTL is an error at once.
func TestWrongWaitTTLs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, seconds := range []float64{0, 0.9, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e18, -1e300} {
			p := ifrit.Background(lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: "k", WaitTtl: proto.Float64(seconds)}))
			time.Sleep(ttl)
			says := fmt.Sprintf("the wait TTL is %vs, and must be ", seconds)
			if gone, err := exited(p); !gone || !strings.Contains(fmt.Sprint(err), says) {
				t.Errorf("%v: %t, %v", seconds, gone, err)
				must(t, end(p))
			}
		}
	})
}

// TestWhyInVain: the error of a wait that ends while no server can be reached, or none answers, also has the last error of the connection.
func TestWhyInVain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Set(locktest.Cut)
		check := func(name, want string, err error) {
			t.Helper()
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, lock.ErrTimeout) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		within := func(timeout time.Duration, f func(ctx context.Context) error) error {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			return f(ctx)
		}
		ask := func(c *lock.Client, s *lock.Session, want string, timeout time.Duration) {
			check("Acquire", want, within(timeout, func(ctx context.Context) error { return second(c.Acquire(ctx, "k")) }))
			check("TryAcquire", want, within(timeout, func(ctx context.Context) error { return second(c.TryAcquire(ctx, "k")) }))
			check("Do", want, within(timeout, func(ctx context.Context) error {
				return c.Do(ctx, "k", func(context.Context, uint64) error { return nil })
			}))
			check("Session.Lock", want, within(timeout, func(ctx context.Context) error { return second(s.Lock(ctx, "k")) }))
			check("UnlockAll", want, within(timeout, s.UnlockAll))
		}
		c, s := w.client(), w.session()
		ask(c, s, "the network is cut", time.Second)
		c2, s2 := w.client(lock.WithCommandTimeout(time.Second)), w.session(lock.WithCommandTimeout(time.Second))
		check("Acquire with a timeout", "the network is cut", second(c2.Acquire(t.Context(), "k")))
		check("Lock with a timeout", "the network is cut", second(s2.Lock(t.Context(), "k")))
		w.Set(locktest.Open)
		for _, c := range []*lock.Client{c, c2} {
			must(t, second(c.Acquire(t.Context(), fmt.Sprint(&c))))
		}
		silent := w.beside() // it accepts connections, and transmits nothing
		silent.Set(locktest.Silent)
		ask(silent.client(), silent.session(), "no server has opened the session within", 100*time.Millisecond)
		silent.Set(locktest.Open)
	})
}

// TestCloseAgain: closing twice does nothing and returns no error, even if the context is done.
func TestCloseAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		session := w.session()
		must(t, second(session.Lock(t.Context(), "k")))
		must(t, session.Close(t.Context()))
		done, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			must(t, session.Close(done))
		}
	})
}

// TestCloseTwice: concurrent calls of Close all return when the session is closed, with the same error.
func TestCloseTwice(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client := s.client()
		session, err := client.Session()
		must(t, err)
		st := s.Attach()
		closed := make(chan error, 4)
		for range 2 {
			go func() { closed <- client.Close() }()
		}
		impatient, cancel := context.WithCancel(t.Context())
		gone := harness.Later(func() error { return session.Close(impatient) })
		asked := st.Next()
		if asked.GetClose() == nil {
			t.Errorf("it asks %v", asked)
		}
		time.Sleep(time.Second)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		go func() { closed <- client.Close() }()
		time.Sleep(time.Second)
		if len(closed) > 0 {
			t.Errorf("closed before a server knows: %v", <-closed)
		}
		st.Send(&models.SessionResponse{Sequence: asked.GetSequence(), Event: &models.SessionResponse_Done{Done: &models.Done{}}})
		must(t, errors.Join(<-closed, <-closed, <-closed))
	})
}

// TestWrongTexts: a value, or user data, that no server could read is an error at once, for runners too. The client's
// other locks are not affected.
func TestWrongTexts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, s := w.client(), w.session()
		held, err := c.Acquire(t.Context(), "held")
		must(t, err)
		must(t, second(s.Lock(t.Context(), "locked")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		long := strings.Repeat(" ", 300<<10) + "1"
		for says, option := range map[string]lock.AcquireOption{
			"user data has 307201 bytes": lock.WithUserData(long), "user data is not UTF-8": lock.WithUserData("\"\xff\""),
			"value has 307201 bytes": lock.WithValue(long), "value is not UTF-8": lock.WithPresence("\xff"),
		} {
			for name, err := range map[string]error{
				"Acquire": second(c.Acquire(ctx, "k", option)), "Session.Lock": second(s.Lock(ctx, "k", option)),
			} {
				if !strings.Contains(fmt.Sprint(err), says) {
					t.Errorf("%s: %v, which is to have %q in it", name, err, says)
				}
			}
		}
		must(t, errors.Join(held.Err(), s.Err()))
		for says, runner := range map[string]*lock.Runner{
			"value is not UTF-8":            lock.NewLockRunner(w.rpc(), &models.Resource{Key: "k", Value: "\xff"}, ttl, retry),
			"value has 307201 bytes":        lock.NewPresenceRunner(w.rpc(), &models.Resource{Key: "k", Value: long}, ttl, retry),
			"type is not UTF-8":             lock.NewLockRunner(w.rpc(), &models.Resource{Key: "k", Type: "\xff"}, ttl, retry),
			"type has 307201 bytes":         lock.NewPresenceRunner(w.rpc(), &models.Resource{Key: "k", Type: long}, ttl, retry),
			"the resource is not UTF-8":     lock.NewLockRunner(w.rpc(), resource("\xff", ""), ttl, retry),
			"the resource has 307201 bytes": lock.NewLockRunner(w.rpc(), resource(long, ""), ttl, retry),
			"the resource is missing":       lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{}),
			"the owner must be UTF-8":       lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: "k", Owner: "\xff"}),
			"at most 1024 bytes":            lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: "k", Owner: long}),
			"id is not UTF-8":               lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: "k", Id: "\xff"}),
			"id has 307201 bytes":           lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: "k", Id: long}),
			"user data has 307201 bytes":    lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: "k", UserData: &long}),
		} {
			p := ifrit.Background(runner)
			time.Sleep(2 * retry)
			if gone, err := exited(p); !gone || !strings.Contains(fmt.Sprint(err), says) {
				t.Errorf("a runner that is to end with %q: %t, %v", says, gone, err)
				must(t, end(p))
			}
		}
	})
}
