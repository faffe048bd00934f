package keychain

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// reason returns why a claim that was held is not.
func (k *keeper) reason(e event) error {
	switch {
	case e == eventRelease || e == eventSignal:
		return k.cause
	case e == eventLeaseOver && k.failure != nil:
		return fmt.Errorf("%w: %w: %w", ErrLost, ErrTimeUp, k.failure)
	case e == eventLeaseOver:
		return fmt.Errorf("%w: %w", ErrLost, ErrTimeUp)
	default:
		return fmt.Errorf("%w: %w", ErrLost, k.failure)
	}
}

// do carries out an action.
func (k *keeper) do(a action) {
	switch a {
	case sendRegister, sendActivate, sendRenew, sendRelease, sendWithdraw, sendAbort:
		k.send(a)
	case dropRequest:
		k.drop()
	case forgetClaim:
		k.forgetClaim()
	case startTimeout:
		if k.timeout > 0 {
			k.timers.timeout.Reset(k.timeout)
		}
	case startEndTimeout:
		k.tries = 0
		k.timers.timeout.Reset(k.keychain.releaseTimeout)
	case startActivate:
		k.timers.activate.Reset(k.pause)
	case startRenew:
		k.timers.renew.Reset(k.untilRenewal())
	case startRetry:
		k.timers.retry.Reset(k.untilRetry())
	case startLease:
		k.published.extend(k.granted)
		k.timers.lease.Reset(k.granted.Left(time.Now()))
	case stopTimeout:
		k.timers.timeout.Stop()
	case stopActivate:
		k.timers.activate.Stop()
	case stopRenew:
		k.timers.renew.Stop()
	case stopRetry:
		k.timers.retry.Stop()
	case stopLease:
		k.timers.lease.Stop()
	default:
		k.notify(a)
	}
}

// forgetClaim has the next POST make another claim.
func (k *keeper) forgetClaim() {
	k.log.Warn("the place in the line was lost; claiming anew", "url", k.published.url(), "error", k.failure)
	k.published.forget()
	k.key, k.firstPOST, k.reached, k.polls = rand.Text(), time.Time{}, false, 0
}

// notify tells the client.
func (k *keeper) notify(a action) {
	switch a {
	case notifyAcquired:
		k.log.Info("claim acquired", "url", k.published.url(), "token", k.published.fencingToken())
		k.conclusion(nil)
	case notifyReleased:
		k.log.Info("claim released")
	case notifyTimeout:
		err := ErrTimeout
		if k.failure != nil {
			err = fmt.Errorf("%w: %w", ErrTimeout, k.failure)
		}
		k.conclusion(err)
	case notifyLost:
		k.log.Error("claim lost", "error", k.published.cause())
	case terminate:
		err := k.published.cause()
		if !errors.Is(err, ErrLost) {
			err = k.failure
			k.log.Error("claim failed", "error", err)
		}
		if k.keychain.fatal != nil {
			go k.keychain.fatal(k.claim.named(err))
		}
	}
}

// conclusion tells Keychain.Claim what it returns. Only the first counts.
func (k *keeper) conclusion(err error) {
	select {
	case k.claim.outcome <- err:
	default:
	}
}
