package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/locket-service/locket/internal/base/lease"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/lock/internal/base"
)

// grant is a grant that the holder may rely on. The zero grant means that the lock is not held.
type grant struct {
	// token is the fencing token, 0 when there is no grant, or the server gives none.
	token uint64
	trust lease.Window
}

// hold is one grant by calls, from the first attempt to take it to its end. Only its own goroutine uses it, except the
// fields that mu guards.
type hold struct {
	*Holder               // only its constant fields are read
	log      *slog.Logger // hides the holder's
	calls    calls        // hides the holder's; they change when a claim needs a new id
	observer base.Observer

	// next fires when it is time for an attempt, expiry when the lease is over.
	next, expiry *time.Timer
	// attempt delivers the result of the attempt under way; nil when there is none.
	attempt <-chan result
	cancel  context.CancelFunc
	// ended gets how the grant has ended, when that is known without a renewal. look requests a renewal now.
	ended <-chan error
	look  <-chan struct{}
	// again is set if a renewal must follow the attempt under way at once, because that may have come too early.
	again bool
	// leaving is done when the grant must be given up.
	leaving context.Context
	leave   context.CancelFunc

	// held is set between the gain and the loss of the lock.
	held bool
	// token is the last one that the server reported, trusted or not.
	token uint64
	// open is set while the server may have made a grant that it has not reported; wasOpen is its value before the
	// attempt under way.
	open, wasOpen bool
	// unverified is set while the lock is held but cannot be verified. denied is set when it was reported that the
	// server refuses the renewal.
	unverified, denied bool

	// acquired is closed when the lock is held, gone when the goroutine has ended.
	acquired, gone chan struct{}
	// ctx is done when the lock is not held any more, or never was: its cause says why.
	ctx context.Context
	end context.CancelCauseFunc

	mu      sync.Mutex
	granted grant
	failure error // of the last attempt, nil if it succeeded; only the goroutine changes it
}

// result is the outcome of one attempt.
type result struct {
	sent  time.Time
	found bool // it was no renewal
	// queued is set if others came first. A claim then waits in the queue.
	queued bool
	token  uint64
	lasts  time.Duration // after the server answered
	err    error
	why    error // how the grant has ended, if that is known
}

func (o *Holder) newHold(ctx context.Context, observer base.Observer) *hold {
	leaving, leave := context.WithCancel(context.Background())
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	o.id.Store(o.calls.id())
	return &hold{
		Holder: o, observer: observer, log: o.Log.With("lock", o.key, "owner", o.owner), calls: o.calls,
		next: time.NewTimer(math.MaxInt64), expiry: time.NewTimer(math.MaxInt64), cancel: func() {}, leaving: leaving, leave: leave,
		acquired: make(chan struct{}), gone: make(chan struct{}), ctx: ctx, end: end,
	}
}

// run keeps the lock until it is given up or lost.
func (h *hold) run() {
	defer close(h.gone)
	defer h.forget()
	h.try()
	for {
		if err := h.step(); err != nil {
			h.end(err)
			return
		}
	}
}

// step waits for the next event. It reads the clock before it does anything else. An error ends the hold.
func (h *hold) step() error {
	var due bool
	var answered *result
	var ended error
	select {
	case <-h.leaving.Done():
		h.stop()
		return base.ErrReleased
	case <-h.expiry.C: // or it was renewed in the last moment
	case <-h.next.C:
		due = true
	case <-h.look:
		if h.again = h.attempt != nil; !h.again {
			h.next.Reset(0)
		}
		return nil
	case ended = <-h.ended:
	case r := <-h.attempt:
		h.attempt, answered = nil, &r
	}
	switch {
	case h.held && !h.granted.trust.Trusted(time.Now()):
		return h.lose(base.TimeUp(h.failure))
	case ended != nil:
		return h.overBy(ended)
	case answered != nil:
		err := h.conclude(*answered)
		if err == nil && h.again {
			h.again = false
			h.next.Reset(0)
		}
		return err
	case due:
		h.try()
	}
	return nil
}

// try begins an attempt to gain or renew the lock, unless one is under way.
func (h *hold) try() {
	if h.attempt != nil {
		return
	}
	token, calls := h.token, h.calls
	h.wasOpen = h.open
	h.open = h.open || token == 0
	parent := context.Background()
	if h.observer.CallValues != nil && !h.held {
		parent = context.WithoutCancel(h.observer.CallValues)
	}
	ctx, cancel := context.WithTimeout(base.WithRequestID(parent), calls.timeout(token))
	results := make(chan result, 1)
	h.attempt, h.cancel = results, cancel
	go func() {
		defer cancel()
		r := result{sent: time.Now(), found: token == 0}
		r.token, r.lasts, r.err = calls.take(ctx, h.leaving, token, func(holder string) {
			r.queued = true
			base.Tell(h.observer.Calls, h.observer.Waiting, holder)
		})
		if token != 0 && calls.classify(r.err) == base.Ended {
			ctx, cancel := context.WithTimeout(ctx, base.MaxWhy)
			defer cancel()
			r.why = calls.why(ctx, token)
		}
		results <- r
	}()
}

// conclude handles the result of an attempt. It returns an error if the runner ends.
func (h *hold) conclude(r result) error {
	verdict, renewal := h.calls.classify(r.err), h.token != 0
	h.note(r)
	switch {
	case r.err == nil && h.held && r.token != h.granted.token: // by a server that cannot renew only one grant
		return h.lose(base.ErrTokenChanged)
	case r.err == nil:
		return h.gain(r)
	case verdict == base.Ended && h.held && r.why != nil:
		return h.overBy(fmt.Errorf("%w: %w", r.why, h.failure))
	case verdict == base.Ended && h.held:
		return h.lose(h.failure)
	case h.held:
		h.goUnverified(verdict)
	case verdict == base.Ended && renewal, verdict == base.Waiting: // an untrusted grant has ended; or a grant may come at any time
		h.next.Reset(0)
	case verdict == base.Missed:
		h.claimAnew()
	case verdict == base.Permanent || verdict == base.Denied:
		if h.open {
			h.releaseLater(0)
		}
		return h.failure
	default:
		h.wait(r.sent)
	}
	return nil
}

// claimAnew replaces a claim that expired before this runner knew that it was active, or was aborted because the
// server had not heard from this runner for its wait TTL.
func (h *hold) claimAnew() {
	h.log.Warn("the claim has ended before its answer came; making a new one", "id", h.calls.id(), "error", h.failure)
	h.calls = h.calls.next()
	h.id.Store(h.calls.id())
	h.next.Reset(0)
}

// note records what the result of an attempt shows of the server's state.
func (h *hold) note(r result) {
	h.setFailure(base.WithHolder(r.err))
	switch verdict := h.calls.classify(r.err); {
	case r.err == nil:
		h.token, h.open = r.token, false
	case verdict == base.Ended:
		h.token, h.open = 0, false
	case verdict == base.Permanent, verdict == base.Missed:
		h.open = false
	case verdict == base.Denied: // a grant left by an earlier attempt still exists, and so does the claim that this attempt made before it waited
		h.open = h.wasOpen || r.queued
	}
}

// gain begins or prolongs the lease. It returns an error if that was lost.
func (h *hold) gain(r result) error {
	g := grant{r.token, lease.WithMargin(r.sent, r.lasts, h.Margin)}
	switch {
	case !h.held && r.found && r.lasts < h.TTL/2: // a claim that was granted while it waited, or that was found: renew it first
		h.next.Reset(0)
		return nil
	case !g.trust.Trusted(time.Now()): // the answer took too long, or the server grants too little
		h.next.Reset(max(0, h.retryPause()-time.Since(r.sent)))
		return nil
	}
	h.mu.Lock()
	over := context.Cause(h.ctx)
	if over == nil {
		h.granted = g
	}
	h.mu.Unlock()
	if errors.Is(over, base.ErrLost) { // the window has ended since step read the clock, and Check has reported that
		return h.lose(over)
	}
	left := g.trust.Left(time.Now())
	h.expiry.Reset(left)
	pause := base.Jittered(min(h.TTL/3, left/2))
	h.observer.TellRenewed(r.sent, r.lasts)
	switch {
	case !h.held:
		pause = time.Duration(rand.Float64() * float64(pause)) // holds that began together should renew apart
		h.log.Info("lock acquired", "token", r.token)
		h.held = true
		h.watch(r.token)
		base.Tell(h.observer.Calls, h.observer.Acquired, r.token)
		close(h.acquired)
	case h.unverified:
		h.log.Info("lock verified again")
		h.unverified, h.denied = false, false
		h.observer.TellVerified()
	}
	h.next.Reset(pause)
	return nil
}

// goUnverified continues after a renewal that failed, while the trust window lasts.
func (h *hold) goUnverified(verdict base.Verdict) {
	h.log.Warn("lock not renewed", "error", h.failure, "held_for", h.granted.trust.Left(time.Now()))
	first := !h.unverified || verdict == base.Denied && !h.denied
	h.unverified, h.denied = true, h.denied || verdict == base.Denied
	h.RenewalFailed()
	if first {
		base.Tell(h.observer.Calls, h.observer.Unverifiable, h.failure)
	}
	h.next.Reset(h.retryPause())
}

// retryPause returns the pause before a renewal that has failed is repeated.
func (h *hold) retryPause() time.Duration { return base.Jittered(min(h.RetryInterval, h.TTL/10)) }

// wait schedules the next attempt a retry interval after the last one was sent, or at once if that took longer.
func (h *hold) wait(sent time.Time) {
	h.log.Info("lock not acquired", "error", h.failure)
	h.next.Reset(max(0, base.Jittered(h.RetryInterval)-time.Since(sent)))
}

// lose ends the trust window. It returns the loss.
func (h *hold) lose(cause error) error {
	if !h.observer.Again {
		h.releaseLater(h.Margin)
	}
	return base.Lost(h.key, cause)
}

// watch watches for the end of the grant.
func (h *hold) watch(token uint64) {
	ended, look := make(chan error, 1), make(chan struct{}, 1)
	h.ended, h.look = ended, look
	calls := h.calls
	go func() {
		err := calls.watch(h.leaving, token, func() { periodic.Wake(look) })
		if err != nil {
			ended <- err
		}
	}()
}

// overBy handles the loss of a grant that is known to have ended. The result of an attempt under way no longer
// matters.
func (h *hold) overBy(cause error) error {
	h.token, h.open = 0, false
	h.setFailure(cause)
	return h.lose(cause)
}

func (h *hold) setFailure(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = err
}

// forget ends the goroutines and calls of the hold.
func (h *hold) forget() {
	h.leave()
	h.cancel()
	h.next.Stop()
	h.expiry.Stop()
}

func (h *hold) Token() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.granted.token
}

// Deadline returns the end of the trust window.
func (h *hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	return now.Add(h.granted.trust.Left(now))
}

// Context implements base.Hold.
func (h *hold) Context() context.Context { return h.ctx }

// Check is called before anything else is answered: after a pause no timer has run yet.
func (h *hold) Check() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.granted.trust.Trusted(time.Now()) {
		h.end(base.Lost(h.key, base.TimeUp(h.failure)))
	}
}

// Release ends the trust window and then the grant.
func (h *hold) Release(ctx context.Context) error {
	h.Check()
	h.end(base.ErrReleased)
	h.leave()
	select {
	case <-h.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("unlock %q: %w", h.key, ctx.Err())
	}
}

func (h *hold) StopClock() {
	h.expiry.Stop()
	h.next.Reset(math.MaxInt64)
}
