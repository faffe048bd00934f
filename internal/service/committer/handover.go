package committer

import (
	"slices"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// observeHandovers observes the time from the end of a holder to the grant of a claim that waited for it, for each
// such claim of a transaction with this start and end.
func (m *Metrics) observeHandovers(outcome db.Outcome, batch []*request, begin, end time.Time) {
	if !slices.ContainsFunc(outcome.Changes, grantsWaiter) {
		return
	}
	came := make(map[string]time.Time) // when the request came that ended a claim, by its id
	for _, r := range batch {
		if c := &r.result.Claim; r.err == nil && c.Status.Final() {
			came[c.ID] = r.queued
		}
	}
	ended := make(map[string]claim.Transition) // the end of a holder of each resource
	for _, change := range outcome.Changes {
		if endsHolder(change) {
			ended[change.After.Resource] = change
		}
	}
	for _, change := range outcome.Changes {
		if last := ended[change.After.Resource]; last.After != nil && grantsWaiter(change) {
			m.handedOver[last.After.Status].Observe(sinceEnd(last, outcome.Now, came, begin, end).Seconds())
		}
	}
}

func grantsWaiter(t claim.Transition) bool { return t.StoppedWaiting() && t.After.Token != 0 }

func endsHolder(t claim.Transition) bool {
	return t.Before != nil && t.Before.Status == claim.Active && t.After.Status.Final()
}

// sinceEnd returns how long before the end of a transaction a holder ended in it. A holder's end is the end of its
// lease, or the arrival of the request that ended it. If many claims end together, it is the start of the
// transaction.
func sinceEnd(t claim.Transition, now claim.Instant, came map[string]time.Time, begin, end time.Time) time.Duration {
	at, known := came[t.After.ID]
	switch {
	case t.After.Status == claim.Expired && t.Before.Deadline != claim.Forever:
		return now.Lease.Sub(t.Before.Deadline) + end.Sub(begin)
	case known:
		return end.Sub(at)
	default:
		return end.Sub(begin)
	}
}
