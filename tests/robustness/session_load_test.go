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

	"google.golang.org/grpc"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
	"github.com/locket-service/locket/tests/history"
)

const (
	sessionTTL = 2 * time.Second
	// keptTTL is that of sessions that outlive everything that is done to the servers.
	keptTTL = 30 * time.Second
)

// sessionLoad is a number of clients with sessions that lock, hold and unlock, and write down what they
// were told.
type sessionLoad struct {
	*ledger
	keys      []string
	stopping  atomic.Bool
	done      sync.WaitGroup
	ids       atomic.Int64
	over      atomic.Int64 // sessions that were lost
	resumed   atomic.Int64
	addresses []string
	servers   []models.LocketClient
}

// startSessionLoad starts clients; every second one speaks to the servers through the proxies.
func startSessionLoad(t *testing.T, clients, keys int, servers []*fixtures.Locket, proxies []*fixtures.Proxy) *sessionLoad {
	t.Helper()
	l := &sessionLoad{ledger: newLedger()}
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

// sessionClient is a session, with the name that the history has for it.
type sessionClient struct {
	*sessionLoad
	*lock.Session
	name string
	ttl  time.Duration
	// streams counts the streams over which a server had the session.
	streams atomic.Int64
	// joined has, for each resource, the version of the claim that waited there last.
	joined sync.Map
	// open are the requests that nobody has answered.
	open []history.Request
	from []int64
}

func (l *sessionLoad) newSession(addresses []string, ttl time.Duration) *sessionClient {
	c := &sessionClient{sessionLoad: l, name: fmt.Sprint("session-", l.ids.Add(1)), ttl: ttl}
	s, err := lock.NewSession(addresses, lock.TTL(ttl), lock.WithOwner(c.name), lock.WithLogger(slog.New(slog.DiscardHandler)),
		lock.WithDialOptions(grpc.WithStreamInterceptor(c.tap)))
	if err != nil {
		panic(err)
	}
	c.Session = s
	return c
}

// use uses a session for a while, and closes it.
func (l *sessionLoad) use(addresses []string) {
	c := l.newSession(addresses, sessionTTL)
	for range 1 + rand.IntN(30) {
		if l.stopping.Load() || !c.useLock(l.keys[rand.IntN(len(l.keys))]) {
			break
		}
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	c.end()
}

// end closes the session. One that is lost already ends with its TTL.
func (c *sessionClient) end() {
	if c.Err() != nil {
		c.lost()
		return
	}
	begin := c.now()
	err := c.closeWithin(10 * time.Second)
	switch {
	case err != nil || !errors.Is(c.Err(), lock.ErrClosed):
		c.lost()
	default:
		c.op(begin, c.now(), history.Close(c.name), history.Output{})
	}
}

func (c *sessionClient) closeWithin(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.Close(ctx)
}

// lost waits until the session is gone. What was asked and not answered was carried out before that, or not
// at all.
func (c *sessionClient) lost() {
	c.over.Add(1)
	begin := c.now()
	_ = c.closeWithin(time.Millisecond)
	end := c.gone()
	c.op(begin-int64(c.ttl), end, history.Lapse(c.name), history.Output{})
	for i, request := range c.open {
		c.op(c.from[i], end, request, history.Output{Unknown: true})
	}
}

// gone returns when no server has the session any more. It lapses within its TTL, once there is one.
func (c *sessionClient) gone() int64 {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, server := range c.servers {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			limit := uint32(1000)
			list, err := server.ListSessions(ctx, &models.ListSessionsRequest{Limit: &limit})
			cancel()
			if err == nil && !slices.ContainsFunc(list.GetSessions(), func(s *models.SessionInfo) bool { return s.GetId() == c.ID() }) {
				return c.now()
			}
		}
	}
	c.fault("%s is lost, and has not ended", c.name)
	return history.Forever
}

// unanswered notes a request without an answer, and finds fault with an error of a session that is not over.
func (c *sessionClient) unanswered(begin int64, request history.Request, err error) bool {
	c.open, c.from = append(c.open, request), append(c.from, begin)
	if c.Err() == nil {
		c.fault("%s: %v", c.name, err)
	}
	return false
}

// useLock locks a resource, waits for it, holds it, and gives it up. It reports whether the session goes on.
func (c *sessionClient) useLock(key string) bool {
	ask, request := c.Lock, history.Lock
	if rand.IntN(4) == 0 {
		ask, request = c.TryLock, history.TryLock
	}
	id := fmt.Sprint("request-", c.ids.Add(1))
	begin, streams := c.now(), c.streams.Load()
	status, err := ask(context.Background(), key)
	if err != nil {
		return c.unanswered(begin, request(key, id, c.name, claim.Exclusive), err)
	}
	switch {
	case streams == c.streams.Load():
		c.op(begin, c.now(), request(key, id, c.name, claim.Exclusive), c.answerTo(status))
	default: // it was sent twice perhaps: the answer is that of the second time
		c.op(begin, c.now(), request(key, id, c.name, claim.Exclusive), history.Output{Unknown: true})
		if status.Current != lock.None {
			c.op(begin, c.now(), history.Stands(key, c.name), c.answerTo(status))
		}
	}
	if status.Current == lock.Waiting {
		if rand.IntN(4) == 0 && !c.again(key, begin) {
			return false
		}
		for patience := 200; patience > 0 && c.Status(key).Current == lock.Waiting; patience-- {
			time.Sleep(5 * time.Millisecond)
		}
	}
	for held := rand.IntN(10); held > 0 && c.holds(key); held-- {
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	if c.Err() != nil {
		return false
	}
	return status.Current == lock.None || c.unlock(key)
}

// holds looks whether the session holds a resource, which it says only while it is so.
func (c *sessionClient) holds(key string) bool {
	begin := c.now()
	status := c.Status(key)
	if status.Current == lock.Holding {
		c.op(begin, c.now(), history.Stands(key, c.name), c.answerTo(status))
	}
	return status.Current == lock.Holding
}

// again asks again for what the session waits for.
func (c *sessionClient) again(key string, since int64) bool {
	status, err := c.Lock(context.Background(), key)
	if err != nil {
		return c.unanswered(since, history.Stands(key, c.name), err)
	}
	c.op(since, c.now(), history.Stands(key, c.name), c.answerTo(status)) // as it was known to the server
	return true
}

func (c *sessionClient) unlock(key string) bool {
	begin := c.now()
	request, forget := history.Unlock(key, c.name), func() error { _, err := c.Unlock(context.Background(), key); return err }
	if rand.IntN(5) == 0 {
		request, forget = history.UnlockAll(c.name), func() error { return c.UnlockAll(context.Background()) }
	}
	if err := forget(); err != nil {
		return c.unanswered(begin, request, err)
	}
	c.op(begin, c.now(), request, history.Output{})
	return true
}

// answerTo is what a session was told.
func (c *sessionClient) answerTo(s lock.Status) history.Output {
	switch s.Current {
	case lock.Holding:
		return history.Output{Status: claim.Active, Token: s.Token}
	case lock.Waiting:
		version, _ := c.joined.Load(s.Resource)
		return history.Output{Status: claim.Waiting, Version: version.(uint64)}
	case lock.None:
	}
	return history.Output{Refused: history.Collision, Holder: s.Holder, Token: s.HolderToken}
}

// disturb kills, stops and silences servers while sessions are used, and then checks all that they were
// told.
func disturb(t *testing.T, database string, servers, rounds int) {
	t.Helper()
	var running []*fixtures.Locket
	var proxies []*fixtures.Proxy
	for range servers {
		server := fixtures.StartLocket(t, database)
		running, proxies = append(running, server), append(proxies, fixtures.NewProxy(t, server.Address()))
	}
	l := startSessionLoad(t, 10, 4, running, proxies)
	kept := l.newSession(l.addresses, keptTTL)
	t.Cleanup(func() { _ = kept.closeWithin(time.Second) })
	status, err := kept.Lock(t.Context(), "kept")
	harness.Must(t, err)
	next := l.newSession(l.addresses, keptTTL)
	t.Cleanup(func() { _ = next.closeWithin(time.Second) })
	_, err = next.Lock(t.Context(), "kept")
	harness.Must(t, err)
	for round := range rounds {
		time.Sleep(500*time.Millisecond + rand.N(time.Second))
		server := running[rand.IntN(servers)]
		switch round % 3 {
		case 0:
			server.Kill()
			time.Sleep(rand.N(time.Second))
			harness.Must(t, server.Start())
		case 1:
			harness.Must(t, server.Pause())
			time.Sleep(sessionTTL + rand.N(time.Second))
			harness.Must(t, server.Resume())
		case 2:
			for _, proxy := range proxies {
				proxy.Silence()
			}
		}
		if now := kept.Status("kept"); now.Current != lock.Holding || now.Token != status.Token {
			t.Fatalf("it held %+v, and now %+v (%v)", status, now, kept.Err())
		}
	}
	l.stop()
	if now := next.Status("kept"); now.Current != lock.Waiting {
		t.Errorf("it waited, and now %+v", now)
	}
	report(t, l.faults)
	l.handOn(t, running[0].Client(t))
	t.Logf("%d sessions and requests, %d sessions resumed, %d lost", l.ids.Load(), l.resumed.Load(), l.over.Load())
	l.checkHistory(t)
	if err := kept.closeWithin(10 * time.Second); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, func() error {
		if now := next.Status("kept"); now.Current != lock.Holding || now.Token <= status.Token {
			return fmt.Errorf("the next has %+v, after %+v", now, status)
		}
		return nil
	})
}

// handOn checks that what dead sessions had goes to others: in the end nobody has anything.
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

// Sessions whose servers are killed, stopped and silenced keep what they hold while they last, lose
// it to nobody before, and their locks go on when they are lost.
func TestSessionsDisturbed(t *testing.T) {
	t.Run("two servers", func(t *testing.T) {
		t.Parallel()
		disturb(t, "mysql:"+fixtures.MySQL(t), 2, 3)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		disturb(t, harness.SQLiteFile(t), 1, 3)
	})
}
