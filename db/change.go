package db

import "github.com/locket-service/locket/internal/claim"

// OnlyEnds reports whether a change does no more to a stored claim than to end it: beside
// Status, Version, Finished, Reason and EndedBy nothing differs. Most of what a busy server writes
// is of this kind, and engines have a cheaper statement for it.
func OnlyEnds(change claim.Transition) bool {
	before, after := change.Before, change.After
	return before != nil && after.Status.Final() &&
		before.Token == after.Token && before.Activated == after.Activated && before.Deadline == after.Deadline &&
		before.TTL == after.TTL && before.Type == after.Type && !change.SetsValue()
}
