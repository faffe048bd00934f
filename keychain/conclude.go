package keychain

import (
	"math"
	"time"

	"github.com/locket-service/locket/lease"
)

// conclude draws the conclusions from an answer, and returns what it is to the machine.
func (c *Claim) conclude(a *answer) event {
	k := &c.keeper
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
		return c.registered(a, e)
	case e == eventOK && a.kind == sendActivate:
		c.learn(a)
		return k.grant(k.waited, c.ttl, e)
	case a.kind == sendActivate:
		if e == eventConflict {
			c.queued(a)
		}
	case e == eventOK:
		c.learn(a)
		return c.renewed(a)
	case a.kind == sendRenew:
		k.doubt(a.request)
	}
	return e
}

// registered concludes a POST.
func (c *Claim) registered(a *answer, e event) event {
	k := &c.keeper
	switch e {
	case eventCreated, eventAccepted:
		c.settle(a.location)
		c.learn(a)
	case eventFailed:
		c.late(a) // the address may be all that came of it
		k.reached = k.reached || !a.unsent
		if k.state == stateRecalling && !k.reached { // so there is no claim
			return eventRefused
		}
	}
	switch e {
	case eventCreated:
		return k.grant(k.firstPOST, c.ttl, e)
	case eventAccepted:
		k.waited, k.pause = a.sent, 0
		if c.patience() == 0 {
			k.pause = c.untilPoll()
		}
	}
	return e
}

// queued concludes an attempt to activate that came too early.
func (c *Claim) queued(a *answer) {
	k := &c.keeper
	k.waited, k.failure = a.sent, nil
	if a.applied && a.came.Sub(a.sent) >= a.wait/2 {
		k.pause, k.polls = 0, 0
		return
	}
	k.pause = c.untilPoll()
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
func (c *Claim) renewed(a *answer) event {
	k := &c.keeper
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
func (c *Claim) untilRenewal() time.Duration {
	period := c.renewPeriod
	if period == 0 {
		period = c.ttl / 3
	}
	period = min(period, c.pace()/2)
	return time.Until(c.keeper.granted.Since().Add(jittered(period, 0.2)))
}

// untilRetry returns how long to pause before the request is sent again.
func (c *Claim) untilRetry() time.Duration {
	k := &c.keeper
	kind, limit := k.state.kind(), time.Duration(math.MaxInt64)
	switch kind {
	case sendRenew:
		limit = c.pace() / 10
	case sendActivate:
		limit = c.ttl / 4
	}
	backoff := c.keychain.retries.of(kind)
	if k.state == stateRetryingRecall { // in the time that giving back has
		backoff = c.keychain.retries.Withdraw
	}
	pause := backoff.pause(max(1, k.tries), limit)
	if kind == sendRegister || kind == sendActivate {
		pause = max(pause, min(k.after, backoff.Max, limit))
	}
	return pause
}

// untilPoll returns how long to pause before asking again whether it is the claim's turn.
func (c *Claim) untilPoll() time.Duration {
	c.keeper.polls++
	return c.keychain.retries.Poll.pause(c.keeper.polls, c.ttl/4)
}

// pace returns the TTL that may be relied upon.
func (c *Claim) pace() time.Duration { return min(c.ttl, c.keeper.shortest) }

// doubt notes that the outcome of a renewal is unknown.
func (k *keeper) doubt(r request) { k.shortest = min(k.shortest, r.ttl) }

// patience returns for how long one request waits for its turn: not so long that a turn could
// be slept through when its answer is lost.
func (c *Claim) patience() time.Duration {
	return min(c.keychain.patience, c.ttl/2).Truncate(time.Second)
}
