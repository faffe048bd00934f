package filelog

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/locket-service/locket/db/replica/disk"
)

const suffix = ".log"

func segmentName(number uint64) string { return fmt.Sprintf("%016x%s", number, suffix) }

// Create makes a new log with an id, on a disk without files. Its first entry will follow the one with an index, which
// is 0 where nothing comes before the log.
func Create(d disk.Disk, id, index uint64, o Options) (*Log, error) {
	l := newLog(d, id, o)
	first := zeroed(d, min(l.size, firstBytes))
	if first.err != nil {
		return nil, first.err
	}
	l.before = index
	if err := l.begin(first, start{segment: 1, index: index}); err != nil {
		return nil, err
	}
	f, err := d.Create(endName)
	if err != nil {
		return nil, err
	}
	l.endFile = f
	if _, err := f.WriteAt(make([]byte, endPlace+endBytes), 0); err != nil {
		return nil, err
	}
	if err := l.SaveEnd(); err != nil {
		return nil, err
	}
	return l, d.Sync()
}

func newLog(d disk.Disk, id uint64, o Options) *Log {
	l := &Log{disk: d, id: id, size: o.SegmentBytes, copy: o.Copy, number: 1}
	if l.size == 0 {
		l.size = SegmentBytes
	}
	return l
}

// Open opens the log with an id. Its last entry must be the one with the index least, or one behind it. It returns
// ErrDamaged, ErrMissing or ErrAlien, with the name of the file.
func Open(d disk.Disk, id, least uint64, o Options) (_ *Log, err error) {
	l := newLog(d, id, o)
	known, err := l.readEnd()
	if err != nil {
		return nil, err
	}
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if err := l.read(name, i == len(names)-1, known); err != nil {
			return nil, err
		}
	}
	if len(l.segments) == 0 {
		return nil, fmt.Errorf("%w: there is no segment in %s: restore a backup", ErrMissing, d.Path(""))
	}
	s := l.current()
	if s.segment < known.segment || l.number < known.frame || l.last() < least {
		return nil, fmt.Errorf("%w: the log ends at entry %d, in %s, and was longer: it had entry %d; restore a backup",
			ErrMissing, l.last(), d.Path(s.name), max(known.index, least))
	}
	if err := l.renew(known); err != nil {
		return nil, err
	}
	l.durable = end{s.segment, uint64(s.used), l.number, l.last()}
	return l, l.SaveEnd()
}

// names returns the names of the segments in order. None may be missing between them, and no other file may be there.
func (l *Log) names() (names []string, err error) {
	all, err := l.disk.List()
	if err != nil {
		return nil, err
	}
	var last uint64
	for _, name := range all {
		switch name {
		case endName:
			continue
		case spareName: // it was never used
			if err := l.disk.Remove(name); err != nil {
				return nil, err
			}
			continue
		}
		hex, is := strings.CutSuffix(name, suffix)
		number, err := strconv.ParseUint(hex, 16, 64)
		if !is || err != nil || segmentName(number) != name {
			return nil, fmt.Errorf("%w: %s: take it away", ErrAlien, l.disk.Path(name))
		}
		if last != 0 && number != last+1 {
			return nil, fmt.Errorf("%w: %s is not there: bring it back, or restore a backup", ErrMissing, l.disk.Path(segmentName(last+1)))
		}
		names, last = append(names, name), number
	}
	return names, nil
}

// read reads the next segment.
func (l *Log) read(name string, last bool, known end) error {
	f, buf, err := l.content(name)
	if err != nil {
		return err
	}
	s := &segment{name: name, file: f, size: len(buf)}
	fault := func(err error, what string) error {
		return fmt.Errorf("%w: %s, at byte %d: %s; restore a backup", err, l.disk.Path(name), s.used, what)
	}
	first := true
	for {
		frame, whole := l.seed().read(buf[s.used:])
		if !whole {
			break
		}
		if follows := frame.before == l.sum && frame.number == l.number; !follows && (!first || len(l.segments) > 0) {
			return fault(ErrMissing, fmt.Sprintf("frame %d does not follow frame %d", frame.number, l.number-1))
		}
		if first {
			err = l.enter(s, frame)
		} else {
			err = l.replay(s, frame)
		}
		if err != nil {
			return fault(err, "its content is wrong")
		}
		first = false
		s.used += size(len(frame.payload))
		s.last = l.last()
		l.number, l.sum = frame.number+1, frame.sum
	}
	switch {
	case first:
		return fault(ErrDamaged, "it does not begin as a segment of this log does")
	case s.length != uint64(len(buf)):
		return fault(ErrMissing, fmt.Sprintf("the file has %d bytes, and had %d", len(buf), s.length))
	case zeros(buf[s.used:]):
		return nil
	case l.copy && last && l.number >= known.frame: // it was not synced
		return nil
	case !last, !l.seed().torn(buf, s.used):
		return fault(ErrDamaged, "what stands there has changed")
	}
	return nil
}

// content opens a file and returns all that is in it.
func (l *Log) content(name string) (disk.File, []byte, error) {
	f, err := l.disk.Open(name)
	if err != nil {
		return nil, nil, err
	}
	length, err := f.Size()
	if err != nil {
		return nil, nil, err
	}
	buf := make([]byte, length)
	return f, buf, readAll(f, buf, 0)
}

// torn reports whether the rest of a segment, behind its frames, remains from one unfinished write.
func (s seed) torn(buf []byte, at int) bool {
	for next := at + align; next+headerBytes <= len(buf); next += align {
		if _, whole := s.read(buf[next:]); whole {
			return false // it was written when the one before had been synced
		}
	}
	if zeros(buf[at : at+headerBytes]) {
		return true
	}
	return s.length(buf[at:]) > headerBytes && at+s.length(buf[at:]) <= len(buf) && s.unwritten(buf, at)
}

// enter takes up a segment.
func (l *Log) enter(s *segment, f frame) (err error) {
	if s.start, err = readStart(f.payload); err != nil {
		return err
	}
	if s.id != l.id || segmentName(s.segment) != s.name {
		return ErrAlien
	}
	switch {
	case len(l.segments) == 0:
		l.before = s.index
	case s.index != l.last():
		return ErrMissing
	}
	l.segments = append(l.segments, s)
	return nil
}

// replay takes up what one Append wrote.
func (l *Log) replay(s *segment, f frame) error {
	_, err := readEntry(f.payload)
	if err == nil {
		l.entries = append(l.entries, place{s, s.used})
	}
	return err
}

// renew rewrites everything behind the end that is known to be durable, and zeros behind the log: it may be in memory
// only, because a sync has failed, or remain from an unfinished write.
func (l *Log) renew(known end) error {
	for _, s := range l.segments {
		from := 0
		switch {
		case s.segment < known.segment:
			continue
		case s.segment == known.segment:
			from = int(known.offset)
		}
		buf := make([]byte, s.size-from)
		if err := readAll(s.file, buf, int64(from)); err != nil {
			return err
		}
		if used := s.used - from; zeros(buf[used:]) {
			buf = buf[:used]
		} else {
			clear(buf[used:])
		}
		if _, err := s.file.WriteAt(buf, int64(from)); err != nil {
			return err
		}
		if err := s.file.Sync(); err != nil {
			return err
		}
	}
	return l.disk.Sync()
}

// readAll fills a buffer.
func readAll(f disk.File, buf []byte, at int64) error {
	n, err := f.ReadAt(buf, at)
	if n == len(buf) || errors.Is(err, io.EOF) && n == len(buf) {
		return nil
	}
	return err
}
