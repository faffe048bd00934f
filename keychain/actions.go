package keychain

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// reason returns why a claim is no longer held.
func (w *worker) reason(e event) error {
	switch {
	case e == eventRelease || e == eventSignal:
		return w.cause
	case e == eventLeaseOver && w.failure != nil:
		return fmt.Errorf("%w: %w: %w", ErrLost, ErrTimeUp, w.failure)
	case e == eventLeaseOver:
		return fmt.Errorf("%w: %w", ErrLost, ErrTimeUp)
	default:
		return fmt.Errorf("%w: %w", ErrLost, w.failure)
	}
}

func (w *worker) do(a action) {
	switch a {
	case sendRegister, sendActivate, sendRenew, sendRelease, sendWithdraw, sendAbort:
		w.send(a)
	case dropRequest:
		w.drop()
	case forgetClaim:
		w.forgetClaim()
	case startTimeout:
		if w.timeout > 0 {
			w.timers.timeout.Reset(w.timeout)
		}
	case startEndTimeout:
		w.tries = 0
		w.timers.timeout.Reset(w.keychain.releaseTimeout)
	case startActivate:
		w.timers.activate.Reset(w.pause)
	case startRenew:
		w.timers.renew.Reset(w.untilRenewal())
	case startRetry:
		w.timers.retry.Reset(w.untilRetry())
	case startLease:
		w.published.extend(w.granted)
		w.timers.lease.Reset(w.granted.Left(time.Now()))
	case stopTimeout:
		w.timers.timeout.Stop()
	case stopActivate:
		w.timers.activate.Stop()
	case stopRenew:
		w.timers.renew.Stop()
	case stopRetry:
		w.timers.retry.Stop()
	case stopLease:
		w.timers.lease.Stop()
	default:
		w.notify(a)
	}
}

// forgetClaim makes the next POST create another claim.
func (w *worker) forgetClaim() {
	w.log.Warn("the place in the queue was lost; claiming again", "url", w.published.now().location, "error", w.failure)
	w.published.forget()
	w.key, w.firstPOST, w.reached, w.polls = rand.Text(), time.Time{}, false, 0
}

// notify tells the client.
func (w *worker) notify(a action) {
	switch a {
	case notifyAcquired:
		w.log.Info("claim acquired", "url", w.published.now().location, "token", w.published.now().token)
		w.conclusion(nil)
	case notifyReleased:
		w.log.Info("claim released")
	case notifyTimeout:
		err := ErrTimeout
		if w.failure != nil {
			err = fmt.Errorf("%w: %w", ErrTimeout, w.failure)
		}
		w.conclusion(err)
	case notifyLost:
		w.log.Error("claim lost", "error", w.published.now().loss)
	case terminate:
		err := w.published.now().loss
		if !errors.Is(err, ErrLost) {
			err = w.failure
			w.log.Error("claim failed", "error", err)
		}
		if w.keychain.fatal != nil {
			go w.keychain.fatal(w.claim.named(err))
		}
	}
}

// conclusion sends Keychain.Claim its result. Only the first one counts.
func (w *worker) conclusion(err error) {
	select {
	case w.claim.outcome <- err:
	default:
	}
}
