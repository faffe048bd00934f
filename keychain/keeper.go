package keychain

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/locket-service/locket/internal/lease"
)

// keeper runs the state machine of one claim, in a goroutine of its own. That goroutine alone
// uses its fields and methods: the Claim has no way to it but its commands, and the requests
// that the keeper sends (attempt) answer over a channel. Whatever wakes it, it looks at the
// clock before it does anything else.
type keeper struct {
	keychain  *Keychain
	claim     *Claim     // the caller's handle
	published *published // what the handle tells: that of claim

	claimSettings                 // the TTL and the renew period change with a refresh
	body, plain   json.RawMessage // of POST: see registration

	log    *slog.Logger
	state  state
	last   event  // that led to the state
	key    string // that makes a repeated POST find the claim of the one before
	timers timers

	attempt *attempt      // under way, nil when there is none
	failure error         // what was wrong with the last answer, nil if nothing
	cause   error         // why the claim is ended
	tries   int           // attempts in a row that failed
	polls   int           // answers in a row that said: not your turn
	pause   time.Duration // before it is asked again
	after   time.Duration // the least that the server wants between two attempts
	moved   bool          // another server than that of the last answer is asked next
	alerted bool          // of the failures in a row

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

// timers are those of the original, and that of the lease. None fires after it was stopped.
type timers struct{ timeout, activate, renew, retry, lease *time.Timer }

// newKeeper returns a keeper that has not begun, with its claim.
func (kc *Keychain) newKeeper(resource string, options []ClaimOption) (*keeper, error) {
	s := claimSettings{ttl: DefaultTTL, waitTTL: DefaultWaitTTL}
	for _, option := range append(kc.claim[:len(kc.claim):len(kc.claim)], options...) {
		option(&s)
	}
	if err := s.validate(resource); err != nil {
		return nil, err
	}
	body, plain, err := s.registration(resource)
	if err != nil {
		return nil, err
	}
	c := newClaim(kc, resource)
	return &keeper{
		keychain: kc, claim: c, published: &c.published, claimSettings: s, body: body, plain: plain,
		log: kc.log.With("resource", resource), state: stateNew, key: rand.Text(), shortest: math.MaxInt64,
	}, nil
}

func newTimer() *time.Timer {
	t := time.NewTimer(math.MaxInt64)
	t.Stop()
	return t
}

// keep runs the claim until it has ended. It is the keeper's goroutine.
func (k *keeper) keep() {
	k.timers = timers{newTimer(), newTimer(), newTimer(), newTimer(), newTimer()}
	defer k.end()
	k.feed(eventBegin)
	for !k.state.final() {
		k.turn(k.next())
	}
}

// turn has something happen to the claim, unless its lease is over meanwhile: the process may
// have been stopped for a while, and then everything is due at once.
func (k *keeper) turn(e event) {
	if k.state.holds() && !k.published.held() {
		e = eventLeaseOver
	}
	if e != "" {
		k.feed(e)
	}
	k.refreshAgain()
}

// next waits for what happens next; "" is nothing.
func (k *keeper) next() event {
	var answers <-chan answer
	if k.attempt != nil {
		answers = k.attempt.answers
	}
	select {
	case cmd := <-k.claim.commands:
		return k.take(cmd)
	case a := <-answers:
		k.attempt = nil
		return k.conclude(&a)
	case <-k.timers.timeout.C:
		return eventTimeout
	case <-k.timers.activate.C:
		return eventActivate
	case <-k.timers.renew.C:
		return eventRenew
	case <-k.timers.retry.C:
		return eventRetry
	case <-k.timers.lease.C:
		if k.published.held() { // it was renewed, or the clocks differ by a hair
			k.timers.lease.Reset(k.granted.Left(time.Now()))
			return ""
		}
		return eventLeaseOver
	}
}

// take takes a command.
func (k *keeper) take(cmd command) event {
	if cmd.event != eventRefresh {
		if cmd.first && k.cause != nil {
			return ""
		}
		if k.cause == nil {
			k.cause = cmd.cause
		}
		return cmd.event
	}
	if cmd.ttl != 0 {
		k.ttl = cmd.ttl
		k.renewPeriod = 0
	}
	k.refreshes = append(k.refreshes, cmd)
	return eventRefresh
}

// refreshAgain asks again for what a renewal under way could not do, and answers all who have
// asked when there is nothing to renew any more.
func (k *keeper) refreshAgain() {
	switch {
	case len(k.refreshes) == 0:
	case k.state == stateActive:
		k.feed(eventRefresh)
	case !k.state.holds():
		for _, cmd := range k.refreshes {
			cmd.renewed <- k.published.cause()
		}
		k.refreshes = nil
	}
}

// feed has something happen to the claim.
func (k *keeper) feed(e event) {
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
		k.published.lose(k.reason(e))
	}
	if next.final() || slices.Contains(ending, next) {
		k.published.giveUp()
	}
	for _, a := range actions {
		k.do(a)
	}
}

// end is the last that the keeper's goroutine does.
func (k *keeper) end() {
	k.drop()
	for _, t := range []*time.Timer{k.timers.timeout, k.timers.activate, k.timers.renew, k.timers.retry, k.timers.lease} {
		t.Stop()
	}
	k.claim.result = k.outcomeOfEnd()
	k.claim.settle("")
	k.keychain.forget(k.claim)
	close(k.claim.ended)
	if k.claim.result != nil {
		k.conclusion(k.claim.result)
	} else {
		k.conclusion(k.cause)
	}
}

// outcomeOfEnd returns what Release and Close say of a claim that has ended.
func (k *keeper) outcomeOfEnd() error {
	switch {
	case errors.Is(k.published.cause(), ErrLost):
		return k.published.cause()
	case k.state == stateFail:
		return k.failure
	case k.state == stateDone && (k.last == eventTimeout || k.last == eventSignal):
		if k.failure != nil {
			return fmt.Errorf("%w: %w", ErrNotEnded, k.failure)
		}
		return ErrNotEnded
	default:
		return nil
	}
}
