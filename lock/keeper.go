package lock

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/ids"
	"github.com/locket-service/locket/lease"
)

// keeper is one run of a runner. Only the goroutine that runs it uses it: the Runner has no
// way to it, and an attempt reports over a channel.
type keeper struct {
	*Runner                 // the handle: what never changes is read there
	log     *slog.Logger    // hides that of the runner
	grantor grantor         // likewise; it changes when a claim needs a new id
	ready   chan<- struct{} // nil once it is closed
	// exitOnLoss ends the run when the lock is lost: a lock's, and a presence's in a Joint.
	exitOnLoss bool

	// next fires when it is time for an attempt, expiry when the lease is over.
	next, expiry *time.Timer
	// attempt delivers the result of the attempt under way; nil when there is none.
	attempt <-chan result
	cancel  context.CancelFunc
	// ended gets how the grant has ended, when that is known without a renewal, and look has one made now. unwatch
	// ends that.
	ended   <-chan error
	look    <-chan struct{}
	unwatch context.CancelFunc
	// again is set if a renewal is to follow the attempt under way at once: that may have come too early.
	again bool
	// leaving is done when the runner ends.
	leaving context.Context
	leave   context.CancelFunc

	// held is set between the gain and the loss of the lock.
	held bool
	// granted is the grant as it was published last.
	granted grant
	// token is that of the last grant that the server reported, trusted or not.
	token uint64
	// open is set while the server may have made a grant that it has not reported; wasOpen is
	// open as it was before the attempt under way.
	open, wasOpen bool
	// failure is the error of the last attempt, nil if that came through.
	failure error
	// unverified is set while the lock is held and cannot be verified; denied when that was
	// reported to be because the server does not let the caller renew.
	unverified, denied bool
}

// result is that of one attempt.
type result struct {
	sent  time.Time
	found bool // it was no renewal
	token uint64
	lasts time.Duration // after the server answered
	err   error
}

func newKeeper(r *Runner, ready chan<- struct{}, exitOnLoss bool) *keeper {
	leaving, leave := context.WithCancel(context.Background())
	r.setClaimID(r.grantor.id())
	return &keeper{
		Runner: r, ready: ready, exitOnLoss: exitOnLoss, log: r.log.With("lock", r.key, "owner", r.owner),
		grantor: r.grantor, next: time.NewTimer(math.MaxInt64), expiry: time.NewTimer(math.MaxInt64), cancel: func() {}, unwatch: func() {}, leaving: leaving, leave: leave,
	}
}

// run keeps the lock until a signal comes or the lock is lost. Whatever wakes it, it
// reads the clock before it does anything else.
func (k *keeper) run(signals <-chan os.Signal) error {
	defer k.forget()
	k.try()
	for {
		var due, expired bool
		var answered *result
		var ended error
		select {
		case <-signals:
			k.stop()
			return nil
		case <-k.expiry.C:
			expired = true
		case <-k.next.C:
			due = true
		case <-k.look:
			if k.again = k.attempt != nil; !k.again {
				k.next.Reset(0)
			}
			continue
		case ended = <-k.ended:
		case r := <-k.attempt:
			k.attempt, answered = nil, &r
		}
		var err error
		switch {
		case k.held && !k.granted.trust.Trusted(time.Now()):
			err = k.lose(timeUp(k.failure))
		case ended != nil:
			err = k.over(ended)
		case answered != nil:
			if err = k.conclude(*answered); k.again {
				k.again = false
				k.next.Reset(0)
			}
		case due:
			k.try()
		case expired: // it was renewed in the last moment
		}
		if err != nil {
			return err
		}
	}
}

// try begins an attempt to gain or renew the lock, unless one is under way.
func (k *keeper) try() {
	if k.attempt != nil {
		return
	}
	token, grantor := k.token, k.grantor
	k.wasOpen = k.open
	k.open = k.open || token == 0
	ctx, cancel := context.WithTimeout(withRequestID(context.Background()), grantor.timeout(token))
	results := make(chan result, 1)
	k.attempt, k.cancel = results, cancel
	go func() {
		defer cancel()
		sent := time.Now()
		taken, lasts, err := grantor.take(ctx, k.leaving, token)
		results <- result{sent, token == 0, taken, lasts, err}
	}()
}

// conclude handles the result of an attempt. It returns an error if the runner ends.
func (k *keeper) conclude(r result) error {
	verdict, renewal := k.grantor.classify(r.err), k.token != 0
	k.note(r)
	switch {
	case r.err == nil && k.held && r.token != k.granted.token: // by a server that cannot renew one grant only
		return k.replaced(r)
	case r.err == nil:
		k.gain(r)
	case verdict == ended && k.held:
		return k.lose(k.failure)
	case k.held:
		k.goUnverified(verdict)
	case verdict == ended && renewal, verdict == waiting: // what was not trusted has ended; or its turn comes
		k.next.Reset(0)
	case verdict == missed:
		k.claimAnew()
	case verdict == permanent || verdict == denied:
		return k.refused(r.sent)
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

// refused returns the error that the run ends with when the server does not let it take the
// lock. A presence that was announced before reports it, and tries again.
func (k *keeper) refused(sent time.Time) error {
	if k.ready != nil {
		if k.open {
			k.releaseLater(0)
		}
		return fmt.Errorf("lock %q: %w", k.key, k.failure)
	}
	k.log.Error("presence refused", "error", k.failure)
	if k.callbacks.Refused != nil {
		k.callbacks.Refused(k.failure)
	}
	k.wait(sent)
	return nil
}

// note records what the result of an attempt shows of the server's state.
func (k *keeper) note(r result) {
	k.failure = withHolder(r.err)
	switch verdict := k.grantor.classify(r.err); {
	case r.err == nil:
		k.token, k.open = r.token, false
	case verdict == ended:
		k.token, k.open = 0, false
	case verdict == permanent, verdict == missed:
		k.open = false
	case verdict == denied: // what an attempt before it left is still there
		k.open = k.wasOpen
	}
}

// gain begins or prolongs the lease.
func (k *keeper) gain(r result) {
	g := grant{r.token, lease.WithMargin(r.sent, r.lasts, k.margin)}
	brief := !k.held && r.found && r.lasts < k.ttl/2 // a claim whose turn came, or that was found
	if brief || !g.trust.Trusted(time.Now()) {       // or the answer took too long: renew it first
		k.next.Reset(0)
		return
	}
	k.publish(g)
	left := g.trust.Left(time.Now())
	k.expiry.Reset(left)
	pause := k.jittered(min(k.ttl/3, left/2))
	switch {
	case !k.held:
		pause = time.Duration(rand.Float64() * float64(pause)) // those that began together renew apart
		k.log.Info("lock acquired", "token", r.token)
		k.held = true
		k.watch(r.token)
		if k.ready != nil {
			close(k.ready)
			k.ready = nil
		}
		if k.callbacks.Acquired != nil {
			k.callbacks.Acquired(r.token)
		}
	case k.unverified:
		k.log.Info("lock verified again")
		k.unverified, k.denied = false, false
		if k.callbacks.Verified != nil {
			k.callbacks.Verified()
		}
	}
	k.next.Reset(pause)
}

// goUnverified continues after a renewal that failed, while the trust window lasts.
func (k *keeper) goUnverified(verdict verdict) {
	k.log.Warn("lock not renewed", "error", k.failure, "held_for", k.granted.trust.Left(time.Now()))
	news := !k.unverified || verdict == denied && !k.denied
	k.unverified, k.denied = true, k.denied || verdict == denied
	if news && k.callbacks.Unverifiable != nil {
		k.callbacks.Unverifiable(k.failure)
	}
	k.next.Reset(k.jittered(min(k.retryInterval, k.ttl/10)))
}

// wait tries again a retry interval after the last attempt was sent, at once if that lasted
// longer.
func (k *keeper) wait(sent time.Time) {
	k.log.Info("lock not acquired", "error", k.failure)
	k.next.Reset(max(0, k.jittered(k.retryInterval)-time.Since(sent)))
}

// lose ends the trust window. It returns the error that the runner ends with, nil for a presence.
func (k *keeper) lose(cause error) error {
	k.held, k.unverified, k.denied = false, false, false
	k.unwatch()
	k.ended, k.look = nil, nil
	k.publish(grant{})
	if k.exitOnLoss {
		k.releaseLater(k.margin)
	}
	err := fmt.Errorf("lock %q: %w: %w", k.key, ErrLost, cause)
	k.log.Error("lock lost", "error", cause)
	if k.callbacks.Lost != nil {
		k.callbacks.Lost(err)
	}
	if k.exitOnLoss {
		return err
	}
	k.next.Reset(k.jittered(min(k.retryInterval, k.ttl/10)))
	return nil
}

// watch has it told how the grant ends.
func (k *keeper) watch(token uint64) {
	ctx, cancel := context.WithCancel(k.leaving)
	ended, look := make(chan error, 1), make(chan struct{}, 1)
	k.ended, k.look, k.unwatch = ended, look, cancel
	grantor := k.grantor
	go func() {
		err := grantor.watch(ctx, token, func() {
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

// over loses a grant that is known to have ended. An attempt that is under way says nothing new.
func (k *keeper) over(cause error) error {
	k.cancel()
	k.attempt = nil
	k.token, k.open, k.failure = 0, false, cause
	return k.lose(cause)
}

// replaced loses a grant in whose place the server has made another.
func (k *keeper) replaced(r result) error {
	if err := k.lose(ErrTokenChanged); err != nil {
		return err
	}
	k.gain(r)
	return nil
}

func timeUp(failure error) error {
	if failure == nil {
		return ErrTimeUp
	}
	return fmt.Errorf("%w: %w", ErrTimeUp, failure)
}

// publish sets the grant that the runner's Held returns.
func (k *keeper) publish(g grant) {
	k.granted = g
	k.setPublished(g)
}

// forget ends what the run has begun.
func (k *keeper) forget() {
	k.leave()
	k.cancel()
	k.next.Stop()
	k.expiry.Stop()
	k.publish(grant{})
}

// jittered returns a pause that is shortened at random.
func (k *keeper) jittered(pause time.Duration) time.Duration {
	return pause - time.Duration(rand.Float64()*k.jitter*float64(pause))
}

// withRequestID gives a request an id, which is in the server's log.
func withRequestID(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "uuid", ids.NewRequest())
}
