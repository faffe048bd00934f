package filelog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/locket-service/locket/db/replica/disk"
)

const (
	// SegmentBytes is how large a segment is, unless one batch needs more.
	SegmentBytes = 8 << 20
	// firstBytes is how large the first one is at most: what begins need not wait for a large one.
	firstBytes = 1 << 20
)

// Options are for tests.
type Options struct {
	// SegmentBytes is how large a segment is; SegmentBytes if it is 0.
	SegmentBytes int
}

// Log is the log of one node. Append, Reset and Close are called by one goroutine; what reads may be called by any,
// beside them, and so may SaveEnd and, by one at a time, Compact.
type Log struct {
	disk disk.Disk
	id   uint64
	size int

	mu       sync.Mutex // guards the following
	segments []*segment
	gone     []*segment // to delete, the oldest first; Compact alone uses them
	entries  []place    // of the entries that are in the log, in order
	before   Entry      // the last one that is not, without its data
	state    HardState
	durable  end
	broken   error

	number     uint64 // of the next frame
	sum        uint32 // of the last one
	buf, frame []byte
	spare      chan spare // the next segment, being made; nil for none

	saving    sync.Mutex // guards the following
	endFile   disk.File
	endWrites uint64
	saved     end
}

// segment is one file of the log.
type segment struct {
	start
	name string
	file disk.File
	size int
	used int // the frames end there
	// last is the last entry that it, or a segment before, has.
	last uint64
}

// place is where an entry is.
type place struct {
	term    uint64
	segment *segment
	offset  int32 // of its frame
	nth     int32 // in the frame
}

type spare struct {
	file disk.File
	size int
	err  error
}

func (l *Log) seed() seed { return seed(l.id ^ l.id>>32) }

// current is the segment that the log is written to.
func (l *Log) current() *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segments[len(l.segments)-1]
}

// State returns the hard state that was appended last.
func (l *Log) State() HardState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// First and Last return the indexes of the first and of the last entry of the log. First is one more than Last if
// it has none.
func (l *Log) First() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.before.Index + 1
}

// Last is described with First.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last()
}

func (l *Log) last() uint64 { return l.before.Index + uint64(len(l.entries)) }

// Bytes returns how much of the log is in use.
func (l *Log) Bytes() (bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		bytes += s.used
	}
	return bytes
}

// Step returns an entry after one, and at most to: the log has some bytes between the two, or not much more.
func (l *Log) Step(after, to uint64, bytes int) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		if s.last <= after {
			continue
		}
		if bytes -= s.used; bytes <= 0 {
			return min(s.last, to)
		}
	}
	return to
}

// Term returns the term of an entry, or of the last one that is no longer in the log.
func (l *Log) Term(index uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case index == l.before.Index:
		return l.before.Term, nil
	case index < l.before.Index || index > l.last():
		return 0, ErrCompacted
	}
	return l.entries[index-l.before.Index-1].term, nil
}

// Entries returns the entries from one index to before another: at least one, and not more than some bytes together. It
// verifies them.
func (l *Log) Entries(from, to uint64, bytes int) (entries []Entry, err error) {
	l.mu.Lock()
	if from <= l.before.Index || to > l.last()+1 || from > to {
		l.mu.Unlock()
		return nil, ErrCompacted
	}
	places := slices.Clone(l.entries[from-l.before.Index-1 : to-l.before.Index-1])
	l.mu.Unlock()
	var b batch
	for i, p := range places {
		if i == 0 || p.segment != places[i-1].segment || p.offset != places[i-1].offset {
			if b, err = l.batchOf(p); err != nil {
				return nil, fmt.Errorf("%w: %s, at %d", err, l.disk.Path(p.segment.name), p.offset)
			}
		}
		if int(p.nth) >= len(b.entries) || b.entries[p.nth].Index != from+uint64(i) {
			return nil, fmt.Errorf("%w: %s, at %d", ErrDamaged, l.disk.Path(p.segment.name), p.offset)
		}
		e := b.entries[p.nth]
		if bytes -= len(e.Data); bytes < 0 && i > 0 {
			break
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// batchOf reads the batch that an entry is in.
func (l *Log) batchOf(p place) (batch, error) {
	buf := make([]byte, min(4096, p.segment.size-int(p.offset)))
	if err := readAll(p.segment.file, buf, int64(p.offset)); err != nil {
		return batch{}, err
	}
	f, is := l.seed().read(buf)
	if n := l.seed().length(buf); is != whole && n > headerBytes {
		buf = make([]byte, min(size(n-headerBytes-1), p.segment.size-int(p.offset)))
		if err := readAll(p.segment.file, buf, int64(p.offset)); err != nil {
			return batch{}, err
		}
		f, is = l.seed().read(buf)
	}
	if is != whole {
		return batch{}, ErrDamaged
	}
	return readBatch(f.payload)
}

// Append writes a hard state and entries, and syncs them: when it returns nil they are durable. Entries replace the log
// from their first index on. It returns ErrFull, or ErrBroken.
func (l *Log) Append(state HardState, entries []Entry) error {
	if l.broken != nil {
		return l.broken
	}
	payload := written(l.buf[:0], (&batch{state, entries}).code)
	l.buf = payload
	after := l.Last()
	if len(entries) > 0 {
		after = min(after, entries[0].Index-1)
	}
	if err := l.reserve(size(len(payload)), after, state); err != nil {
		return err
	}
	return l.write(payload, func(s *segment, offset int) {
		l.state = state
		l.note(s, offset, entries)
	})
}

// entryBytes is how many bytes an entry, or the hard state, takes at most in a batch beside its data.
const entryBytes = 48

// Reserve makes room for an entry with data of some bytes, in an Append of its own, or with others that do not end the
// log before. It returns ErrFull if there is none, or ErrBroken.
func (l *Log) Reserve(bytes int) error {
	if l.broken != nil {
		return l.broken
	}
	return l.reserve(size(bytes+2*entryBytes), l.Last(), l.State())
}

// Fits reports whether there is room for entries with data of some bytes each, without a new segment. It may be called
// beside Append, which may already have written the first of these entries.
func (l *Log) Fits(bytes ...int) bool {
	s := l.current()
	l.mu.Lock()
	defer l.mu.Unlock()
	left := s.size - s.used
	for _, n := range bytes {
		left -= size(n + 2*entryBytes)
	}
	return left >= 0
}

// reserve makes room for a frame of some bytes that follows an entry. A segment has no entries from before its start:
// otherwise the log after Compact would depend on deleted segments.
func (l *Log) reserve(bytes int, after uint64, state HardState) error {
	if s := l.current(); s.used+bytes <= s.size && after >= s.index {
		return nil
	}
	return l.rotate(bytes, after, state)
}

// write writes a frame at the end of the log, and calls done when it is durable.
func (l *Log) write(payload []byte, done func(s *segment, offset int)) error {
	s := l.current()
	f := frame{number: l.number, before: l.sum, payload: payload}
	l.frame = l.seed().append(l.frame[:0], &f)
	_, err := s.file.WriteAt(l.frame, int64(s.used))
	if err == nil {
		err = s.file.Sync()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.broken = fmt.Errorf("%w: %s: %w", ErrBroken, l.disk.Path(s.name), err)
		return l.broken
	}
	offset := s.used
	s.used += len(l.frame)
	l.number, l.sum = l.number+1, f.sum
	done(s, offset)
	s.last = l.last()
	l.durable = end{s.segment, uint64(s.used), l.number, l.last()}
	if l.spare == nil && s.used > s.size/2 {
		l.makeSpare()
	}
	return nil
}

// note notes where entries are.
func (l *Log) note(s *segment, offset int, entries []Entry) {
	if len(entries) == 0 {
		return
	}
	if first := entries[0].Index; first <= l.last() {
		l.entries = l.entries[:first-l.before.Index-1]
	}
	for i, e := range entries {
		l.entries = append(l.entries, place{e.Term, s, int32(offset), int32(i)})
	}
}

// rotate continues in a new segment with room for a frame of some bytes, behind an entry.
func (l *Log) rotate(bytes int, after uint64, state HardState) error {
	next := l.takeSpare(bytes)
	if next.err != nil {
		if disk.NoRoom(next.err) || disk.NoFiles(next.err) {
			return fmt.Errorf("%w: %w", ErrFull, next.err)
		}
		return l.breaks(next.err)
	}
	term, err := l.Term(after)
	if err != nil {
		return err
	}
	return l.begin(next, start{segment: l.current().segment + 1, index: after, term: term, state: state})
}

func (l *Log) breaks(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	return l.broken
}

// begin makes a file of zeros the current segment.
func (l *Log) begin(next spare, s start) error {
	s.id, s.length = l.id, uint64(next.size)
	added := &segment{start: s, name: segmentName(s.segment), file: next.file, size: next.size}
	f := frame{number: l.number, before: l.sum, payload: written(nil, s.code)}
	buf := l.seed().append(nil, &f)
	_, err := next.file.WriteAt(buf, 0)
	if err == nil {
		err = next.file.Sync()
	}
	if err == nil {
		err = l.disk.Rename(spareName, added.name)
	}
	if err == nil {
		err = l.disk.Sync()
	}
	if err != nil {
		return l.breaks(err)
	}
	l.mu.Lock()
	l.number, l.sum = l.number+1, f.sum
	added.used, added.last = len(buf), s.index
	l.follow(added)
	l.state = s.state
	l.durable = end{s.segment, uint64(added.used), l.number, s.index}
	l.mu.Unlock()
	return nil
}

// follow adds a segment. Its start names the entry that it follows: the last one; an earlier one, whose followers then
// do not count; or one that the log does not have, so that the log becomes empty.
func (l *Log) follow(s *segment) {
	known := s.index >= l.before.Index && s.index <= l.last() && (s.index == l.before.Index || l.entries[s.index-l.before.Index-1].term == s.term)
	if len(l.segments) > 0 && known {
		l.entries = l.entries[:s.index-l.before.Index]
	} else {
		for _, old := range l.segments {
			old.last = 0
		}
		l.entries, l.before = nil, Entry{Index: s.index, Term: s.term}
	}
	l.segments = append(l.segments, s)
}

// spareName is the file name of a segment before it is used.
const spareName = "next"

// makeSpare begins to make the next segment, beside everything else.
func (l *Log) makeSpare() {
	l.spare = make(chan spare, 1)
	go func(made chan<- spare) { made <- zeroed(l.disk, l.size) }(l.spare)
}

// takeSpare returns a file of zeros that has room for a frame of some bytes.
func (l *Log) takeSpare(bytes int) spare {
	var next spare
	if l.spare != nil {
		next = <-l.spare
		l.spare = nil
	}
	if needed := bytes + 2*sector; next.err != nil || next.file == nil || next.size < needed {
		if next.file != nil {
			_ = next.file.Close()
		}
		next = zeroed(l.disk, max(l.size, needed))
	}
	return next
}

// blank is written to make a file of zeros.
var blank [1 << 20]byte

// zeroed makes a file of zeros. Files whose blocks were never written are slower to write and to sync.
func zeroed(d disk.Disk, size int) (s spare) {
	f, err := d.Create(spareName)
	if err != nil {
		return spare{err: err}
	}
	for at := 0; at < size && err == nil; at += len(blank) {
		_, err = f.WriteAt(blank[:min(len(blank), size-at)], int64(at))
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return spare{err: errors.Join(err, f.Close(), d.Remove(spareName))}
	}
	return spare{file: f, size: size}
}

// Compact deletes the segments that have no entry after an index, and segments that an earlier call could not delete.
func (l *Log) Compact(index uint64) error {
	l.mu.Lock()
	n := 0
	for n < len(l.segments)-1 && l.segments[n].last <= index {
		n++
	}
	l.gone, l.segments = append(l.gone, l.segments[:n]...), l.segments[n:]
	if first := l.segments[0].start; n > 0 && first.index > l.before.Index {
		l.entries = slices.Clone(l.entries[first.index-l.before.Index:])
		l.before = Entry{Index: first.index, Term: first.term}
	}
	l.mu.Unlock()
	for len(l.gone) > 0 { // one that cannot be deleted stays the first, so that there is never one missing behind it
		s := l.gone[0]
		if err := l.disk.Remove(s.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := l.disk.Sync(); err != nil {
			return err
		}
		l.gone = l.gone[1:]
		if err := s.file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Reset empties the log, except for the hard state: the next entry follows one that is not in it.
func (l *Log) Reset(state HardState, index, term uint64) error {
	if l.broken != nil {
		return l.broken
	}
	next := l.takeSpare(0)
	if next.err != nil {
		return l.breaks(next.err)
	}
	if err := l.begin(next, start{segment: l.current().segment + 1, index: index, term: term, state: state}); err != nil {
		return err
	}
	return l.Compact(0)
}

// Verify returns ErrMissing if a file of the log is no longer in its folder.
func (l *Log) Verify() error {
	needed := l.files()
	there, err := l.disk.List()
	if err != nil {
		return err
	}
	still := l.files() // one that was compacted meanwhile may be gone
	for _, name := range needed {
		if slices.Contains(still, name) && !slices.Contains(there, name) {
			return fmt.Errorf("%w: %s was deleted or moved while the server used it", ErrMissing, l.disk.Path(name))
		}
	}
	return nil
}

// files returns the names of the files that Open needs.
func (l *Log) files() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := []string{endName}
	for _, s := range l.segments {
		names = append(names, s.name)
	}
	return names
}

// Close notes the end of the log, and closes its files.
func (l *Log) Close() error {
	errs := []error{l.SaveEnd()}
	if l.spare != nil {
		if s := <-l.spare; s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	for _, s := range slices.Concat(l.gone, l.segments) {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(append(errs, l.endFile.Close())...)
}
