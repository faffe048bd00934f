package robustness_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
	"github.com/locket-service/locket/tests/history"
)

const (
	loadTTL = 300 * time.Second // only abandoned claims expire
	// abandonTTL is the TTL that an abandoned claim is given.
	abandonTTL = 300 * time.Millisecond
	// forsakeTTL is the TTL of a claim that its client makes and forgets: it is granted, and expires.
	forsakeTTL = 50 * time.Millisecond
	// attemptTimeout bounds one attempt of a request.
	attemptTimeout = 5 * time.Second
)

// load is a number of clients that take, hold and release locks and claims. They repeat each request until it is answered, and record the
// answers.
type load struct {
	*ledger
	name     string // makes the names of this load unique
	keys     []string
	stopping atomic.Bool
	done     sync.WaitGroup
	requests atomic.Int64
	retries  atomic.Int64
	refused  sync.Map     // the reasons of the attempts that failed, or their codes
	slowest  atomic.Int64 // the duration of the slowest attempt that did not wait, in nanoseconds
	think    time.Duration
	server   *fixtures.Locket // one of them
	probes   int              // how often the test itself has called a server
}

var loads atomic.Int64

// startLoad starts clients. Each of them uses one of the servers.
func startLoad(t *testing.T, clients, keys int, think time.Duration, servers ...*fixtures.Locket) *load {
	t.Helper()
	l := &load{ledger: newLedger(), name: fmt.Sprint(loads.Add(1)), think: think, server: servers[0]}
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

// stop returns when every client has released its claims.
func (l *load) stop() {
	l.stopping.Store(true)
	l.done.Wait()
}

// finish ends the load, and compares the record with the server's store.
func (l *load) finish(t *testing.T, client models.LocketClient) {
	t.Helper()
	l.stop()
	t.Logf("%d requests, %d of them sent again, slowest attempt %v", l.requests.Load(), l.retries.Load(),
		time.Duration(l.slowest.Load()).Round(time.Millisecond))
	report(t, l.faults)
	awaitQuiet(t, client)
	l.settle(t, client)
	l.audit(t, client)
	l.checkHistory(t, l.server)
}

// undisturbed checks that no request failed in a load during which nothing was wrong. On a busy machine an attempt
// may reach its deadline, and a transaction may keep rows locked for longer than others wait for them. AtMost reports
// both.
func (l *load) undisturbed(t *testing.T) {
	t.Helper()
	l.refused.Range(func(reason, err any) bool {
		if reason != models.ReasonResourceLocked && reason != codes.DeadlineExceeded.String() {
			t.Errorf("requests failed though nothing was wrong: %v", err)
		}
		return true
	})
	harness.AtMost(t, fmt.Sprintf("the slowest of %d requests", l.requests.Load()), time.Duration(l.slowest.Load()), 2*time.Second)
}

// awaitQuiet waits until the claims that were abandoned have expired.
func awaitQuiet(t *testing.T, client models.LocketClient) {
	t.Helper()
	harness.Eventually(t, func() error {
		for _, live := range []models.Status{waiting, active} {
			list, err := client.ListClaims(t.Context(), &models.ListClaimsRequest{Status: []models.Status{live}})
			if err != nil || len(list.GetClaims()) > 0 {
				return fmt.Errorf("%v claims: %v, %w", live, list.GetClaims(), err)
			}
		}
		return nil
	})
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
		key := w.keys[rand.IntN(1+rand.IntN(len(w.keys)))] // some keys are used more often than others
		if rand.IntN(5) < 2 {
			w.useLock(key)
		} else {
			w.useClaim(key)
		}
		w.pause()
	}
}

func (w *worker) pause() { harness.Think(w.think) }

// call is the outcome of a request that was repeated until it was answered.
type call struct {
	first, last, end int64 // begin of the first and of the last attempt, the answer
	attempts         int
	err              error
}

// do repeats a request until it is answered, and reports answers that no caller should get.
func (w *worker) do(name string, send func(context.Context) error) call {
	c := call{first: w.now()}
	for {
		c.attempts++
		c.last = w.now()
		ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout) // continues after the end of the test, until everything is released
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
		w.refused.Store(cmp.Or(models.ReasonOf(c.err), status.Code(c.err).String()), c.err)
		time.Sleep(10 * time.Millisecond) // real time: before the next request
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

// refusal is the answer to a request that was refused.
func refusal(err error) history.Output {
	info := new(errdetails.ErrorInfo)
	for _, detail := range status.Convert(err).Details() {
		if found, ok := detail.(*errdetails.ErrorInfo); ok {
			info = found
		}
	}
	switch status.Code(err) {
	case codes.NotFound:
		return history.Output{Refused: history.NotFound}
	case codes.AlreadyExists:
		token, _ := strconv.ParseUint(info.GetMetadata()["token"], 10, 64) // none for shared holders
		return history.Output{Refused: history.Collision, Holder: info.GetMetadata()["holder"], Token: token}
	default:
		return history.Output{Refused: history.Transition}
	}
}

// useLock takes a lock by Lock, holds it for a moment and releases it.
func (w *worker) useLock(key string) {
	r := w.open(key, fmt.Sprintf("lock-%s-%d-%d", w.name, w.n, w.seq), true, false)
	c, token := w.lock(r, loadTTL)
	request := history.Acquire(key, r.id, loadTTL)
	if status.Code(c.err) == codes.AlreadyExists {
		w.op(c.first, c.end, request, refusal(c.err))
		return
	}
	if c.err != nil {
		w.fault("Lock: %v", c.err)
		return
	}
	w.hold(r, token)
	w.op(c.first, c.end, request, holds(token))
	for range rand.IntN(3) {
		w.pause()
		w.renewLock(r)
	}
	if rand.IntN(15) == 0 {
		w.abandonLock(r)
	} else {
		w.release(r)
	}
}

func holds(token uint64) history.Output { return history.Output{Status: claim.Active, Token: token} }

// lock takes a lock, or renews it, by its token if that is known.
func (w *worker) lock(r *record, ttl time.Duration) (call, uint64) {
	var resp *models.LockResponse
	req := &models.LockRequest{Resource: lockOf(r), TtlInSeconds: int64(ttl / time.Second)}
	if r.token != 0 && rand.IntN(2) == 0 {
		req.Token = &r.token
	}
	c := w.do("Lock", func(ctx context.Context) (err error) {
		resp, err = w.client.Lock(ctx, req)
		return err
	})
	return c, resp.GetToken()
}

func lockOf(r *record) *models.Resource {
	return &models.Resource{Key: r.key, Owner: r.id, TypeCode: models.TypeCode_LOCK}
}

func (w *worker) renewLock(r *record) {
	c, token := w.lock(r, loadTTL)
	if c.err != nil {
		w.fault("renew %s: %v", r.id, c.err)
		return
	}
	w.op(c.last, c.end, history.Reacquire(r.key, r.id, r.token, loadTTL), holds(token))
}

// abandonLock lets a lock expire within a second.
func (w *worker) abandonLock(r *record) {
	const ttl = time.Second // the minimum that Lock accepts
	resp := new(models.LockResponse)
	c := w.do("Lock", func(ctx context.Context) (err error) {
		resp, err = w.client.Lock(ctx, &models.LockRequest{Resource: lockOf(r), TtlInSeconds: int64(ttl / time.Second), Token: &r.token})
		return err
	})
	request := history.Reacquire(r.key, r.id, r.token, ttl)
	if c.err == nil {
		w.op(c.last, c.end, request, holds(resp.GetToken()))
		w.abandon(r, c.last+int64(ttl))
		return
	}
	if code := status.Code(c.err); c.attempts == 1 || code != codes.NotFound && code != codes.AlreadyExists {
		w.fault("renew %s: %v", r.id, c.err)
		return
	}
	w.tooLate(r, c, request)
}

// tooLate records a renewal with a short TTL that was carried out and whose answer was lost, so that the claim had expired before the next
// attempt.
func (w *worker) tooLate(r *record, c call, request history.Request) {
	w.op(c.first, c.end, request, history.Output{Unknown: true})
	w.op(c.last, c.end, request, refusal(c.err))
	w.abandon(r, c.first)
}

// release releases a lock. If the answer to the first attempt was lost, the next one finds no lock, or another owner's.
func (w *worker) release(r *record) {
	w.leave(r)
	c := w.do("Release", func(ctx context.Context) error {
		_, err := w.client.Release(ctx, &models.ReleaseRequest{Resource: lockOf(r), Token: &r.token})
		return err
	})
	gone := status.Code(c.err) == codes.NotFound || status.Code(c.err) == codes.AlreadyExists
	if c.err != nil && (!gone || c.attempts == 1) {
		w.fault("release %s: %v", r.id, c.err)
		return
	}
	w.op(c.first, c.end, history.Release(r.key, r.id, r.token), history.Output{Status: claim.Released})
	w.end(r, models.Status_STATUS_RELEASED)
}

// useClaim makes a claim, waits until it is active, holds it for a moment and ends it.
func (w *worker) useClaim(key string) {
	r := w.open(key, fmt.Sprintf("claim-%s-%d-%d", w.name, w.n, w.seq), false, rand.IntN(3) == 0)
	if rand.IntN(20) == 0 {
		if found, ok := w.create(r, forsakeTTL); ok {
			w.forsake(r, found)
		}
		return
	}
	found, ok := w.create(r, loadTTL)
	if !ok {
		return
	}
	for found.GetStatus() == waiting {
		switch rand.IntN(8) {
		case 0:
			w.finish(r, models.Status_STATUS_WITHDRAWN)
			return
		case 1:
			w.endClaim(r)
			return
		}
		if found, ok = w.await(r); !ok {
			return
		}
	}
	w.hold(r, found.GetToken())
	w.useGrant(r)
}

// useGrant holds an active claim for a moment, and ends it in a random way.
func (w *worker) useGrant(r *record) {
	for range rand.IntN(3) {
		w.pause()
		w.renew(r)
	}
	switch rand.IntN(10) {
	case 0:
		if w.shorten(r) && rand.IntN(2) == 0 {
			time.Sleep(abandonTTL) // real time: it is due, or was renewed late
			w.renewLate(r)
		}
	case 1:
		w.finish(r, models.Status_STATUS_ABORTED)
	case 2, 3:
		w.endClaim(r)
	default:
		w.finish(r, models.Status_STATUS_RELEASED)
	}
}

// claim sends a request whose answer is a claim.
func (w *worker) claim(r *record, name string, send func(context.Context) (*models.Claim, error)) (*models.Claim, call) {
	found, c := w.tryClaim(r, name, send)
	if c.err != nil {
		w.fault("%s %s: %v", name, r.id, c.err)
	}
	return found, c
}

// tryClaim is claim for a request that may be refused.
func (w *worker) tryClaim(r *record, name string, send func(context.Context) (*models.Claim, error)) (*models.Claim, call) {
	var found *models.Claim
	c := w.do(name, func(ctx context.Context) (err error) {
		found, err = send(ctx)
		return err
	})
	if c.err != nil {
		return nil, c
	}
	w.see(r, found)
	return found, c
}

func (w *worker) create(r *record, ttl time.Duration) (*models.Claim, bool) {
	mode, wireMode := claim.Exclusive, models.Mode_MODE_EXCLUSIVE
	if r.shared {
		mode, wireMode = claim.Shared, models.Mode_MODE_SHARED
	}
	found, c := w.claim(r, "CreateClaim", func(ctx context.Context) (*models.Claim, error) {
		return w.client.CreateClaim(ctx, &models.CreateClaimRequest{
			Id: r.id, Resource: r.key, Owner: r.id, Mode: wireMode, Ttl: proto.Float64(ttl.Seconds()), UserData: proto.String(`{"n":1}`),
		})
	})
	if c.err != nil {
		return nil, false
	}
	r.created.first, r.created.end = c.first, c.end
	request := history.Create(r.key, r.id, mode, ttl)
	if c.attempts == 1 {
		w.op(c.first, c.end, request, answer(found))
	} else { // an attempt before made it; the last one shows its state
		w.op(c.first, c.end, request, history.Output{})
		w.op(c.last, c.end, history.Read(r.key, r.id), answer(found))
	}
	return found, true
}

// forsake lets a claim be granted and expire.
func (w *worker) forsake(r *record, found *models.Claim) {
	if found.GetToken() != 0 {
		w.mu.Lock()
		r.token = found.GetToken()
		w.mu.Unlock()
	}
	w.abandon(r, r.created.first+int64(forsakeTTL))
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
	w.op(c.last, c.end, history.Read(r.key, r.id), answer(found))
	return found, true
}

// tryRenew renews the claim, and returns the outcome.
func (w *worker) tryRenew(r *record, ttl time.Duration) call {
	found, c := w.tryClaim(r, "UpdateClaim", func(ctx context.Context) (*models.Claim, error) {
		return w.client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: r.id, Ttl: proto.Float64(ttl.Seconds())})
	})
	if c.err == nil {
		w.op(c.last, c.end, history.Renew(r.key, r.id, ttl), answer(found))
	}
	return c
}

func (w *worker) renew(r *record) {
	if c := w.tryRenew(r, loadTTL); c.err != nil {
		w.fault("renew %s: %v", r.id, c.err)
	}
}

// shorten gives the claim a short TTL and lets it expire. If the answer of an attempt is lost, the claim may expire before the next attempt.
// In that case the trust window ended with the first attempt. It reports whether the claim may still be renewed.
func (w *worker) shorten(r *record) bool {
	c := w.tryRenew(r, abandonTTL)
	switch {
	case c.err == nil:
		w.abandon(r, c.last+int64(abandonTTL))
		return true
	case c.attempts == 1 || status.Code(c.err) != codes.FailedPrecondition:
		w.fault("renew %s: %v", r.id, c.err)
	default:
		w.tooLate(r, c, history.Renew(r.key, r.id, abandonTTL))
	}
	return false
}

// renewLate renews a claim that is due. The renewal is refused if the claim has expired; otherwise the claim is held as before.
func (w *worker) renewLate(r *record) {
	c := w.tryRenew(r, loadTTL)
	switch {
	case c.err == nil:
		w.keep(r)
		w.finish(r, models.Status_STATUS_RELEASED)
	case status.Code(c.err) == codes.FailedPrecondition:
		w.op(c.last, c.end, history.Renew(r.key, r.id, loadTTL), refusal(c.err))
	default:
		w.fault("renew %s, which is due: %v", r.id, c.err)
	}
}

// finish moves the claim to a final status.
func (w *worker) finish(r *record, to models.Status) {
	w.quit(r, history.SetStatus(r.key, r.id, claim.Status(to)), "UpdateClaim", func(ctx context.Context) (*models.Claim, error) {
		return w.client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: r.id, Status: to})
	})
}

// endClaim ends the claim as its status allows.
func (w *worker) endClaim(r *record) {
	w.quit(r, history.End(r.key, r.id), "EndClaim", func(ctx context.Context) (*models.Claim, error) {
		return w.client.EndClaim(ctx, &models.EndClaimRequest{Id: r.id})
	})
}

func (w *worker) quit(r *record, request history.Request, name string, send func(context.Context) (*models.Claim, error)) {
	if r.granted != 0 {
		w.leave(r)
	}
	found, c := w.claim(r, name, send)
	if c.err != nil {
		return
	}
	if r.token == 0 {
		w.mu.Lock()
		r.token = found.GetToken() // granted while it was withdrawn
		w.mu.Unlock()
	}
	w.op(c.first, c.end, request, answer(found))
	w.end(r, found.GetStatus())
}
