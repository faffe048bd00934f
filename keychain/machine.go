package keychain

import "slices"

// state is the state of a claim, with the name that the original gives it.
type state string

const (
	stateNew              state = "new"               // initial state
	stateRegistering      state = "Registering"       // waiting for the answer to POST
	stateWaiting          state = "waiting"           // waiting until the next attempt to activate
	stateActivating       state = "Activating"        // waiting for the answer to PATCH (status=active)
	stateConfirming       state = "Confirming"        // active, nobody knows since when: waiting for the answer to PATCH (ttl=...)
	stateActive           state = "active"            // waiting to send the next heartbeat
	stateRenewing         state = "Renewing"          // waiting for the answer to PATCH (ttl=...)
	stateReleasing        state = "Releasing"         // waiting for the answer to PATCH (status=released)
	stateWithdrawing      state = "Withdrawing"       // waiting for the answer to PATCH (status=withdrawn)
	stateAborting         state = "Aborting"          // waiting for the answer to PATCH (status=aborted)
	stateRecalling        state = "Recalling"         // not wanted any more: waiting for the answer to POST, which names the claim to withdraw
	stateRetryingRegister state = "retrying register" // waiting to send that request again; so are those below
	stateRetryingActivate state = "retrying activate"
	stateRetryingConfirm  state = "retrying confirm"
	stateRetryingRenew    state = "retrying renew"
	stateRetryingRelease  state = "retrying release"
	stateRetryingWithdraw state = "retrying withdraw"
	stateRetryingAbort    state = "retrying abort"
	stateRetryingRecall   state = "retrying recall"

	// The final states.
	stateDone      state = "done"      // dropped, even if the server still has it
	stateFail      state = "fail"      // the server refused something
	stateLost      state = "lost"      // the lease was over before it was renewed
	stateReleased  state = "released"  // no longer needed
	stateWithdrawn state = "withdrawn" // no longer wanted
	stateAborted   state = "aborted"   // no longer wanted because of an error of the client
)

// event is an event of a claim; the original calls it a condition.
type event string

const (
	eventBegin event = "-" // the client wants the claim

	// The answers, as the worker classifies them: a missing answer, or one that is not of the
	// protocol, is failed.
	eventOK        event = "response (200)"
	eventCreated   event = "response (201)"
	eventAccepted  event = "response (202)"
	eventNoContent event = "response (204)"
	eventConflict  event = "response (409)"
	eventNotFound  event = "response (404)"
	eventRefused   event = "response (4xx)" // any other
	eventFailed    event = "response (5xx)"
	// eventPlaceLost is a 200 to POST, or a 4xx: the claim has ended because Locket did not hear from the keychain.
	eventPlaceLost event = "response (200 or 4xx), place lost"
	// eventStale is a 200 or 201 for an active claim that came so late that half of the lease, or more, may be over.
	eventStale event = "response (200 or 201), late"

	eventSignal    event = "signal received" // an error of the client: everything must end at once
	eventRelease   event = "client requests release"
	eventRefresh   event = "client requests refresh"
	eventTimeout   event = "timeout timer triggers"
	eventRenew     event = "renew timer triggers"
	eventActivate  event = "activate timer triggers"
	eventRetry     event = "retry timer triggers"
	eventLeaseOver event = "lease is over" // by the client's own clock
)

// action is a step of the worker. Sending replaces the request in progress, and starting a timer
// replaces the running timer.
type action string

const (
	sendRegister action = "send POST"
	sendActivate action = "send PATCH (status=active)"
	sendRenew    action = "send PATCH (ttl=...)"
	sendRelease  action = "send PATCH (status=released)"
	sendWithdraw action = "send PATCH (status=withdrawn)"
	sendAbort    action = "send PATCH (status=aborted)"
	dropRequest  action = "drop the request under way"

	forgetClaim action = "forget the claim, which has ended"

	startTimeout    action = "create timeout timer" // the time that the client gives the claim to become active
	startEndTimeout action = "create timeout timer for ending the claim"
	stopTimeout     action = "delete timeout timer" // either
	startActivate   action = "create activate timer"
	stopActivate    action = "delete activate timer"
	startRenew      action = "create renew timer"
	stopRenew       action = "delete renew timer"
	startRetry      action = "create retry timer" // with the parameters of the request that failed
	stopRetry       action = "delete retry timer"
	startLease      action = "create lease timer"
	stopLease       action = "delete lease timer"

	notifyAcquired action = "notify client lock is acquired"
	notifyReleased action = "notify client lock is released"
	notifyTimeout  action = "notify client of timeout"
	notifyLost     action = "notify client lock is lost"
	terminate      action = "terminate client"
)

// row is one transition.
type row struct {
	from    state
	event   event
	to      state
	actions []action
}

// pair is a state and what happens in it.
type pair struct {
	state state
	event event
}

// final reports whether a claim has ended: no transition leaves such a state, no timer runs
// in it, no request is under way.
func (s state) final() bool { return slices.Contains(finals, s) }

// sends has the request whose answer a state waits for.
var sends = map[state]action{
	stateRegistering: sendRegister, stateRecalling: sendRegister, stateActivating: sendActivate,
	stateConfirming: sendRenew, stateRenewing: sendRenew,
	stateReleasing: sendRelease, stateWithdrawing: sendWithdraw, stateAborting: sendAbort,
}

// sendsAgain has the request that a state waits to send again.
var sendsAgain = map[state]action{
	stateRetryingRegister: sendRegister, stateRetryingRecall: sendRegister, stateRetryingActivate: sendActivate,
	stateRetryingConfirm: sendRenew, stateRetryingRenew: sendRenew,
	stateRetryingRelease: sendRelease, stateRetryingWithdraw: sendWithdraw, stateRetryingAbort: sendAbort,
}

// kind returns which request a state sends, or waits to send again; "" for the others.
func (s state) kind() action {
	if kind := sends[s]; kind != "" {
		return kind
	}
	return sendsAgain[s]
}

// asks reports whether a state waits for an answer.
func (s state) asks() bool { return sends[s] != "" }

// holds reports whether the client holds the claim in this state, as long as its lease lasts.
func (s state) holds() bool {
	return s == stateActive || s == stateRenewing || s == stateRetryingRenew
}

// step returns the state after an event, and the actions. ok is false for events that cannot happen
// in the state: their timer does not run, or no request is in progress.
func step(s state, e event) (next state, actions []action, ok bool) {
	if r, found := transitions[pair{s, e}]; found {
		return r.to, r.actions, true
	}
	if s.asks() {
		if class := classOf(e); class != e {
			return step(s, class)
		}
	}
	if _, found := ignored[pair{s, e}]; found {
		return s, nil, true
	}
	return s, nil, false
}

// classOf returns the class of an answer without a row in the table: each 4xx counts as 4xx, and an unexpected success as no answer.
func classOf(e event) event {
	switch e {
	case eventConflict, eventNotFound, eventPlaceLost:
		return eventRefused
	case eventOK, eventCreated, eventAccepted, eventNoContent, eventStale:
		return eventFailed
	}
	return e
}
