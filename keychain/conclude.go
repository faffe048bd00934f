package keychain

import (
	"fmt"
	"math"
	"time"

	"github.com/locket-service/locket/internal/base/lease"
)

// failoverPause is the longest pause before a server is asked that has not failed yet.
const failoverPause = 100 * time.Millisecond

// conclude applies an answer to the worker, and returns it as an event for the state machine.
func (w *worker) conclude(a *answer) event {
	e := a.event()
	w.failure, w.after = a.failure(), a.after
	switch {
	case a.isDenied() && w.reached && e == eventRefused:
		e = eventFailed // there may be a claim, which only a repetition finds
	case (e == eventRefused || e == eventOK && a.kind == sendRegister) && w.waitTTL > 0 && a.isPlaceLost():
		e = eventPlaceLost
	case a.kind == sendRenew && e == eventOK && w.isTooShort(a):
		e = eventFailed
		w.failure = fmt.Errorf("%s %s: the server grants too short a TTL: %s", a.method, a.target, a.text)
		w.cut(w.window(a, a.sent, a.ttl))
	}
	w.moved = a.server != w.keychain.wire.servers.asked()
	if e == eventFailed {
		w.tries++
		w.report(a)
	} else {
		w.tries, w.alerted = 0, false
	}
	switch {
	case a.kind == sendRegister:
		return w.registered(a, e)
	case e == eventOK && a.kind == sendActivate:
		w.published.learn(a)
		return w.grant(a, w.waited, e)
	case a.kind == sendActivate:
		if e == eventConflict {
			w.queued(a)
		}
	case e == eventOK:
		w.published.learn(a)
		return w.renewed(a)
	case a.kind == sendRenew:
		w.doubt(a.request)
	}
	return e
}

// report logs a failure. It calls the handler for the first of consecutive failures that may be permanent.
func (w *worker) report(a *answer) {
	if !a.isDenied() && !a.foreign {
		w.log.Warn("request failed", "state", w.state, "error", w.failure)
		return
	}
	w.log.Error("request denied, or not answered by Locket", "state", w.state, "error", w.failure)
	if !w.alerted && w.keychain.alert != nil {
		w.alerted = true
		go w.keychain.alert(w.claim.named(w.failure))
	}
}

// registered concludes a POST.
func (w *worker) registered(a *answer, e event) event {
	switch e {
	case eventCreated, eventAccepted:
		w.claim.settle(a.location)
		w.published.learn(a)
	case eventFailed:
		w.claim.late(a) // the address may be the only result
		w.reached = w.reached || !a.unsent
		if w.state == stateRecalling && !w.reached { // so there is no claim
			return eventRefused
		}
	}
	switch e {
	case eventCreated:
		return w.grant(a, w.firstPOST, e)
	case eventAccepted:
		w.waited, w.pause = a.sent, 0
		if w.longPoll() == 0 {
			w.pause = w.untilPoll()
		}
	}
	return e
}

// queued handles an attempt to activate the claim that came too early. Without the server's mark it does not prove
// that the claim still waits.
func (w *worker) queued(a *answer) {
	w.failure = nil
	if a.marked {
		w.waited = a.sent
	}
	if a.applied && a.came.Sub(a.sent) >= a.wait/2 {
		w.pause, w.polls = 0, 0
		return
	}
	w.pause = w.untilPoll()
}

// grant records the lease of a claim that has become active after a moment. If less than half of it is certain to be
// left, the claim must be renewed before it is trusted.
func (w *worker) grant(a *answer, since time.Time, e event) event {
	w.granted = w.window(a, since, w.ttl)
	if !w.granted.HalfLeft(time.Now()) {
		return eventStale
	}
	return e
}

// renewed notes the lease after a renewal.
func (w *worker) renewed(a *answer) event {
	window := w.window(a, a.sent, a.ttl)
	if !window.Trusted(time.Now()) {
		w.cut(window)
		return eventStale
	}
	w.granted = window
	waiting := w.refreshes[:0]
	for _, cmd := range w.refreshes {
		if a.sent.Before(cmd.asked) {
			waiting = append(waiting, cmd)
		} else {
			cmd.renewed <- nil
		}
	}
	w.refreshes = waiting
	return eventOK
}

// shorten limits the trust window of a held claim to the TTL of a renewal sent now: a shorter TTL cuts the lease, even
// if the answer is lost.
func (w *worker) shorten(ttl time.Duration) {
	w.cut(lease.WithMargin(time.Now(), ttl, w.margin(ttl)))
}

// cut replaces the trust window of a held claim, if the new one ends earlier.
func (w *worker) cut(window lease.Window) {
	if now := time.Now(); w.state.holds() && window.Left(now) < w.granted.Left(now) {
		w.granted = window
		w.do(startLease)
	}
}

// window returns the trust window of a lease that began at a time or earlier. It is not longer than the TTL in the
// answer. A server that answers null, or no TTL, has granted the requested TTL.
func (w *worker) window(a *answer, since time.Time, ttl time.Duration) lease.Window {
	ttl = min(ttl, w.shortest)
	margin := w.margin(ttl)
	window := lease.WithMargin(since, ttl, margin)
	if left, told := a.ttlLeft(); told && left < ttl {
		if shorter := lease.WithMargin(a.sent, left, margin); shorter.Left(a.sent) < window.Left(a.sent) {
			return shorter
		}
	}
	return window
}

// isTooShort reports whether the granted TTL is so short that the lease was over at once.
func (w *worker) isTooShort(a *answer) bool {
	left, told := a.ttlLeft()
	return told && left < a.ttl && !lease.WithMargin(a.sent, left, w.margin(a.ttl)).Trusted(a.sent)
}

// untilRenewal returns how long to pause before the next renewal.
func (w *worker) untilRenewal() time.Duration {
	period := w.renewPeriod
	if period == 0 {
		period = w.ttl / 3
	}
	period = min(period, w.pace()/2)
	due := time.Until(w.granted.Since().Add(lease.Jittered(period, lease.Jitter)))
	return min(due, w.granted.Left(time.Now())/2)
}

// untilRetry returns how long to pause before the request is sent again.
func (w *worker) untilRetry() time.Duration {
	kind, limit := w.state.kind(), time.Duration(math.MaxInt64)
	if w.moved && w.tries < len(w.keychain.wire.servers.roots) {
		return lease.Jittered(failoverPause, 0.9) // the wish of one server does not bind the next
	}
	switch kind {
	case sendRenew:
		limit = w.pace() / 10
	case sendActivate:
		limit = w.retention() / 4
	}
	backoff := w.keychain.retries.of(kind)
	if w.state == stateRetryingRecall { // within the time for ending
		backoff = w.keychain.retries.Withdraw
	}
	pause := backoff.pause(max(1, w.tries), limit)
	if kind == sendRegister || kind == sendActivate {
		pause = max(pause, min(w.after, backoff.Max, limit))
	}
	return pause
}

// untilPoll returns how long to pause before asking again whether the claim may be active.
func (w *worker) untilPoll() time.Duration {
	w.polls++
	return w.keychain.retries.Poll.pause(w.polls, w.retention()/4)
}

// pace returns the TTL that the client may rely on.
func (w *worker) pace() time.Duration { return min(w.ttl, w.shortest) }

// doubt notes that the outcome of a renewal is unknown.
func (w *worker) doubt(r request) { w.shortest = min(w.shortest, r.ttl) }

// longPoll returns how long one request waits in the queue: so short that a grant is found before it expires, even if
// its answer is lost.
func (w *worker) longPoll() time.Duration {
	return min(w.keychain.longPoll, w.retention()/2).Truncate(time.Second)
}

// retention returns how long the server keeps the claim without hearing from the client: while it waits, and once it
// may be active.
func (w *worker) retention() time.Duration {
	if w.waitTTL > 0 {
		return min(w.ttl, w.waitTTL)
	}
	return w.ttl
}
