package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
	"github.com/locket-service/locket/tests/recorder"
)

// keptTTL is the TTL of the sessions that must survive all faults of the servers.
const keptTTL = 5 * time.Minute

// sessionLoad is a number of clients whose sessions lock, hold and unlock, with the record of their answers.
type sessionLoad struct {
	*recorder.Recorder
	faults    faults
	keys      []string
	stopping  atomic.Bool
	done      sync.WaitGroup
	ids       atomic.Int64
	over      atomic.Int64 // sessions that were lost
	addresses []string
	servers   []models.LocketClient
}

// startSessionLoad starts clients; every other one uses the servers through the proxies.
func startSessionLoad(t *testing.T, clients, keys int, servers []*fixtures.Locket, proxies []*fixtures.Proxy) *sessionLoad {
	t.Helper()
	l := &sessionLoad{Recorder: recorder.New()}
	for i := range keys {
		l.keys = append(l.keys, fmt.Sprintf("key-%d", i))
	}
	var proxied []string
	for i, server := range servers {
		l.addresses = append(l.addresses, server.Address())
		l.servers = append(l.servers, server.Client(t))
		proxied = append(proxied, proxies[i].Addr())
	}
	for n := range clients {
		addresses := l.addresses
		if n%2 == 1 {
			addresses = proxied
		}
		l.done.Go(func() {
			for !l.stopping.Load() {
				l.use(addresses)
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

func (l *sessionLoad) stop() {
	l.stopping.Store(true)
	l.done.Wait()
}

// sessionClient is a client with one session.
type sessionClient struct {
	*sessionLoad
	*lock.Session
}

func (l *sessionLoad) newSession(addresses []string, ttl time.Duration) *sessionClient {
	s, err := lock.NewSession(addresses, lock.WithTTL(ttl), lock.WithOwner(fmt.Sprint("session-", l.ids.Add(1))),
		lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithDial(conn.WithDialOptions(l.DialOptions()...)))
	if err != nil {
		panic(err)
	}
	return &sessionClient{l, s}
}

// use uses a session for a while, and closes it.
func (l *sessionLoad) use(addresses []string) {
	c := l.newSession(addresses, leaseTTL)
	for range 1 + rand.IntN(30) {
		if l.stopping.Load() || !c.useLock(l.keys[rand.IntN(len(l.keys))]) {
			break
		}
		harness.Think(20 * time.Millisecond)
	}
	c.end()
}

// end closes the session. One that is lost already ends with its TTL.
func (c *sessionClient) end() {
	if c.Err() != nil || c.closeWithin(10*time.Second) != nil || !errors.Is(c.Err(), lock.ErrClosed) {
		c.lost()
	}
}

func (c *sessionClient) closeWithin(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.Close(ctx)
}

// lost waits until no server has the session any more. The session expires within its TTL when a server runs.
func (c *sessionClient) lost() {
	c.over.Add(1)
	_ = c.closeWithin(time.Millisecond)
	for deadline := time.Now().Add(harness.HangTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // real time: between two looks
		for _, server := range c.servers {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			limit := uint32(1000)
			list, err := server.ListSessions(ctx, &models.ListSessionsRequest{Limit: &limit})
			cancel()
			if err == nil && !slices.ContainsFunc(list.GetSessions(), func(s *models.SessionInfo) bool { return s.GetId() == c.ID() }) {
				return
			}
		}
	}
	c.faults.add("%s is lost, and has not ended", c.ID())
}

// goesOn reports whether the session continues after the answer to a request. An error of a session that is not over is
// a fault, unless a server that does not run keeps rows locked.
func (c *sessionClient) goesOn(err error) bool {
	if err != nil && c.Err() == nil && models.ReasonOf(err) != models.ReasonResourceLocked {
		c.faults.add("%s: %v", c.ID(), err)
	}
	return err == nil
}

// useLock locks a resource, waits for it, holds it, and gives it up. It reports whether the session continues.
func (c *sessionClient) useLock(key string) bool {
	ask := c.Lock
	if rand.IntN(4) == 0 {
		ask = c.TryLock
	}
	status, err := ask(context.Background(), key)
	if !c.goesOn(err) {
		return false
	}
	if status.Current == lock.Waiting {
		if rand.IntN(4) == 0 {
			if _, err := c.Lock(context.Background(), key); !c.goesOn(err) {
				return false
			}
		}
		for tries := 200; tries > 0 && c.Status(key).Current == lock.Waiting; tries-- {
			harness.Think(10 * time.Millisecond)
		}
	}
	for held := rand.IntN(10); held > 0 && c.Status(key).Current == lock.Holding; held-- {
		harness.Think(20 * time.Millisecond)
	}
	if c.Err() != nil {
		return false
	}
	return status.Current == lock.None || c.unlock(key)
}

func (c *sessionClient) unlock(key string) bool {
	if rand.IntN(5) == 0 {
		return c.goesOn(c.UnlockAll(context.Background()))
	}
	_, err := c.Unlock(context.Background(), key)
	return c.goesOn(err)
}

// faults are violations of the rules.
type faults struct {
	mu  sync.Mutex
	all []string
}

func (f *faults) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, fmt.Sprintf(format, args...))
}

// disturbSessions disturbs servers while sessions are used, and then checks all that the sessions were answered.
func disturbSessions(t *testing.T, database string, clients, servers, rounds int) {
	t.Helper()
	var running []*fixtures.Locket
	var proxies []*fixtures.Proxy
	for range servers {
		server := fixtures.StartLocket(t, database)
		running, proxies = append(running, server), append(proxies, fixtures.NewProxy(t, server.Address()))
	}
	l := startSessionLoad(t, clients, 4, running, proxies)
	kept := l.newSession(l.addresses, keptTTL)
	t.Cleanup(func() { _ = kept.closeWithin(time.Second) })
	status, err := kept.Lock(t.Context(), "kept")
	harness.Must(t, err)
	next := l.newSession(l.addresses, keptTTL)
	t.Cleanup(func() { _ = next.closeWithin(time.Second) })
	_, err = next.Lock(t.Context(), "kept")
	harness.Must(t, err)
	d := disturber{t: t, servers: running, proxies: proxies}
	d.disturb(rounds, func() {
		if now := kept.Status("kept"); now.Current != lock.Holding || now.Token != status.Token {
			t.Fatalf("it held %+v, and now %+v (%v)", status, now, kept.Err())
		}
	})
	l.stop()
	if now := next.Status("kept"); now.Current != lock.Waiting {
		t.Errorf("it waited, and now %+v", now)
	}
	report(t, l.faults.all)
	l.handOn(t, running[0].Client(t))
	if err := l.Check(harness.Stored(t, running[0])); err != nil {
		t.Error(err)
	}
	t.Logf("%d sessions, %d lost: %v", l.ids.Load(), l.over.Load(), l)
	if err := kept.closeWithin(harness.HangTimeout); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, func() error {
		if now := next.Status("kept"); now.Current != lock.Holding || now.Token <= status.Token {
			return fmt.Errorf("the next has %+v, after %+v", now, status)
		}
		return nil
	})
}

// handOn checks that the locks of dead sessions are granted to others: at the end no session holds or waits for anything.
func (l *sessionLoad) handOn(t *testing.T, client models.LocketClient) {
	t.Helper()
	harness.Eventually(t, func() error {
		for _, key := range l.keys {
			queue, err := client.GetQueue(t.Context(), &models.GetQueueRequest{Resource: key})
			if err != nil || len(queue.GetHolders()) > 0 {
				return fmt.Errorf("%s: %v, %w", key, queue, err)
			}
		}
		return nil
	})
}

// Sessions whose servers are killed, stopped and silenced keep their locks as long as they last. When a session is lost, its locks are granted
// to others. TestChaosSessions disturbs more of them, more often.
func TestSessionsDisturbed(t *testing.T) {
	t.Run("two servers", func(t *testing.T) {
		t.Parallel()
		disturbSessions(t, "mysql:"+harness.MySQL(t), 4, 2, 3)
	})
	t.Run(harness.EngineEmbedded, func(t *testing.T) {
		t.Parallel()
		disturbSessions(t, harness.Embedded(t), 4, 1, 3)
	})
}
