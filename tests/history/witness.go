package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/locket-service/locket/internal/rules/claim"
)

// event is one change of a claim, with the version that it gave it.
type event struct {
	version uint64
	claim   *claim.Claim // the stored claim
	// before and after are its status; before is 0 for a new claim, and both are the same for a
	// renewal that a client has seen.
	before, after claim.Status
}

func (e event) String() string {
	return fmt.Sprintf("version %d: claim %s of %q (%s) from %s to %s", e.version, e.claim.ID, e.claim.Owner+e.claim.Session, e.claim.Units, e.before, e.after)
}

// changes returns how the status of a claim changed, by the versions that are stored.
func changes(c *claim.Claim) []event {
	all := []event{{version: c.Enqueued, claim: c, after: claim.Waiting}}
	if c.Token != 0 {
		all = append(all, event{version: c.Token, claim: c, before: claim.Waiting, after: claim.Active})
	}
	if c.Status.Final() {
		all = append(all, event{version: c.Version, claim: c, before: all[len(all)-1].after, after: c.Status})
	}
	return all
}

// witness returns the changes of status of each resource, in the order of its versions.
func witness(stored []claim.Claim) (map[string][]event, error) {
	byResource := make(map[string][]event)
	for i := range stored {
		c := &stored[i]
		byResource[c.Resource] = append(byResource[c.Resource], changes(c)...)
	}
	for _, events := range byResource {
		if err := sortEvents(events); err != nil {
			return nil, err
		}
	}
	return byResource, nil
}

func sortEvents(events []event) error {
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.version, b.version) })
	for i := 1; i < len(events); i++ {
		if events[i].version == events[i-1].version {
			return fmt.Errorf("two changes of %q have one version: %v; %v", events[i].claim.Resource, events[i-1], events[i])
		}
	}
	return nil
}

// renewals returns the versions that answers show and that are no changes of status: renewals.
func renewals(events []event, ops []*placed) (all []event) {
	known := make(map[uint64]bool, len(events))
	claims, grants := make(map[string]*claim.Claim, len(events)), make(map[uint64]*claim.Claim, len(events))
	for _, e := range events {
		known[e.version], claims[e.claim.ID], grants[e.claim.Token] = true, e.claim, e.claim
	}
	for _, op := range ops {
		c := claims[op.ID]
		if op.ID == "" && op.Token != 0 {
			c = grants[op.Token]
		}
		if op.Version == 0 || known[op.Version] || c == nil {
			continue
		}
		known[op.Version] = true
		status := claim.Active
		if c.Token == 0 || op.Version < c.Token {
			status = claim.Waiting
		}
		all = append(all, event{op.Version, c, status, status})
	}
	return all
}
