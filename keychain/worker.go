package keychain

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/locket-service/locket/internal/base/lease"
)

// worker runs the state machine of one claim, in a goroutine of its own. Only that goroutine uses its fields and
// methods: the Claim sends it commands, and its requests (attempt) answer over a channel. Whenever it wakes, it reads
// the clock before it does anything else.
type worker struct {
	keychain  *Keychain
	claim     *Claim     // the caller's handle
	published *published // the state of the Claim handle

	claimSettings              // the TTL and the renew period change with a refresh
	body          registration // of POST

	log    *slog.Logger
	state  state
	last   event  // the action that led to the state
	key    string // with it a repeated POST finds the claim of the first one
	timers timers

	attempt *attempt      // under way, nil when there is none
	failure error         // what was wrong with the last answer, nil if nothing
	cause   error         // why the claim is ended
	tries   int           // consecutive failed attempts
	polls   int           // consecutive answers that the claim still waits
	pause   time.Duration // before the server is asked again
	after   time.Duration // the minimum that the server wants between two attempts
	moved   bool          // the next request goes to another server than the last answer's
	alerted bool          // of the failures in a row

	firstPOST time.Time
	// reached is set when a POST may have reached the server.
	reached bool
	// waited is when the last request that found the claim waiting was sent.
	waited time.Time
	// granted is the trust window of the last answer.
	granted lease.Window
	// shortest is the shortest TTL of any renewal whose outcome is unknown: it may still
	// reach the server, after a later one.
	shortest time.Duration
	// refreshes wait for a renewal.
	refreshes []command
}

// timers are the original's timers and the lease's. None fires after it was stopped.
type timers struct{ timeout, activate, renew, retry, lease *time.Timer }

// newWorker returns a worker that has not started, with its claim.
func (kc *Keychain) newWorker(resource string, options []ClaimOption) (*worker, error) {
	s := claimSettings{ttl: DefaultTTL, waitTTL: DefaultWaitTTL}
	for _, option := range append(kc.claim[:len(kc.claim):len(kc.claim)], options...) {
		option(&s)
	}
	if err := s.validate(resource); err != nil {
		return nil, err
	}
	body, err := s.registration(resource)
	if err != nil {
		return nil, err
	}
	c := newClaim(kc, resource)
	return &worker{
		keychain: kc, claim: c, published: &c.published, claimSettings: s, body: body,
		log: kc.log.With("resource", resource), state: stateNew, key: rand.Text(), shortest: math.MaxInt64,
	}, nil
}

func newTimer() *time.Timer {
	t := time.NewTimer(math.MaxInt64)
	t.Stop()
	return t
}

// keep runs the claim until it has ended. It is the worker's goroutine.
func (w *worker) keep() {
	w.timers = timers{newTimer(), newTimer(), newTimer(), newTimer(), newTimer()}
	defer w.end()
	w.feed(eventBegin)
	for !w.state.final() {
		w.step(w.next())
	}
}

// step feeds an event to the state machine, unless the lease is over by now: after a pause of the process everything
// is due at once.
func (w *worker) step(e event) {
	if w.state.holds() && !w.published.now().held() {
		e = eventLeaseOver
	}
	if e != "" {
		w.feed(e)
	}
	w.refreshAgain()
}

// next waits for the next event; "" is none.
func (w *worker) next() event {
	var answers <-chan answer
	if w.attempt != nil {
		answers = w.attempt.answers
	}
	select {
	case cmd := <-w.claim.commands:
		return w.take(cmd)
	case a := <-answers:
		w.attempt = nil
		return w.conclude(&a)
	case <-w.timers.timeout.C:
		return eventTimeout
	case <-w.timers.activate.C:
		return eventActivate
	case <-w.timers.renew.C:
		return eventRenew
	case <-w.timers.retry.C:
		return eventRetry
	case <-w.timers.lease.C:
		if w.published.now().held() { // it was renewed, or the clocks differ a little
			w.timers.lease.Reset(w.granted.Left(time.Now()))
			return ""
		}
		return eventLeaseOver
	}
}

func (w *worker) take(cmd command) event {
	if cmd.event != eventRefresh {
		if cmd.first && w.cause != nil {
			return ""
		}
		if w.cause == nil {
			w.cause = cmd.cause
		}
		return cmd.event
	}
	if cmd.ttl != 0 {
		w.ttl = cmd.ttl
		w.renewPeriod = 0
	}
	w.refreshes = append(w.refreshes, cmd)
	return eventRefresh
}

// refreshAgain repeats refreshes that a running renewal could not include, and answers all
// callers when there is nothing left to renew.
func (w *worker) refreshAgain() {
	switch {
	case len(w.refreshes) == 0:
	case w.state == stateActive:
		w.feed(eventRefresh)
	case !w.state.holds():
		for _, cmd := range w.refreshes {
			cmd.renewed <- w.published.now().loss
		}
		w.refreshes = nil
	}
}

// feed applies an event to the claim.
func (w *worker) feed(e event) {
	from := w.state
	next, actions, ok := step(from, e)
	if !ok { // a bug: the table has a row for everything that can happen
		w.log.Error("refused", "state", from, "event", e)
		return
	}
	w.state, w.last = next, e
	if from != next {
		w.log.Debug("claim", "state", next, "event", e)
	}
	if from.holds() && !next.holds() {
		w.published.lose(w.reason(e))
	}
	if next.final() || slices.Contains(ending, next) {
		w.published.giveUp()
	}
	for _, a := range actions {
		w.do(a)
	}
}

// end is the last step of the worker's goroutine.
func (w *worker) end() {
	w.drop()
	for _, t := range []*time.Timer{w.timers.timeout, w.timers.activate, w.timers.renew, w.timers.retry, w.timers.lease} {
		t.Stop()
	}
	w.claim.result = w.outcomeOfEnd()
	w.claim.settle("")
	w.keychain.forget(w.claim)
	close(w.claim.ended)
	if w.claim.result != nil {
		w.conclusion(w.claim.result)
	} else {
		w.conclusion(w.cause)
	}
}

// outcomeOfEnd returns the result of Release and Close for a claim that has ended.
func (w *worker) outcomeOfEnd() error {
	switch {
	case errors.Is(w.published.now().loss, ErrLost):
		return w.published.now().loss
	case w.state == stateFail:
		if answer := new(AnswerError); errors.As(w.failure, &answer) && answer.Status != "" && w.cause != nil {
			return fmt.Errorf("%w: %w", ErrLost, w.failure) // it had ended before its release
		}
		return w.failure
	case w.state == stateDone && (w.last == eventTimeout || w.last == eventSignal):
		if w.failure != nil {
			return fmt.Errorf("%w: %w", ErrNotEnded, w.failure)
		}
		return ErrNotEnded
	default:
		return nil
	}
}
