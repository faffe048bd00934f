// Package record has the one format for the changes of a commit: in the log, and in snapshots of the state, whose
// records make everything anew. It also has the formats of a batch sent to the decider, and of its outcome.
//
// A record holds effects, not commands: the decider has carried out the commands, and every server applies their effects
// to its state. So servers that apply the same records have the same state.
package record

import (
	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Version is the first byte of every record, batch and outcome.
const Version = 1

// Format is the highest format that this locket knows. It counts for everything that the servers of a cluster exchange and keep. The number
// rises when anything new is written that an older locket cannot read. The servers use a format once a record has it.
const Format = 1

// ErrFormat is returned for anything that is no record, batch or outcome of this version.
var ErrFormat = codec.ErrFormat

// Header says when a record was decided.
type Header struct {
	// Wall is the time on the clock of the server that decided. It is a label: nothing depends on it.
	Wall claim.Time
	// Lease is lease time (claim.Instant), which only rises.
	Lease claim.Time
}

// Record has the changes of one commit.
type Record struct {
	Header
	// Claims are the changes of claims, in order.
	Claims []claim.Transition
	// Sessions are the changes of sessions, each of another one.
	Sessions []claim.SessionChange
	// Servers are servers that have registered, or are gone.
	Servers []Server
	// Rows are rows of resources. In the log they are the dropped ones: all others follow from the claims.
	Rows []Row
	// Floor is a version that every new row of a resource is above; 0 changes nothing.
	Floor uint64
	// Quarantine is the lease time before the first grant; 0 changes nothing.
	Quarantine claim.Time
	// Batches are batches of servers that do not decide: in the log the batches that the record carries out, one after the
	// other, and in a snapshot the last one of each server.
	Batches []Batch
	// Cuts delete claims from the history; in a snapshot all of them.
	Cuts []Cut
	// Sums are checksums of the state before the record; nil for none.
	Sums Sums
	// Format is the format that the servers use from this record on; 0 changes nothing.
	Format uint64
}

// Batch is a batch of a server that does not decide.
type Batch struct {
	Origin
	// Claims is how many of the record's Claims the batch has made, after the claims of the batches before it. What follows them
	// is the decider's own.
	Claims int
	// Outcome is the output of WriteOutcome.
	Outcome []byte
}

// Server is a server that keeps sessions alive.
type Server struct {
	Name string
	// Seen is the lease time when it was last there.
	Seen claim.Time
	// Gone says that it was declared gone: it keeps no session alive any more.
	Gone bool
}

// Row is the row of a resource. If it was dropped, the floor rises to its version.
type Row struct {
	Name    string
	Version uint64
	Dropped bool
}

// Decoded is a decoded record. It has only the changes of claims that existed before.
type Decoded struct {
	Header
	Claims   []codec.Patch
	Sessions []Session
	Servers  []Server
	Rows     []Row
	Floor    uint64
	// Quarantine is the Record's.
	Quarantine claim.Time
	Batches    []Batch
	Cuts       []Cut
	Sums       Sums
	Format     uint64
}

// Session is a record's change of one session.
type Session struct {
	ID string
	// Version and Attached are the session's new ones, the only things that have changed if neither Put nor Ended is set.
	Version  uint64
	Attached claim.Time
	// Put is the new state of the session.
	Put *claim.Session
	// Ended says that the session no longer exists.
	Ended bool
}

// Renew changes a session as a record says that has neither Put nor Ended.
func (s *Session) Renew(known *claim.Session) {
	known.Version, known.Attached = s.Version, max(known.Attached, s.Attached)
}

// Merge joins the making of a claim with its grant in the same step to one transition. It may reuse the slice.
func Merge(transitions []claim.Transition) []claim.Transition {
	merged := make([]claim.Transition, 0, len(transitions))
	for _, t := range transitions {
		if n := len(merged); n > 0 && merged[n-1].Before == nil && merged[n-1].After == t.Before && t.After.Status == claim.Active && t.Before.Status == claim.Waiting {
			merged[n-1].After = t.After
			continue
		}
		merged = append(merged, t)
	}
	return merged
}
