package db

import (
	"time"

	"github.com/locket-service/locket/claim"
)

// Filter says which claims List returns. A nil or zero field lets every claim pass; a
// bound on a duration leaves out the claims that have no such duration.
type Filter struct {
	Resource, Owner *string
	Mode            *claim.Mode
	Status          claim.Status

	MinActive, MaxActive   *time.Duration
	MinWaiting, MaxWaiting *time.Duration
	// MinTTL and MaxTTL bound the time that an active claim without a session has left.
	MinTTL, MaxTTL         *time.Duration
	MinCreated, MaxCreated *claim.Time

	// After leaves out this claim and those before it.
	After *Cursor
	// Limit is the number of claims to return; Offset are left out before them.
	Limit, Offset int
	// Bytes bounds the memory of the answer, see Budget; 0 is no bound.
	Bytes int
}

// Cursor is a claim's place in the order of List.
type Cursor struct {
	Created claim.Time
	ID      string
}
