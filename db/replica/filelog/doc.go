// Package filelog is the log of one server: records in files, each written and synced before anything in it counts.
//
// The log is a list of segments, each a file of zeros that is filled from its begin. Each Append is one frame: one
// write, and one sync. A frame has a checksum of its own, one of its header, a number, and the checksum of the frame
// before. So the remains of a write cut off by a power cut can be told from damage by the disk:
//
//   - A disk writes a sector of 512 bytes wholly or not at all. A frame begins where none of its header is in another
//     sector, and ends with a byte that is not 0. So a sector of it that was not written is all zeros.
//   - A frame that is damaged and has no such sector was written, and has changed since: the log is refused.
//   - The same holds if another frame follows a damaged one, since the damaged one had been synced by then, and if the
//     damaged one is before the end recorded in the file "end", since the log was once at least that long.
//
// A partly written frame was never acknowledged: Open deletes it. It also rewrites frames behind the end that is known
// to be durable, because they may be in the memory of the machine alone.
package filelog

import "errors"

var (
	// ErrDamaged is returned by Open, and by reads, for a log that has changed since it was written.
	ErrDamaged = errors.New("the log is damaged")
	// ErrMissing is returned by Open when a file is missing, or a part of one.
	ErrMissing = errors.New("a part of the log is missing")
	// ErrAlien is returned by Open for a file that is not of this log.
	ErrAlien = errors.New("the file does not belong to this log")
	// ErrFull is returned by Append when there is no room for the log to grow, or no more files may be opened. Nothing was written.
	ErrFull = errors.New("the log cannot grow")
	// ErrBroken is returned by Append when a write fails, and from then on: whether that write was done is not known.
	// There is no other write.
	ErrBroken = errors.New("writing the log has failed")
	// ErrCompacted is returned for entries that are no longer in the log.
	ErrCompacted = errors.New("the entries are no longer in the log")
)
