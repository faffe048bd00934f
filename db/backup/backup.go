// Package backup has what a store holds as a stream, and who reads and writes such streams: files, which
// are backups, the check that finds what does not agree, and what a restore changes. The engines write what they hold
// into a Sink, and are filled through one.
package backup

import (
	"errors"

	"github.com/locket-service/locket/internal/claim"
)

var (
	// ErrAlien is returned for a file that is no backup.
	ErrAlien = errors.New("the file is not a backup of Locket; give one that `locket backup` has written")
	// ErrNewer is returned for a backup that a newer Locket has written.
	ErrNewer = errors.New("the backup is of a newer Locket than this one; use that version to read it")
	// ErrDamaged is returned for a backup that has changed since it was written, or that ends early.
	ErrDamaged = errors.New("the backup is damaged; use another one")
	// ErrNotEmpty is returned for a restore into what holds something already.
	ErrNotEmpty = errors.New("there is something already; restore into an empty place")
	// ErrHalfRestored is returned by what opens a store that a restore has not finished.
	ErrHalfRestored = errors.New("a restore into it has not ended; run it again")
	// ErrBusy is returned when a store changes too fast to be read at one position.
	ErrBusy = errors.New("the store has changed again and again while it was read; try again")
)

// Head is what a store is as a whole at one position.
type Head struct {
	// Engine is the name of the engine.
	Engine string
	// Taken is the time of the position by the clock of the store.
	Taken claim.Time
	// Lease is lease time.
	Lease claim.Time
	// Floor is a version that every new row of a resource is above.
	Floor uint64
	// Quarantine is the lease time before which nobody is granted anything, 0 for none.
	Quarantine claim.Time
}

// Row is the row of a resource.
type Row struct {
	claim.Row
	// Counted says that Holder, Shared and Waiting are stored. Else they follow from the claims, and are not set.
	Counted bool
}

// Server is one that vouches for sessions.
type Server struct {
	Name string
	// Seen is the lease time at which it was there last.
	Seen claim.Time
}

// Sink takes what a store holds at one position: Begin, the live claims by id, the sessions by id, the servers by name, the
// rows of resources by name, and End. Claims that have ended come in any order, anywhere between the two. What is given to a sink
// must not change, and is not used after the call. After an error nothing more is called.
type Sink interface {
	Begin(head Head) error
	Claim(c *claim.Claim) error
	Session(s *claim.Session) error
	Server(s Server) error
	Row(r Row) error
	Ended(c *claim.Claim) error
	// End says that this is all, with the head as it counts: Begin may have had a lower Floor and Quarantine.
	End(head Head) error
}

// Inspector is a Sink that is also told what is wrong in how an engine stores what it holds: in its indexes, for instance.
type Inspector interface {
	Sink
	Problem(text string)
}
