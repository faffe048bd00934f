package db

import (
	"context"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	// AnnounceInterval is how often a server announces itself.
	AnnounceInterval = 10 * time.Second
	// MemberAge is for how long after its last announcement a server is still known.
	MemberAge = 5 * time.Minute
)

// Member is a server of a database.
type Member struct {
	// Name identifies the server process. No other process has had the same one.
	Name          string
	Host, Version string
	// Started is when it was started, by its own clock, and Seen when it last announced itself, by the database's.
	Started, Seen claim.Time
}

// Members are the servers that share a database. Nothing but the answer about the service's status depends on them.
type Members interface {
	// Announce notes that a server is there now, or forgets it if it leaves, and forgets the servers that were last
	// announced longer than MemberAge ago.
	Announce(ctx context.Context, m Member, leaves bool) error

	// Members returns the servers in the order of their names (as bytes).
	Members(ctx context.Context) ([]Member, claim.Instant, error)
}
