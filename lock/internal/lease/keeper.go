package lease

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/locket-service/locket/internal/lease"
	"github.com/locket-service/locket/lock/internal/base"
)

// grant is what a keeper publishes: the lock as its holder may rely on it. The zero grant is
// that of a lock that is not held.
type grant struct {
	// token is the fencing token, 0 when there is no grant, or the server gives none.
	token uint64
	trust lease.Window
}

// keeper keeps one grant by calls, from the first attempt to take it to its end. Its own goroutine alone uses it, but for
// what mu guards.
type keeper struct {
	*Calls                // what never changes is read there
	log      *slog.Logger // hides that of the holder
	grantor  grantor      // likewise; it changes when a claim needs a new id
	observer base.Observer

	// next fires when it is time for an attempt, expiry when the lease is over.
	next, expiry *time.Timer
	// attempt delivers the result of the attempt under way; nil when there is none.
	attempt <-chan result
	cancel  context.CancelFunc
	// ended gets how the grant has ended, when that is known without a renewal, and look has one made now.
	ended <-chan error
	look  <-chan struct{}
	// again is set if a renewal is to follow the attempt under way at once: that may have come too early.
	again bool
	// leaving is done when the grant is to be given up.
	leaving context.Context
	leave   context.CancelFunc

	// held is set between the gain and the loss of the lock.
	held bool
	// token is that of the last grant that the server reported, trusted or not.
	token uint64
	// open is set while the server may have made a grant that it has not reported; wasOpen is
	// open as it was before the attempt under way.
	open, wasOpen bool
	// unverified is set while the lock is held and cannot be verified; denied when that was
	// reported to be because the server does not let the caller renew.
	unverified, denied bool

	// acquired is closed when the lock is held, done when it no longer is, gone when the goroutine has ended.
	acquired, done, gone chan struct{}

	mu      sync.Mutex
	granted grant
	failure error                   // of the last attempt, nil if that came through; only the goroutine changes it
	err     error                   // why it is not held any more, or never was
	over    context.CancelCauseFunc // gets err
}

// result is that of one attempt.
type result struct {
	sent  time.Time
	found bool // it was no renewal
	token uint64
	lasts time.Duration // after the server answered
	err   error
}

func newKeeper(h *Calls, o base.Observer) *keeper {
	leaving, leave := context.WithCancel(context.Background())
	h.setClaimID(h.grantor.id())
	return &keeper{
		Calls: h, observer: o, log: h.Log.With("lock", h.key, "owner", h.owner), grantor: h.grantor,
		next: time.NewTimer(math.MaxInt64), expiry: time.NewTimer(math.MaxInt64), cancel: func() {}, leaving: leaving, leave: leave,
		acquired: make(chan struct{}), done: make(chan struct{}), gone: make(chan struct{}), over: func(error) {},
	}
}

// run keeps the lock until it is given up or lost.
func (k *keeper) run() {
	defer close(k.gone)
	defer k.forget()
	k.try()
	for {
		if err := k.step(); err != nil {
			k.end(err)
			return
		}
	}
}

// step waits for what comes next. Whatever it is, it reads the clock before it does anything else. Its error is the end.
func (k *keeper) step() error {
	var due bool
	var answered *result
	var ended error
	select {
	case <-k.leaving.Done():
		k.stop()
		return base.ErrReleased
	case <-k.expiry.C: // or it was renewed in the last moment
	case <-k.next.C:
		due = true
	case <-k.look:
		if k.again = k.attempt != nil; !k.again {
			k.next.Reset(0)
		}
		return nil
	case ended = <-k.ended:
	case r := <-k.attempt:
		k.attempt, answered = nil, &r
	}
	switch {
	case k.held && !k.granted.trust.Trusted(time.Now()):
		return k.lose(base.TimeUp(k.failure))
	case ended != nil:
		return k.overBy(ended)
	case answered != nil:
		err := k.conclude(*answered)
		if err == nil && k.again {
			k.again = false
			k.next.Reset(0)
		}
		return err
	case due:
		k.try()
	}
	return nil
}

// try begins an attempt to gain or renew the lock, unless one is under way.
func (k *keeper) try() {
	if k.attempt != nil {
		return
	}
	token, grantor := k.token, k.grantor
	k.wasOpen = k.open
	k.open = k.open || token == 0
	ctx, cancel := context.WithTimeout(base.WithRequestID(context.Background()), grantor.timeout(token))
	results := make(chan result, 1)
	k.attempt, k.cancel = results, cancel
	go func() {
		defer cancel()
		sent := time.Now()
		taken, lasts, err := grantor.take(ctx, k.leaving, token, func(holder string) { base.Tell(k.observer.Waiting, holder) })
		results <- result{sent, token == 0, taken, lasts, err}
	}()
}

// conclude handles the result of an attempt. It returns an error if the runner ends.
func (k *keeper) conclude(r result) error {
	verdict, renewal := k.grantor.classify(r.err), k.token != 0
	k.note(r)
	switch {
	case r.err == nil && k.held && r.token != k.granted.token: // by a server that cannot renew one grant only
		return k.lose(base.ErrTokenChanged)
	case r.err == nil:
		k.gain(r)
	case verdict == base.Ended && k.held:
		return k.lose(k.failure)
	case k.held:
		k.goUnverified(verdict)
	case verdict == base.Ended && renewal, verdict == base.Waiting: // what was not trusted has ended; or its turn comes
		k.next.Reset(0)
	case verdict == base.Missed:
		k.claimAnew()
	case verdict == base.Permanent || verdict == base.Denied:
		return k.refused()
	default:
		k.wait(r.sent)
	}
	return nil
}

// claimAnew makes a new claim in place of one that expired before anybody knew that it was
// active, or was aborted because the server has not heard of this runner for its wait TTL.
func (k *keeper) claimAnew() {
	k.log.Warn("the claim has ended before its answer came; making a new one", "id", k.grantor.id(), "error", k.failure)
	k.grantor = k.grantor.next()
	k.setClaimID(k.grantor.id())
	k.next.Reset(0)
}

// refused returns the error that the server does not let the lock be taken.
func (k *keeper) refused() error {
	if k.open {
		k.releaseLater(0)
	}
	return k.failure
}

// note records what the result of an attempt shows of the server's state.
func (k *keeper) note(r result) {
	k.setFailure(base.WithHolder(r.err))
	switch verdict := k.grantor.classify(r.err); {
	case r.err == nil:
		k.token, k.open = r.token, false
	case verdict == base.Ended:
		k.token, k.open = 0, false
	case verdict == base.Permanent, verdict == base.Missed:
		k.open = false
	case verdict == base.Denied: // what an attempt before it left is still there
		k.open = k.wasOpen
	}
}

// gain begins or prolongs the lease.
func (k *keeper) gain(r result) {
	g := grant{r.token, lease.WithMargin(r.sent, r.lasts, k.Margin)}
	brief := !k.held && r.found && r.lasts < k.TTL/2 // a claim whose turn came, or that was found
	if brief || !g.trust.Trusted(time.Now()) {       // or the answer took too long: renew it first
		k.next.Reset(0)
		return
	}
	k.publish(g)
	left := g.trust.Left(time.Now())
	k.expiry.Reset(left)
	pause := base.Jittered(min(k.TTL/3, left/2))
	if k.observer.Renewed != nil {
		k.observer.Renewed(r.sent, r.lasts)
	}
	switch {
	case !k.held:
		pause = time.Duration(rand.Float64() * float64(pause)) // those that began together renew apart
		k.log.Info("lock acquired", "token", r.token)
		k.held = true
		k.watch(r.token)
		base.Tell(k.observer.Acquired, r.token)
		close(k.acquired)
	case k.unverified:
		k.log.Info("lock verified again")
		k.unverified, k.denied = false, false
		if k.observer.Verified != nil {
			k.observer.Verified()
		}
	}
	k.next.Reset(pause)
}

// goUnverified continues after a renewal that failed, while the trust window lasts.
func (k *keeper) goUnverified(verdict base.Verdict) {
	k.log.Warn("lock not renewed", "error", k.failure, "held_for", k.granted.trust.Left(time.Now()))
	first := !k.unverified || verdict == base.Denied && !k.denied
	k.unverified, k.denied = true, k.denied || verdict == base.Denied
	if first {
		base.Tell(k.observer.Unverifiable, k.failure)
	}
	k.next.Reset(base.Jittered(min(k.RetryInterval, k.TTL/10)))
}

// wait tries again a retry interval after the last attempt was sent, at once if that lasted
// longer.
func (k *keeper) wait(sent time.Time) {
	k.log.Info("lock not acquired", "error", k.failure)
	k.next.Reset(max(0, base.Jittered(k.RetryInterval)-time.Since(sent)))
}

// lose ends the trust window. It returns the loss.
func (k *keeper) lose(cause error) error {
	if !k.observer.Again {
		k.releaseLater(k.Margin)
	}
	return base.Lost(k.key, cause)
}

// watch watches for the end of the grant.
func (k *keeper) watch(token uint64) {
	ended, look := make(chan error, 1), make(chan struct{}, 1)
	k.ended, k.look = ended, look
	grantor := k.grantor
	go func() {
		err := grantor.watch(k.leaving, token, func() {
			select {
			case look <- struct{}{}:
			default:
			}
		})
		if err != nil {
			ended <- err
		}
	}()
}

// overBy loses a grant that is known to have ended. An attempt that is under way says nothing new.
func (k *keeper) overBy(cause error) error {
	k.token, k.open = 0, false
	k.setFailure(cause)
	return k.lose(cause)
}

func (k *keeper) setFailure(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failure = err
}

// publish sets the grant that is held.
func (k *keeper) publish(g grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.granted = g
}

// end says why the lock is not held any more, if that is not known yet.
func (k *keeper) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endLocked(err)
}

func (k *keeper) endLocked(err error) {
	if k.err == nil {
		k.err = err
		close(k.done)
		k.over(err)
	}
}

// forget ends what the keeper has begun.
func (k *keeper) forget() {
	k.leave()
	k.cancel()
	k.next.Stop()
	k.expiry.Stop()
}

// Token returns that of the grant.
func (k *keeper) Token() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.granted.token
}

// Deadline returns the end of the trust window.
func (k *keeper) Deadline() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	return now.Add(k.granted.trust.Left(now))
}

// Done is closed when the lock is not held any more.
func (k *keeper) Done() <-chan struct{} { return k.done }

// Err returns why the lock is not held any more: it reads the clock.
func (k *keeper) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endIfUntrusted()
	return k.err
}

// endIfUntrusted is called before anything else is answered: after a pause no timer has run yet. The caller has the lock.
func (k *keeper) endIfUntrusted() {
	if k.err == nil && !k.granted.trust.Trusted(time.Now()) {
		k.endLocked(base.Lost(k.key, base.TimeUp(k.failure)))
	}
}

// Release ends the trust window, if it has not ended before, and then the grant.
func (k *keeper) Release(ctx context.Context) error {
	k.mu.Lock()
	k.endIfUntrusted()
	k.endLocked(base.ErrReleased)
	k.mu.Unlock()
	k.leave()
	select {
	case <-k.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("unlock %q: %w", k.key, ctx.Err())
	}
}

// OnEnd has a function called with the error of the end.
func (k *keeper) OnEnd(f context.CancelCauseFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over = f; k.err != nil {
		f(k.err)
	}
}

// StopClock implements base.Grant.
func (k *keeper) StopClock() {
	k.expiry.Stop()
	k.next.Reset(math.MaxInt64)
}
