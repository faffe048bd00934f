package keychain

import (
	"fmt"
	"math"
	"time"

	"github.com/locket-service/locket/internal/lease"
)

// failoverPause is how long to pause, at most, before another server is asked that has not
// failed yet.
const failoverPause = 100 * time.Millisecond

// conclude draws the conclusions from an answer, and returns what it is to the machine.
func (k *keeper) conclude(a *answer) event {
	e := a.event()
	k.failure, k.after = a.failure(), a.after
	switch {
	case a.isDenied() && k.reached && e == eventRefused:
		e = eventFailed // there may be a claim, which only a repetition finds
	case (e == eventRefused || e == eventOK && a.kind == sendRegister) && k.waitTTL > 0 && a.isPlaceLost():
		e = eventPlaceLost
	case a.kind == sendRenew && e == eventOK && k.isTooShort(a):
		e = eventFailed
		k.failure = fmt.Errorf("%s %s: the server grants too short a TTL: %s", a.method, a.target, a.text)
	}
	k.moved = a.server != k.keychain.wire.servers.asked()
	if e == eventFailed {
		k.tries++
		k.report(a)
	} else {
		k.tries, k.alerted = 0, false
	}
	switch {
	case a.kind == sendRegister:
		return k.registered(a, e)
	case e == eventOK && a.kind == sendActivate:
		k.published.learn(a)
		return k.grant(a, k.waited, e)
	case a.kind == sendActivate:
		if e == eventConflict {
			k.queued(a)
		}
	case e == eventOK:
		k.published.learn(a)
		return k.renewed(a)
	case a.kind == sendRenew:
		k.doubt(a.request)
	}
	return e
}

// report logs a failure, and calls the handler for the first in a row that a person should
// know of at once, because it may not pass by itself.
func (k *keeper) report(a *answer) {
	if !a.isDenied() && !a.foreign {
		k.log.Warn("request failed", "state", k.state, "error", k.failure)
		return
	}
	k.log.Error("request denied, or not answered by Locket", "state", k.state, "error", k.failure)
	if !k.alerted && k.keychain.alert != nil {
		k.alerted = true
		go k.keychain.alert(k.claim.named(k.failure))
	}
}

// registered concludes a POST.
func (k *keeper) registered(a *answer, e event) event {
	switch e {
	case eventCreated, eventAccepted:
		k.claim.settle(a.location)
		k.published.learn(a)
	case eventFailed:
		k.claim.late(a) // the address may be all that came of it
		k.reached = k.reached || !a.unsent
		if k.state == stateRecalling && !k.reached { // so there is no claim
			return eventRefused
		}
	}
	switch e {
	case eventCreated:
		return k.grant(a, k.firstPOST, e)
	case eventAccepted:
		k.waited, k.pause = a.sent, 0
		if k.longPoll() == 0 {
			k.pause = k.untilPoll()
		}
	}
	return e
}

// queued concludes an attempt to activate that came too early. Without the server's mark it
// is no proof that the claim was still waiting then.
func (k *keeper) queued(a *answer) {
	k.failure = nil
	if a.marked {
		k.waited = a.sent
	}
	if a.applied && a.came.Sub(a.sent) >= a.wait/2 {
		k.pause, k.polls = 0, 0
		return
	}
	k.pause = k.untilPoll()
}

// grant notes the lease of a claim that has become active after a moment. When not even half
// of it is left for sure, it must be renewed before it is trusted.
func (k *keeper) grant(a *answer, since time.Time, e event) event {
	k.granted = k.window(a, since, k.ttl)
	if !k.granted.HalfLeft(time.Now()) {
		return eventStale
	}
	return e
}

// renewed notes the lease after a renewal.
func (k *keeper) renewed(a *answer) event {
	k.granted = k.window(a, a.sent, a.ttl)
	if !k.granted.Trusted(time.Now()) {
		return eventStale
	}
	waiting := k.refreshes[:0]
	for _, cmd := range k.refreshes {
		if a.sent.Before(cmd.asked) {
			waiting = append(waiting, cmd)
		} else {
			cmd.renewed <- nil
		}
	}
	k.refreshes = waiting
	return eventOK
}

// window returns the trust window of a lease that began at a time, at the latest. It is no
// longer than the server says: one that grants less than was asked for is taken at its word,
// and so is one that says null, or nothing, of what it was asked for.
func (k *keeper) window(a *answer, since time.Time, ttl time.Duration) lease.Window {
	ttl = min(ttl, k.shortest)
	margin := k.margin(ttl)
	w := lease.WithMargin(since, ttl, margin)
	if left, told := a.ttlLeft(); told && left < ttl {
		if shorter := lease.WithMargin(a.sent, left, margin); shorter.Left(a.sent) < w.Left(a.sent) {
			return shorter
		}
	}
	return w
}

// isTooShort reports whether a server has granted so little that the lease was over at once.
func (k *keeper) isTooShort(a *answer) bool {
	left, told := a.ttlLeft()
	return told && left < a.ttl && !lease.WithMargin(a.sent, left, k.margin(a.ttl)).Trusted(a.sent)
}

// untilRenewal returns how long to pause before the next renewal.
func (k *keeper) untilRenewal() time.Duration {
	period := k.renewPeriod
	if period == 0 {
		period = k.ttl / 3
	}
	period = min(period, k.pace()/2)
	due := time.Until(k.granted.Since().Add(jittered(period, 0.2)))
	return min(due, k.granted.Left(time.Now())/2)
}

// untilRetry returns how long to pause before the request is sent again.
func (k *keeper) untilRetry() time.Duration {
	kind, limit := k.state.kind(), time.Duration(math.MaxInt64)
	if k.moved && k.tries < len(k.keychain.wire.servers.roots) {
		return jittered(failoverPause, 0.9) // what one server wants says nothing of the next
	}
	switch kind {
	case sendRenew:
		limit = k.pace() / 10
	case sendActivate:
		limit = k.patience() / 4
	}
	backoff := k.keychain.retries.of(kind)
	if k.state == stateRetryingRecall { // in the time that ending has
		backoff = k.keychain.retries.Withdraw
	}
	pause := backoff.pause(max(1, k.tries), limit)
	if kind == sendRegister || kind == sendActivate {
		pause = max(pause, min(k.after, backoff.Max, limit))
	}
	return pause
}

// untilPoll returns how long to pause before asking again whether it is the claim's turn.
func (k *keeper) untilPoll() time.Duration {
	k.polls++
	return k.keychain.retries.Poll.pause(k.polls, k.patience()/4)
}

// pace returns the TTL that may be relied upon.
func (k *keeper) pace() time.Duration { return min(k.ttl, k.shortest) }

// doubt notes that the outcome of a renewal is unknown.
func (k *keeper) doubt(r request) { k.shortest = min(k.shortest, r.ttl) }

// longPoll returns for how long one request waits for its turn: not so long that a turn could
// be slept through when its answer is lost.
func (k *keeper) longPoll() time.Duration {
	return min(k.keychain.longPoll, k.patience()/2).Truncate(time.Second)
}

// patience returns for how long the server keeps the claim without hearing of it: while it waits, and when
// its turn has come.
func (k *keeper) patience() time.Duration {
	if k.waitTTL > 0 {
		return min(k.ttl, k.waitTTL)
	}
	return k.ttl
}
