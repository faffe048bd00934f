// Package wal is the log of a node: entries of Raft, and its hard state, in files that are written and synced before
// anything in them counts.
//
// The log is a list of segments, each a file of zeros that is filled from its begin. Each Append is one frame: one
// write, and one sync. A frame has a checksum of its own, one of its header, a number, and the checksum of the frame
// before. So what a power cut leaves of the last write can be told from what a disk has lost or changed:
//
//   - A disk writes a sector of 512 bytes wholly or not at all. A frame begins where none of its header is in another
//     sector, and ends with a byte that is not 0. So a sector of it that was not written is all zeros.
//   - A frame that is damaged and has no such sector was written, and has changed since: the log is refused.
//   - So it is when a frame stands behind a damaged one, which had been synced then, and when the damaged one stands
//     before the end that the file "end" says: there the log was at least that long, some time ago.
//
// What is left of a frame that was not wholly written was never acknowledged: Open deletes it. It also writes anew what
// stands behind the end that is known to be durable, because it may be in the memory of the machine alone.
package wal

import "errors"

var (
	// ErrDamaged is returned by Open, and by what reads, for a log that has changed since it was written.
	ErrDamaged = errors.New("the log is damaged")
	// ErrMissing is returned by Open when a file is missing, or a part of one.
	ErrMissing = errors.New("a part of the log is missing")
	// ErrAlien is returned by Open for a file that is not of this log.
	ErrAlien = errors.New("the file does not belong to this log")
	// ErrFull is returned by Append when there is no room for the log to grow, or no more files may be opened. Nothing was written.
	ErrFull = errors.New("the log cannot grow")
	// ErrBroken is returned by Append after a write that has failed, and by that one: whether it was done is not
	// known. There is no other write.
	ErrBroken = errors.New("writing the log has failed")
	// ErrCompacted is returned for entries that are no longer in the log.
	ErrCompacted = errors.New("the entries are no longer in the log")
)
