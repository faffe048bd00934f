package db

import "github.com/locket-service/locket/internal/rules/claim"

// OnlyEnds reports whether a change only ends a stored claim: only Status, Version, Finished,
// Reason and EndedBy differ. Most writes of a busy server are of this kind, and engines have a
// cheaper statement for it.
func OnlyEnds(change claim.Transition) bool {
	before, after := change.Before, change.After
	return before != nil && after.Status.Final() &&
		before.Token == after.Token && before.Activated == after.Activated && before.Deadline == after.Deadline &&
		before.TTL == after.TTL && before.Type == after.Type && !change.SetsValue()
}
