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

// Options may be the zero value.
type Options struct {
	// SegmentBytes is how large a segment is; SegmentBytes if it is 0. It is for tests.
	SegmentBytes int
	// Copy says that somebody else has the entries too: Append does not sync, SaveEnd does, and Open drops what was not
	// written whole since then.
	Copy bool
}

// Log is the log of one server. Append and Close are called by one goroutine; what reads may be called by any, beside
// them, and so may SaveEnd and, by one at a time, Compact.
type Log struct {
	disk disk.Disk
	id   uint64
	size int
	copy bool

	mu       sync.Mutex // guards the following
	segments []*segment
	gone     []*segment // to delete, the oldest first; Compact alone uses them
	entries  []place    // of the entries that are in the log, in order
	before   uint64     // the index of the last one that is not
	durable  end        // or written, of a copy
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
	segment *segment
	offset  int // of its frame
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

// First and Last return the indexes of the first and of the last entry of the log. First is one more than Last if
// it has none.
func (l *Log) First() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.before + 1
}

// Last is described with First.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last()
}

func (l *Log) last() uint64 { return l.before + uint64(len(l.entries)) }

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

// Entries returns the data of the entries from one index to before another: at least one, and not more than some bytes
// together. It verifies them.
func (l *Log) Entries(from, to uint64, bytes int) (entries [][]byte, err error) {
	l.mu.Lock()
	if from <= l.before || to > l.last()+1 || from > to {
		l.mu.Unlock()
		return nil, ErrCompacted
	}
	places := slices.Clone(l.entries[from-l.before-1 : to-l.before-1])
	l.mu.Unlock()
	for i, p := range places {
		data, err := l.entry(p)
		if err != nil {
			return nil, fmt.Errorf("%w: %s, at %d", err, l.disk.Path(p.segment.name), p.offset)
		}
		if bytes -= len(data); bytes < 0 && i > 0 {
			break
		}
		entries = append(entries, data)
	}
	return entries, nil
}

// entry reads the data of an entry.
func (l *Log) entry(p place) ([]byte, error) {
	buf := make([]byte, min(4096, p.segment.size-p.offset))
	if err := readAll(p.segment.file, buf, int64(p.offset)); err != nil {
		return nil, err
	}
	f, whole := l.seed().read(buf)
	if n := l.seed().length(buf); !whole && n > headerBytes {
		buf = make([]byte, min(size(n-headerBytes-1), p.segment.size-p.offset))
		if err := readAll(p.segment.file, buf, int64(p.offset)); err != nil {
			return nil, err
		}
		f, whole = l.seed().read(buf)
	}
	if !whole {
		return nil, ErrDamaged
	}
	return readEntry(f.payload)
}

// Append writes an entry behind the last one, and syncs it: when it returns nil the entry is durable. It returns
// ErrFull, or ErrBroken.
func (l *Log) Append(data []byte) error {
	if err := l.Reserve(len(data)); err != nil {
		return err
	}
	l.buf = append(append(l.buf[:0], kindEntry), data...)
	return l.write(l.buf, func(s *segment, offset int) { l.entries = append(l.entries, place{s, offset}) })
}

// entryBytes is how many bytes an entry takes in a frame beside its data.
const entryBytes = 1

// Reserve makes room for an entry with data of some bytes. It returns ErrFull if there is none, or ErrBroken.
func (l *Log) Reserve(bytes int) error {
	if l.broken != nil {
		return l.broken
	}
	bytes = size(bytes + entryBytes)
	if s := l.current(); s.used+bytes <= s.size {
		return nil
	}
	return l.rotate(bytes)
}

// Fits reports whether there is room for entries with data of some bytes each, without a new segment. It may be called
// beside Append, which may already have written the first of these entries.
func (l *Log) Fits(bytes ...int) bool {
	s := l.current()
	l.mu.Lock()
	defer l.mu.Unlock()
	left := s.size - s.used
	for _, n := range bytes {
		left -= size(n + entryBytes)
	}
	return left >= 0
}

// write writes a frame at the end of the log, and calls done when it is durable.
func (l *Log) write(payload []byte, done func(s *segment, offset int)) error {
	s := l.current()
	f := frame{number: l.number, before: l.sum, payload: payload}
	l.frame = l.seed().append(l.frame[:0], &f)
	_, err := s.file.WriteAt(l.frame, int64(s.used))
	if err == nil && !l.copy {
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

// rotate continues in a new segment with room for a frame of some bytes.
func (l *Log) rotate(bytes int) error {
	next := l.takeSpare(bytes)
	if next.err != nil {
		if disk.NoRoom(next.err) || disk.NoFiles(next.err) {
			return fmt.Errorf("%w: %w", ErrFull, next.err)
		}
		return l.breaks(next.err)
	}
	if l.copy {
		if err := l.current().file.Sync(); err != nil {
			return l.breaks(err)
		}
	}
	return l.begin(next, start{segment: l.current().segment + 1, index: l.Last()})
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
	f := frame{number: l.number, before: l.sum, payload: s.payload()}
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
	l.segments = append(l.segments, added)
	l.durable = end{s.segment, uint64(added.used), l.number, s.index}
	l.mu.Unlock()
	return nil
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
	if first := l.segments[0].index; first > l.before {
		l.entries = slices.Clone(l.entries[first-l.before:])
		l.before = first
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
