package state

import (
	"slices"
	"strings"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Passes reports whether a claim passes a filter, apart from its limits.
func Passes(f *db.Filter, c *claim.Claim, now claim.Instant) bool {
	active, was := c.ActiveDuration(now)
	return (f.Resource == nil || *f.Resource == c.Resource) &&
		strings.HasPrefix(c.Resource, f.Prefix) &&
		(f.Owner == nil || *f.Owner == c.Owner) &&
		(f.Units == nil || *f.Units == c.Units) &&
		(len(f.Statuses) == 0 || slices.Contains(f.Statuses, c.Status)) &&
		within(active, was, f.MinActive, f.MaxActive) &&
		within(c.WaitingDuration(now), true, f.MinWaiting, f.MaxWaiting) &&
		within(c.Deadline.Sub(now.Lease), c.Status == claim.Active && c.Session == "", f.MinTTL, f.MaxTTL) &&
		(f.MinCreated == nil || c.Created >= *f.MinCreated) &&
		(f.MaxCreated == nil || c.Created <= *f.MaxCreated) &&
		(f.After == nil || Before(f, f.After.Created, f.After.ID, c.Created, c.ID))
}

// within reports whether a duration is within bounds. What is negative counts as 0.
func within(d time.Duration, has bool, lower, upper *time.Duration) bool {
	d = max(0, d).Truncate(time.Microsecond)
	return (lower == nil || has && d >= lower.Truncate(time.Microsecond)) && (upper == nil || has && d <= upper.Truncate(time.Microsecond))
}

// Before reports whether one place comes before another in the order of a list.
func Before(f *db.Filter, created claim.Time, id string, otherCreated claim.Time, otherID string) bool {
	if f.Newest {
		created, id, otherCreated, otherID = otherCreated, otherID, created, id
	}
	return created < otherCreated || created == otherCreated && id < otherID
}
