// Package backup, for this module only, defines the contents of a store as a stream (Sink), and the readers and writers of such streams:
// backup files, the check that finds inconsistencies, and the changes that a restore makes. An engine writes its
// contents into a Sink, and is filled through one.
package backup

import (
	"errors"

	"github.com/locket-service/locket/internal/rules/claim"
)

var (
	// ErrAlien is returned for a file that is not a backup.
	ErrAlien = errors.New("the file is not a backup of Locket; give one that `locket backup` has written")
	// ErrVersion is returned, wrapped, for a backup of another version of the format.
	ErrVersion = errors.New("the backup has another format; read it with the locket that has written it")
	// ErrDamaged is returned for a backup that has changed since it was written, or that ends early.
	ErrDamaged = errors.New("the backup is damaged; use another one")
	// ErrNotEmpty is returned for a restore into a store that is not empty.
	ErrNotEmpty = errors.New("there is something already; restore into an empty place")
	// ErrHalfRestored is returned when the store to open has an incomplete restore.
	ErrHalfRestored = errors.New("a restore into it has not ended; run it again")
	// ErrBusy is returned when a store changes too fast to be read at one position.
	ErrBusy = errors.New("the store has changed again and again while it was read; try again")
)

// Head is the metadata of a store at one position.
type Head struct {
	// Engine is the name of the engine.
	Engine string
	// Taken is the time of the position by the clock of the store.
	Taken claim.Time
	// Lease is lease time.
	Lease claim.Time
	// Floor is a version that every new row of a resource is above.
	Floor uint64
	// Quarantine is the lease time before the first grant, 0 for none.
	Quarantine claim.Time
}

// Row is the row of a resource.
type Row struct {
	claim.Row
	// Counted says that Holder, Shared and Waiting are stored. Otherwise they follow from the claims, and are not set.
	Counted bool
}

// Server is one that vouches for sessions.
type Server struct {
	Name string
	// Seen is the lease time when it was last there.
	Seen claim.Time
}

// Sink receives the contents of a store at one position, in this order of calls: Begin, the live claims by id, the sessions by
// id, the servers by name, the rows of resources by name, and End. Claims that have ended come in any order, anywhere between
// Begin and End. A sink must not change its arguments, nor use them after the call. After an error no method is called.
type Sink interface {
	Begin(head Head) error
	Claim(c *claim.Claim) error
	Session(s *claim.Session) error
	Server(s Server) error
	Row(r Row) error
	Ended(c *claim.Claim) error
	// End completes the stream, with the final head: Floor and Quarantine may be higher than at Begin.
	End(head Head) error
}

// Inspector is a Sink that also receives problems in the engine's own storage, for example in its indexes.
type Inspector interface {
	Sink
	Problem(text string)
}
