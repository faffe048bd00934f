package keychain

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/locket-service/locket/lease"
)

// keeper runs the state machine of one claim. Only its goroutine uses it. Whatever wakes it,
// it looks at the clock before it does anything else.
type keeper struct {
	log    *slog.Logger
	state  state
	last   event  // that led to the state
	key    string // that makes a repeated POST find the claim of the one before
	timers timers

	attempt *attempt      // under way, nil when there is none
	failure error         // what was wrong with the last answer, nil if nothing
	cause   error         // why the claim is given back
	tries   int           // attempts in a row that failed
	polls   int           // answers in a row that said: not your turn
	pause   time.Duration // before it is asked again
	after   time.Duration // the least that the server wants between two attempts

	firstPOST time.Time
	// reached is set when a POST may have reached the server.
	reached bool
	// waited is when the last request was sent that found the claim waiting.
	waited time.Time
	// granted is the trust window by the last answer.
	granted lease.Window
	// shortest is the shortest TTL of any renewal whose outcome is unknown: it may still
	// reach the server, after a later one.
	shortest time.Duration
	// refreshes are those that no renewal has answered yet.
	refreshes []command
}

// timers are those of seed 1, and that of the lease. None fires after it was stopped.
type timers struct{ timeout, activate, renew, retry, lease *time.Timer }

func newKeeper(c *Claim) keeper {
	return keeper{log: c.keychain.log.With("resource", c.resource), state: stateNew, key: rand.Text(), shortest: math.MaxInt64}
}

func newTimer() *time.Timer {
	t := time.NewTimer(math.MaxInt64)
	t.Stop()
	return t
}

// keep runs the claim until it has ended.
func (c *Claim) keep() {
	k := &c.keeper
	k.timers = timers{newTimer(), newTimer(), newTimer(), newTimer(), newTimer()}
	defer c.end()
	c.feed(eventBegin)
	for !k.state.final() {
		c.turn(c.next())
	}
}

// turn has something happen to the claim, unless its lease is over meanwhile: the process may
// have been stopped for a while, and then everything is due at once.
func (c *Claim) turn(e event) {
	k := &c.keeper
	if k.state.holds() && !c.Held() {
		e = eventLeaseOver
	}
	if e != "" {
		c.feed(e)
	}
	c.refreshAgain()
}

// next waits for what happens next; "" is nothing.
func (c *Claim) next() event {
	k := &c.keeper
	var answers <-chan answer
	if k.attempt != nil {
		answers = k.attempt.answers
	}
	select {
	case cmd := <-c.commands:
		return c.take(cmd)
	case a := <-answers:
		k.attempt = nil
		return c.conclude(&a)
	case <-k.timers.timeout.C:
		return eventTimeout
	case <-k.timers.activate.C:
		return eventActivate
	case <-k.timers.renew.C:
		return eventRenew
	case <-k.timers.retry.C:
		return eventRetry
	case <-k.timers.lease.C:
		if c.Held() { // it was renewed, or the clocks differ by a hair
			k.timers.lease.Reset(k.granted.Left(time.Now()))
			return ""
		}
		return eventLeaseOver
	}
}

// take takes a command.
func (c *Claim) take(cmd command) event {
	k := &c.keeper
	if cmd.event != eventRefresh {
		if k.cause == nil {
			k.cause = cmd.cause
		}
		return cmd.event
	}
	if cmd.ttl != 0 {
		c.ttl = cmd.ttl
		c.renewPeriod = 0
	}
	k.refreshes = append(k.refreshes, cmd)
	return eventRefresh
}

// refreshAgain asks again for what a renewal under way could not do, and answers all who have
// asked when there is nothing to renew any more.
func (c *Claim) refreshAgain() {
	k := &c.keeper
	switch {
	case len(k.refreshes) == 0:
	case k.state == stateActive:
		c.feed(eventRefresh)
	case !k.state.holds():
		for _, cmd := range k.refreshes {
			cmd.renewed <- c.cause()
		}
		k.refreshes = nil
	}
}

// feed has something happen to the claim.
func (c *Claim) feed(e event) {
	k := &c.keeper
	from := k.state
	next, actions, ok := step(from, e)
	if !ok { // a bug: nothing that can happen is refused
		k.log.Error("refused", "state", from, "event", e)
		return
	}
	k.state, k.last = next, e
	if from != next {
		k.log.Debug("claim", "state", next, "event", e)
	}
	if from.holds() && !next.holds() {
		c.lose(c.reason(e))
	}
	if next.final() || slices.Contains(givingBack, next) {
		c.giveUp()
	}
	for _, a := range actions {
		c.do(a)
	}
}

// reason returns why a claim that was held is not.
func (c *Claim) reason(e event) error {
	k := &c.keeper
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
func (c *Claim) do(a action) {
	k := &c.keeper
	switch a {
	case sendRegister, sendActivate, sendRenew, sendRelease, sendWithdraw, sendAbort:
		c.send(a)
	case dropRequest:
		c.drop()
	case startTimeout:
		if c.timeout > 0 {
			k.timers.timeout.Reset(c.timeout)
		}
	case startGiveUp:
		k.tries = 0
		k.timers.timeout.Reset(c.keychain.releaseTimeout)
	case startActivate:
		k.timers.activate.Reset(k.pause)
	case startRenew:
		k.timers.renew.Reset(c.untilRenewal())
	case startRetry:
		k.timers.retry.Reset(c.untilRetry())
	case startLease:
		c.extend(k.granted)
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
		c.notify(a)
	}
}

// notify tells the client.
func (c *Claim) notify(a action) {
	k := &c.keeper
	switch a {
	case notifyAcquired:
		k.log.Info("claim acquired", "url", c.location, "token", c.token)
		c.conclusion(nil)
	case notifyReleased:
		k.log.Info("claim released")
	case notifyTimeout:
		err := ErrTimeout
		if k.failure != nil {
			err = fmt.Errorf("%w: %w", ErrTimeout, k.failure)
		}
		c.conclusion(err)
	case notifyLost:
		k.log.Error("claim lost", "error", c.cause())
	case terminate:
		err := c.cause()
		if !errors.Is(err, ErrLost) {
			err = k.failure
			k.log.Error("claim failed", "error", err)
		}
		if c.keychain.fatal != nil {
			go c.keychain.fatal(c.named(err))
		}
	}
}

// conclusion tells Keychain.Claim what it returns. Only the first counts.
func (c *Claim) conclusion(err error) {
	select {
	case c.outcome <- err:
	default:
	}
}

// end is the last that the claim's goroutine does.
func (c *Claim) end() {
	k := &c.keeper
	c.drop()
	for _, t := range []*time.Timer{k.timers.timeout, k.timers.activate, k.timers.renew, k.timers.retry, k.timers.lease} {
		t.Stop()
	}
	c.result = c.outcomeOfEnd()
	c.settle("")
	c.keychain.forget(c)
	close(c.ended)
	if c.result != nil {
		c.conclusion(c.result)
	} else {
		c.conclusion(k.cause)
	}
}

// outcomeOfEnd returns what Release and Close say of a claim that has ended.
func (c *Claim) outcomeOfEnd() error {
	k := &c.keeper
	switch {
	case errors.Is(c.cause(), ErrLost):
		return c.cause()
	case k.state == stateFail:
		return k.failure
	case k.state == stateDone && (k.last == eventTimeout || k.last == eventSignal):
		if k.failure != nil {
			return fmt.Errorf("%w: %w", ErrNotGivenBack, k.failure)
		}
		return ErrNotGivenBack
	default:
		return nil
	}
}
