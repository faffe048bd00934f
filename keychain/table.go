package keychain

// table is the original's transition table, with decisions where the original is silent or
// contradicts itself or the REST requirements; docs/design/decisions.md has the reasons. A row
// that is unchanged has no comment.
var table = []row{
	{stateNew, eventBegin, stateRegistering, []action{sendRegister, startTimeout}},

	// 201 is active at once (the REST requirements), not waiting.
	{stateRegistering, eventCreated, stateActive, acquired},
	{stateRegistering, eventAccepted, stateWaiting, []action{startActivate}},
	{stateRegistering, eventNotFound, stateRetryingRegister, []action{startRetry}},
	{stateRegistering, eventFailed, stateRetryingRegister, []action{startRetry}},
	{stateRegistering, eventRefused, stateFail, []action{stopTimeout, terminate}},
	// A repeated POST finds its claim: active for a while, or ended.
	{stateRegistering, eventStale, stateConfirming, []action{sendRenew}},
	{stateRegistering, eventOK, stateFail, []action{stopTimeout, terminate}},
	// Wait TTLs are not in the original: a claim that is no longer in the queue is made again.
	{stateRegistering, eventPlaceLost, stateRetryingRegister, []action{forgetClaim, startRetry}},
	// The original ends here. But the POST may have made a claim, and others would wait behind it in vain. Its answer
	// names the claim.
	{stateRegistering, eventSignal, stateRecalling, []action{startEndTimeout}},
	{stateRegistering, eventRelease, stateRecalling, []action{startEndTimeout}},
	{stateRegistering, eventTimeout, stateRecalling, []action{notifyTimeout, startEndTimeout}},

	{stateRetryingRegister, eventRetry, stateRegistering, []action{sendRegister}},
	// As above: a failed POST may have made a claim.
	{stateRetryingRegister, eventSignal, stateRecalling, []action{stopRetry, startEndTimeout, sendRegister}},
	{stateRetryingRegister, eventRelease, stateRecalling, []action{stopRetry, startEndTimeout, sendRegister}},
	{stateRetryingRegister, eventTimeout, stateRecalling, []action{notifyTimeout, stopRetry, startEndTimeout, sendRegister}},

	// Recalling is not in the original.
	{stateRecalling, eventCreated, stateWithdrawing, []action{sendWithdraw}},
	{stateRecalling, eventAccepted, stateWithdrawing, []action{sendWithdraw}},
	{stateRecalling, eventStale, stateWithdrawing, []action{sendWithdraw}},
	{stateRecalling, eventOK, stateDone, []action{stopTimeout}},      // it has ended by itself
	{stateRecalling, eventRefused, stateDone, []action{stopTimeout}}, // it was never made
	{stateRecalling, eventFailed, stateRetryingRecall, []action{startRetry}},
	{stateRecalling, eventSignal, stateDone, []action{dropRequest, stopTimeout}},
	{stateRecalling, eventTimeout, stateDone, []action{dropRequest}},

	{stateRetryingRecall, eventRetry, stateRecalling, []action{sendRegister}},
	{stateRetryingRecall, eventSignal, stateDone, []action{stopRetry, stopTimeout}},
	{stateRetryingRecall, eventTimeout, stateDone, []action{stopRetry}},

	{stateWaiting, eventActivate, stateActivating, []action{sendActivate}},
	{stateWaiting, eventSignal, stateAborting, []action{stopActivate, startEndTimeout, sendAbort}},
	{stateWaiting, eventTimeout, stateWithdrawing, []action{notifyTimeout, stopActivate, startEndTimeout, sendWithdraw}},
	{stateWaiting, eventRelease, stateWithdrawing, []action{stopActivate, startEndTimeout, sendWithdraw}}, // released is for active claims

	{stateActivating, eventOK, stateActive, acquired},
	{stateActivating, eventStale, stateConfirming, []action{sendRenew}}, // active for longer than is known
	{stateActivating, eventConflict, stateWaiting, []action{startActivate}},
	{stateActivating, eventRefused, stateFail, []action{stopTimeout, terminate}},
	{stateActivating, eventPlaceLost, stateRetryingRegister, []action{forgetClaim, startRetry}},
	{stateActivating, eventFailed, stateRetryingActivate, []action{startRetry}},
	{stateActivating, eventSignal, stateAborting, []action{dropRequest, startEndTimeout, sendAbort}}, // the original has "Aborted", and sends: Aborting
	{stateActivating, eventTimeout, stateWithdrawing, []action{notifyTimeout, dropRequest, startEndTimeout, sendWithdraw}},
	{stateActivating, eventRelease, stateWithdrawing, []action{dropRequest, startEndTimeout, sendWithdraw}},

	{stateRetryingActivate, eventRetry, stateActivating, []action{sendActivate}},
	{stateRetryingActivate, eventSignal, stateAborting, []action{stopRetry, startEndTimeout, sendAbort}},
	{stateRetryingActivate, eventTimeout, stateWithdrawing, []action{notifyTimeout, stopRetry, startEndTimeout, sendWithdraw}},
	{stateRetryingActivate, eventRelease, stateWithdrawing, []action{stopRetry, startEndTimeout, sendWithdraw}},

	// Confirming is not in the original: a first renewal, which begins the lease at a moment that
	// is known. Only then the client is notified.
	{stateConfirming, eventOK, stateActive, acquired},
	{stateConfirming, eventStale, stateConfirming, []action{sendRenew}},
	{stateConfirming, eventRefused, stateFail, []action{stopTimeout, terminate}},
	{stateConfirming, eventPlaceLost, stateRetryingRegister, []action{forgetClaim, startRetry}},
	{stateConfirming, eventFailed, stateRetryingConfirm, []action{startRetry}},
	{stateConfirming, eventSignal, stateAborting, []action{dropRequest, startEndTimeout, sendAbort}},
	{stateConfirming, eventTimeout, stateWithdrawing, []action{notifyTimeout, dropRequest, startEndTimeout, sendWithdraw}},
	{stateConfirming, eventRelease, stateWithdrawing, []action{dropRequest, startEndTimeout, sendWithdraw}},

	{stateRetryingConfirm, eventRetry, stateConfirming, []action{sendRenew}},
	{stateRetryingConfirm, eventSignal, stateAborting, []action{stopRetry, startEndTimeout, sendAbort}},
	{stateRetryingConfirm, eventTimeout, stateWithdrawing, []action{notifyTimeout, stopRetry, startEndTimeout, sendWithdraw}},
	{stateRetryingConfirm, eventRelease, stateWithdrawing, []action{stopRetry, startEndTimeout, sendWithdraw}},

	{stateActive, eventRenew, stateRenewing, []action{sendRenew}},
	{stateActive, eventSignal, stateAborting, []action{stopRenew, stopLease, startEndTimeout, sendAbort}},
	{stateActive, eventRelease, stateReleasing, []action{stopRenew, stopLease, startEndTimeout, sendRelease}},
	{stateActive, eventRefresh, stateRenewing, []action{stopRenew, sendRenew}},           // $claim->refresh
	{stateActive, eventLeaseOver, stateLost, []action{stopRenew, notifyLost, terminate}}, // the original trusts the server to say so

	{stateRenewing, eventOK, stateActive, []action{startRenew, startLease}},
	{stateRenewing, eventRefused, stateFail, []action{stopLease, notifyLost, terminate}},
	{stateRenewing, eventFailed, stateRetryingRenew, []action{startRetry}},
	{stateRenewing, eventSignal, stateAborting, []action{dropRequest, stopLease, startEndTimeout, sendAbort}},
	{stateRenewing, eventRelease, stateReleasing, []action{dropRequest, stopLease, startEndTimeout, sendRelease}},
	{stateRenewing, eventLeaseOver, stateLost, []action{dropRequest, notifyLost, terminate}},

	{stateRetryingRenew, eventRetry, stateRenewing, []action{sendRenew}},
	{stateRetryingRenew, eventRefresh, stateRenewing, []action{stopRetry, sendRenew}},
	{stateRetryingRenew, eventSignal, stateAborting, []action{stopRetry, stopLease, startEndTimeout, sendAbort}},
	{stateRetryingRenew, eventRelease, stateReleasing, []action{stopRetry, stopLease, startEndTimeout, sendRelease}},
	{stateRetryingRenew, eventLeaseOver, stateLost, []action{stopRetry, notifyLost, terminate}},

	// The original's rows for the timeout timer need a running timer: it is created when the end of the claim begins.
	// A signal stops that at once, as the original says, and the claim ends with its TTL.
	{stateReleasing, eventNoContent, stateReleased, []action{stopTimeout, notifyReleased}},
	{stateReleasing, eventRefused, stateFail, []action{stopTimeout, terminate}},
	{stateReleasing, eventFailed, stateRetryingRelease, []action{startRetry}},
	{stateReleasing, eventSignal, stateDone, []action{dropRequest, stopTimeout}},
	{stateReleasing, eventTimeout, stateDone, []action{dropRequest}},

	{stateRetryingRelease, eventRetry, stateReleasing, []action{sendRelease}},
	{stateRetryingRelease, eventSignal, stateDone, []action{stopRetry, stopTimeout}},
	{stateRetryingRelease, eventTimeout, stateDone, []action{stopRetry}},

	{stateWithdrawing, eventNoContent, stateWithdrawn, []action{stopTimeout}},
	{stateWithdrawing, eventRefused, stateFail, []action{stopTimeout, terminate}},
	{stateWithdrawing, eventFailed, stateRetryingWithdraw, []action{startRetry}},
	{stateWithdrawing, eventSignal, stateDone, []action{dropRequest, stopTimeout}},
	{stateWithdrawing, eventTimeout, stateDone, []action{dropRequest}},

	{stateRetryingWithdraw, eventRetry, stateWithdrawing, []action{sendWithdraw}},
	{stateRetryingWithdraw, eventSignal, stateDone, []action{stopRetry, stopTimeout}},
	{stateRetryingWithdraw, eventTimeout, stateDone, []action{stopRetry}},

	{stateAborting, eventNoContent, stateAborted, []action{stopTimeout}},
	{stateAborting, eventRefused, stateFail, []action{stopTimeout, terminate}},
	{stateAborting, eventFailed, stateRetryingAbort, []action{startRetry}},
	{stateAborting, eventSignal, stateDone, []action{dropRequest, stopTimeout}},
	{stateAborting, eventTimeout, stateDone, []action{dropRequest}},

	{stateRetryingAbort, eventRetry, stateAborting, []action{sendAbort}},
	{stateRetryingAbort, eventSignal, stateDone, []action{stopRetry, stopTimeout}},
	{stateRetryingAbort, eventTimeout, stateDone, []action{stopRetry}},
}

// acquired are the actions when the claim has become active.
var acquired = []action{stopTimeout, startRenew, startLease, notifyAcquired}

// transitions is the table by state and event.
var transitions = func() map[pair]row {
	rows := make(map[pair]row, len(table))
	for _, r := range table {
		rows[pair{r.from, r.event}] = r
	}
	return rows
}()

// ignored has the events that may come at any time and change nothing, with the reason.
var ignored = ignoring(
	exemption{finals, []event{eventSignal, eventRelease, eventRefresh}, "the claim has ended"},
	exemption{ending, []event{eventRelease, eventRefresh}, "it is being ended already"},
	exemption{beforeActive, []event{eventRefresh}, "there is no lease yet that could be renewed"},
	exemption{[]state{stateRenewing}, []event{eventRefresh}, "a renewal is under way; the worker asks again when it has ended"},
)

var (
	finals       = []state{stateDone, stateFail, stateLost, stateReleased, stateWithdrawn, stateAborted}
	ending       = []state{stateReleasing, stateRetryingRelease, stateWithdrawing, stateRetryingWithdraw, stateAborting, stateRetryingAbort, stateRecalling, stateRetryingRecall}
	beforeActive = []state{stateRegistering, stateRetryingRegister, stateWaiting, stateActivating, stateRetryingActivate, stateConfirming, stateRetryingConfirm}
)

type exemption struct {
	states []state
	events []event
	reason string
}

func ignoring(exemptions ...exemption) map[pair]string {
	reasons := make(map[pair]string)
	for _, x := range exemptions {
		for _, s := range x.states {
			for _, e := range x.events {
				reasons[pair{s, e}] = x.reason
			}
		}
	}
	return reasons
}
