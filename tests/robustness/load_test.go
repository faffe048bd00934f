package robustness_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

const (
	loadTTL = 300 // seconds: nothing expires but what is abandoned
	// abandonTTL is what an abandoned claim has left.
	abandonTTL = 300 * time.Millisecond
	// attemptTimeout bounds one attempt of a request.
	attemptTimeout = 5 * time.Second
)

// load is a number of clients that take, keep and give back locks and claims, send every
// request again until it is answered, and write down the answers.
type load struct {
	*ledger
	name     string // keeps the names of two loads apart
	keys     []string
	stopping atomic.Bool
	done     sync.WaitGroup
	requests atomic.Int64
	retries  atomic.Int64
	slowest  atomic.Int64 // nanoseconds of the slowest attempt, waits left out
	think    time.Duration
}

var loads atomic.Int64

// startLoad starts clients, each of which speaks to one of the servers.
func startLoad(t *testing.T, clients, keys int, think time.Duration, servers ...*fixtures.Locket) *load {
	t.Helper()
	l := &load{ledger: newLedger(), name: fmt.Sprint(loads.Add(1)), think: think}
	for i := range keys {
		l.keys = append(l.keys, fmt.Sprintf("key-%d", i))
	}
	for n := range clients {
		w := &worker{load: l, n: n, client: servers[n%len(servers)].Client(t)}
		l.done.Go(w.run)
	}
	t.Cleanup(l.stop) // when the test fails
	return l
}

// stop returns when every client has given back what it held.
func (l *load) stop() {
	l.stopping.Store(true)
	l.done.Wait()
}

// finish ends the load and checks all of it against what the server says.
func (l *load) finish(t *testing.T, client models.LocketClient) {
	t.Helper()
	l.stop()
	t.Logf("%d requests, %d of them sent again, slowest attempt %v", l.requests.Load(), l.retries.Load(),
		time.Duration(l.slowest.Load()).Round(time.Millisecond))
	report(t, l.faults)
	awaitQuiet(t, client)
	l.settle()
	l.audit(t, client)
	checkHistory(t, l.history)
}

// awaitQuiet waits until the claims that were abandoned have expired.
func awaitQuiet(t *testing.T, client models.LocketClient) {
	t.Helper()
	harness.Eventually(t, 10*time.Second, func() error {
		for _, live := range []models.Status{waiting, active} {
			list, err := client.ListClaims(t.Context(), &models.ListClaimsRequest{Status: live})
			if err != nil || len(list.GetClaims()) > 0 {
				return fmt.Errorf("%v claims: %v, %w", live, list.GetClaims(), err)
			}
		}
		return nil
	})
}

// settle gives the expiry of each abandoned claim its latest moment: it came before the
// next grant.
func (l *load) settle() {
	end := l.now()
	for i, op := range l.history {
		in := op.Input.(opInput)
		if in.kind != opExpire {
			continue
		}
		l.history[i].Return = end
		for _, r := range l.records {
			if r.key == in.key && r.token > l.records[in.id].token && r.granted != 0 {
				l.history[i].Return = min(l.history[i].Return, r.granted)
			}
		}
	}
}

// worker is one client.
type worker struct {
	*load
	n, seq int
	client models.LocketClient
}

func (w *worker) run() {
	for !w.stopping.Load() {
		w.seq++
		key := w.keys[rand.IntN(1+rand.IntN(len(w.keys)))] // some are hotter than others
		if rand.IntN(5) < 2 {
			w.useLock(key)
		} else {
			w.useClaim(key)
		}
		w.pause()
	}
}

func (w *worker) pause() { time.Sleep(rand.N(w.think + 1)) }

// call is how a request went that was sent until it was answered.
type call struct {
	first, last, end int64 // begin of the first and of the last attempt, the answer
	attempts         int
	err              error
}

// do sends a request until it is answered, and finds fault with answers that no caller
// should see.
func (w *worker) do(name string, send func(context.Context) error) call {
	c := call{first: w.now()}
	for {
		c.attempts++
		c.last = w.now()
		ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout) // goes on when the test is over, until all is given back
		c.err = send(ctx)
		cancel()
		c.end = w.now()
		w.requests.Add(1)
		if name != "AwaitClaim" {
			atomicMax(&w.slowest, c.end-c.last)
		}
		if !w.again(name, c.err) {
			return c
		}
		w.retries.Add(1)
		time.Sleep(10 * time.Millisecond)
	}
}

// again reports whether a request must be sent again.
func (w *worker) again(name string, err error) bool {
	message := strings.ToLower(status.Convert(err).Message())
	if strings.Contains(message, "1213") || strings.Contains(message, "1205") || strings.Contains(message, "deadlock") {
		w.fault("%s: the caller sees %v", name, err)
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	case codes.Internal, codes.Unknown, codes.Canceled:
		w.fault("%s: %v", name, err)
		return !w.stopping.Load()
	default:
		return false
	}
}

func atomicMax(a *atomic.Int64, n int64) {
	for old := a.Load(); n > old && !a.CompareAndSwap(old, n); old = a.Load() {
	}
}

// useLock takes a lock through Lock, keeps it for a moment and gives it back.
func (w *worker) useLock(key string) {
	r := w.open(key, fmt.Sprintf("lock-%s-%d-%d", w.name, w.n, w.seq), true)
	resource := &models.Resource{Key: key, Owner: r.id, TypeCode: models.TypeCode_LOCK}
	c, token := w.lock(resource)
	if status.Code(c.err) == codes.AlreadyExists {
		w.op(opLock, r, c.first, c.end, opOutput{})
		return
	}
	if c.err != nil {
		w.fault("Lock: %v", c.err)
		return
	}
	w.hold(r, token)
	w.op(opLock, r, c.first, c.end, opOutput{status: active, token: token})
	for range rand.IntN(3) {
		w.pause()
		if c, token = w.lock(resource); c.err != nil {
			w.fault("renew %s: %v", r.id, c.err)
		}
		w.op(opLock, r, c.last, c.end, opOutput{status: active, token: token})
	}
	w.release(r, resource)
}

func (w *worker) lock(resource *models.Resource) (call, uint64) {
	var resp *models.LockResponse
	c := w.do("Lock", func(ctx context.Context) (err error) {
		resp, err = w.client.Lock(ctx, &models.LockRequest{Resource: resource, TtlInSeconds: loadTTL})
		return err
	})
	return c, resp.GetToken()
}

// release gives a lock back. When the first attempt did it and its answer was lost, the
// next one finds no lock, or somebody else's.
func (w *worker) release(r *record, resource *models.Resource) {
	w.leave(r)
	c := w.do("Release", func(ctx context.Context) error {
		_, err := w.client.Release(ctx, &models.ReleaseRequest{Resource: resource, Token: &r.token})
		return err
	})
	gone := status.Code(c.err) == codes.NotFound || status.Code(c.err) == codes.AlreadyExists
	if c.err != nil && (!gone || c.attempts == 1) {
		w.fault("release %s: %v", r.id, c.err)
		return
	}
	w.op(opEnd, r, c.first, c.end, opOutput{})
	w.end(r, models.Status_STATUS_RELEASED)
}

// useClaim makes a claim, waits for its turn, keeps it for a moment and ends it.
func (w *worker) useClaim(key string) {
	r := w.open(key, fmt.Sprintf("claim-%s-%d-%d", w.name, w.n, w.seq), false)
	found, ok := w.create(r)
	if !ok {
		return
	}
	for found.GetStatus() == waiting {
		if rand.IntN(6) == 0 {
			w.finish(r, models.Status_STATUS_WITHDRAWN)
			return
		}
		if found, ok = w.await(r); !ok {
			return
		}
	}
	w.hold(r, found.GetToken())
	for range rand.IntN(3) {
		w.pause()
		w.renew(r)
	}
	switch rand.IntN(10) {
	case 0:
		w.abandon(r)
	case 1:
		w.finish(r, models.Status_STATUS_ABORTED)
	default:
		w.finish(r, models.Status_STATUS_RELEASED)
	}
}

// claim sends a request that is answered with a claim, and writes it down as a read.
func (w *worker) claim(r *record, name string, send func(context.Context) (*models.Claim, error)) (*models.Claim, call) {
	var found *models.Claim
	c := w.do(name, func(ctx context.Context) (err error) {
		found, err = send(ctx)
		return err
	})
	if c.err != nil {
		w.fault("%s %s: %v", name, r.id, c.err)
		return nil, c
	}
	w.see(r, found)
	return found, c
}

// answer is what an answer says of a claim, and, where its version can only be that of
// this request's own change, that too.
func answer(found *models.Claim, own bool) opOutput {
	out := opOutput{status: found.GetStatus(), token: found.GetToken()}
	if own {
		out.version = found.GetVersion()
	}
	return out
}

func (w *worker) read(r *record, found *models.Claim, c call, own bool) {
	w.op(opRead, r, c.last, c.end, answer(found, own))
}

func (w *worker) create(r *record) (*models.Claim, bool) {
	found, c := w.claim(r, "CreateClaim", func(ctx context.Context) (*models.Claim, error) {
		return w.client.CreateClaim(ctx, &models.CreateClaimRequest{
			Id: r.id, Resource: r.key, Owner: r.id, Ttl: proto.Float64(loadTTL), UserData: proto.String(`{"n":1}`),
		})
	})
	if c.err != nil {
		return nil, false
	}
	r.created.first, r.created.end = c.first, c.end
	if c.attempts == 1 {
		w.op(opCreate, r, c.first, c.end, answer(found, found.GetStatus() == waiting))
	} else { // an attempt made it; the last one shows what has become of it
		w.op(opCreate, r, c.first, c.end, opOutput{})
		w.read(r, found, c, false)
	}
	return found, true
}

func (w *worker) await(r *record) (*models.Claim, bool) {
	found, c := w.claim(r, "AwaitClaim", func(ctx context.Context) (*models.Claim, error) {
		return w.client.AwaitClaim(ctx, &models.AwaitClaimRequest{
			Id: r.id, Timeout: durationpb.New(rand.N(300 * time.Millisecond)),
		})
	})
	if c.err != nil {
		return nil, false
	}
	w.read(r, found, c, false)
	return found, true
}

func (w *worker) renew(r *record) {
	found, c := w.claim(r, "UpdateClaim", func(ctx context.Context) (*models.Claim, error) {
		return w.client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: r.id, Ttl: proto.Float64(loadTTL)})
	})
	if c.err == nil {
		w.read(r, found, c, true)
	}
}

// abandon gives the claim a short TTL and leaves it to its fate. When the answer of an
// attempt is lost, it may expire before the next: then the client's belief ended with the
// first one.
func (w *worker) abandon(r *record) {
	var found *models.Claim
	c := w.do("UpdateClaim", func(ctx context.Context) (err error) {
		found, err = w.client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: r.id, Ttl: proto.Float64(abandonTTL.Seconds())})
		return err
	})
	expires := c.first
	switch {
	case c.err == nil:
		w.see(r, found)
		w.read(r, found, c, true)
		expires = c.last + int64(abandonTTL)
	case c.attempts == 1 || status.Code(c.err) != codes.FailedPrecondition:
		w.fault("renew %s: %v", r.id, c.err)
		return
	}
	w.op(opExpire, r, expires, 0, opOutput{}) // until when, settle tells
	w.mu.Lock()
	defer w.mu.Unlock()
	r.left, r.ended = expires, models.Status_STATUS_EXPIRED
}

func (w *worker) finish(r *record, to models.Status) {
	if r.granted != 0 {
		w.leave(r)
	}
	found, c := w.claim(r, "UpdateClaim", func(ctx context.Context) (*models.Claim, error) {
		return w.client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: r.id, Status: to})
	})
	if c.err != nil {
		return
	}
	if r.token == 0 {
		w.mu.Lock()
		r.token = found.GetToken() // granted while it was withdrawn
		w.mu.Unlock()
	}
	w.op(opEnd, r, c.first, c.end, opOutput{version: found.GetVersion()})
	w.end(r, to)
}
