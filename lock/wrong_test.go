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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// TestWrongTTLs: a TTL that is wrong is answered with its value and the limits, and with nothing that nobody has set.
func TestWrongTTLs(t *testing.T) {
	inWorld(t, func(t *testing.T, h *world) {
		client := h.client()
		server := h.own()
		const years = 365 * 24 * time.Hour
		check := func(name, value string, err error) {
			t.Helper()
			text := fmt.Sprint(err)
			if strings.Count(text, " is ") != 1 || !strings.Contains(text, "the TTL is "+value+", and must be 1s to ") {
				t.Errorf("%s: %s", name, text)
			}
		}
		for _, ttl := range []time.Duration{-time.Second, time.Nanosecond, 100 * time.Millisecond, 999 * time.Millisecond, 200 * years} {
			_, err := lock.NewClient(anyAddress, lock.WithTTL(ttl))
			check("NewClient", ttl.String(), err)
			_, err = lock.NewSession(anyAddress, lock.WithTTL(ttl))
			check("NewSession", ttl.String(), err)
			_, err = client.Acquire(t.Context(), "k", lock.WithTTL(ttl))
			check("Acquire", ttl.String(), err)
			check("NewSessionRunner", ttl.String(), <-ifrit.Background(lock.NewSessionRunner(client, "k", lock.WithTTL(ttl))).Wait())
			check("NewLockRunner", ttl.String(), <-ifrit.Background(lock.NewLockRunner(server, resource("k", "a"), ttl, retry)).Wait())
			check("NewPresenceRunner", ttl.String(), <-ifrit.Background(lock.NewPresenceRunner(server, resource("k", "a"), ttl, retry)).Wait())
		}
		for _, seconds := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 1e18, -1e300} {
			claim := &models.CreateClaimRequest{Resource: "k", Ttl: proto.Float64(seconds)}
			value := fmt.Sprintf("%vs", seconds)
			check("NewClaimRunner", value, <-ifrit.Background(lock.NewClaimRunner(server, claim)).Wait())
		}
		must(t, client.Close())
	})
}

// TestWhyInVain: who gives up while no server can be reached, or none answers, gets the last reason why beside that of his own.
func TestWhyInVain(t *testing.T) {
	inWorld(t, func(t *testing.T, h *world) {
		h.cutOff(true)
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
		c, s := h.client(), h.session()
		ask(c, s, "no way", time.Second)
		c2, s2 := h.client(lock.WithCommandTimeout(time.Second)), h.session(lock.WithCommandTimeout(time.Second))
		check("Acquire with a timeout", "no way", second(c2.Acquire(t.Context(), "k")))
		check("Lock with a timeout", "no way", second(s2.Lock(t.Context(), "k")))
		h.cutOff(false)
		for _, c := range []*lock.Client{c, c2} {
			must(t, second(c.Acquire(t.Context(), fmt.Sprint(&c))))
			must(t, c.Close())
		}
		closeAll(t, s, s2)

		p := &partition{world: h, mode: 1} // it takes connections, and says nothing
		silent, err := lock.NewClient(anyAddress, p.dialer())
		must(t, err)
		silentSession, err := lock.NewSession(anyAddress, p.dialer())
		must(t, err)
		ask(silent, silentSession, "does not answer", 100*time.Millisecond)
		p.set(0)
		must(t, silent.Close())
		closeAll(t, silentSession)
	})
}

// TestCloseTwice: those that close at the same time all return when it is closed, with the same error.
func TestCloseTwice(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client, err := lock.NewClient([]string{"127.0.0.1:1"}, s.dialer())
		must(t, err)
		session, err := client.Session()
		must(t, err)
		st := s.attach()
		closed := make(chan error, 4)
		for range 2 {
			go func() { closed <- client.Close() }()
		}
		impatient, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- session.Close(impatient) }()
		asked := st.next()
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
		st.send(&models.SessionResponse{Sequence: asked.GetSequence(), Event: &models.SessionResponse_Done{Done: &models.Done{}}})
		must(t, errors.Join(<-closed, <-closed, <-closed))
		st.end <- status.Error(codes.Unavailable, "over")
	})
}
