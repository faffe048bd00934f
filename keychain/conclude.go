package keychain

import (
	"math"
	"time"

	"github.com/locket-service/locket/lease"
)

// conclude draws the conclusions from an answer, and returns what it is to the machine.
func (k *keeper) conclude(a *answer) event {
	e := a.event()
	k.failure, k.after = a.failure(), a.after
	if e == eventFailed {
		k.tries++
		k.log.Warn("request failed", "state", k.state, "error", k.failure)
	} else {
		k.tries = 0
	}
	switch {
	case a.kind == sendRegister:
		return k.registered(a, e)
	case e == eventOK && a.kind == sendActivate:
		k.published.learn(a)
		return k.grant(k.waited, k.ttl, e)
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
		return k.grant(k.firstPOST, k.ttl, e)
	case eventAccepted:
		k.waited, k.pause = a.sent, 0
		if k.longPoll() == 0 {
			k.pause = k.untilPoll()
		}
	}
	return e
}

// queued concludes an attempt to activate that came too early.
func (k *keeper) queued(a *answer) {
	k.waited, k.failure = a.sent, nil
	if a.applied && a.came.Sub(a.sent) >= a.wait/2 {
		k.pause, k.polls = 0, 0
		return
	}
	k.pause = k.untilPoll()
}

// grant notes the lease of a claim that has become active after a moment. When not even half
// of it is left for sure, it must be renewed before it is trusted.
func (k *keeper) grant(since time.Time, ttl time.Duration, e event) event {
	k.granted = lease.From(since, min(ttl, k.shortest))
	if !k.granted.HalfLeft(time.Now()) {
		return eventStale
	}
	return e
}

// renewed notes the lease after a renewal.
func (k *keeper) renewed(a *answer) event {
	k.granted = lease.From(a.sent, min(a.ttl, k.shortest))
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

// untilRenewal returns how long to pause before the next renewal.
func (k *keeper) untilRenewal() time.Duration {
	period := k.renewPeriod
	if period == 0 {
		period = k.ttl / 3
	}
	period = min(period, k.pace()/2)
	return time.Until(k.granted.Since().Add(jittered(period, 0.2)))
}

// untilRetry returns how long to pause before the request is sent again.
func (k *keeper) untilRetry() time.Duration {
	kind, limit := k.state.kind(), time.Duration(math.MaxInt64)
	switch kind {
	case sendRenew:
		limit = k.pace() / 10
	case sendActivate:
		limit = k.ttl / 4
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
	return k.keychain.retries.Poll.pause(k.polls, k.ttl/4)
}

// pace returns the TTL that may be relied upon.
func (k *keeper) pace() time.Duration { return min(k.ttl, k.shortest) }

// doubt notes that the outcome of a renewal is unknown.
func (k *keeper) doubt(r request) { k.shortest = min(k.shortest, r.ttl) }

// longPoll returns for how long one request waits for its turn: not so long that a turn could
// be slept through when its answer is lost.
func (k *keeper) longPoll() time.Duration {
	return min(k.keychain.longPoll, k.ttl/2).Truncate(time.Second)
}
