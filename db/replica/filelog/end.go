package filelog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
)

// endName is the file that says how long the log is at least.
const endName = "end"

// end is a place in the log that is known to be durable: the log goes on there, or has no more.
type end struct {
	segment uint64
	offset  uint64
	frame   uint64 // the number of the next frame
	index   uint64 // of the last entry
}

// The file has two places, written in turn: one always holds.
const (
	endPlace = 4096
	endBytes = 8 + 4*8 + 4
)

func (l *Log) readEnd() (e end, err error) {
	f, err := l.disk.Open(endName)
	if errors.Is(err, fs.ErrNotExist) {
		return e, fmt.Errorf("%w: %s is not there: bring it back, or restore a backup", ErrMissing, l.disk.Path(endName))
	} else if err != nil {
		return e, err
	}
	l.endFile = f
	valid, written := false, false
	for place := range int64(2) {
		buf := make([]byte, endBytes)
		if _, err := f.ReadAt(buf, place*endPlace); err != nil && !errors.Is(err, io.EOF) {
			return e, err
		}
		if zeros(buf) {
			continue
		}
		if written = true; crc32.Checksum(buf[:endBytes-4], table) != binary.LittleEndian.Uint32(buf[endBytes-4:]) {
			continue
		}
		n := func(i int) uint64 { return binary.LittleEndian.Uint64(buf[8*i:]) }
		if n(0) >= l.endWrites {
			valid = true
			l.endWrites = n(0)
			e = end{n(1), n(2), n(3), n(4)}
		}
	}
	switch {
	case !written: // a crash has interrupted Create
		return e, fmt.Errorf("%w: %s is empty: bring it back, or restore a backup", ErrMissing, l.disk.Path(endName))
	case !valid:
		return e, fmt.Errorf("%w: %s: bring it back, or restore a backup", ErrDamaged, l.disk.Path(endName))
	}
	return e, nil
}

// SaveEnd records the current length of the log, so that a later Open notices when a part is missing. It waits for the
// disk, but nobody waits for it, and may be called while Append is. Its error is for the log of the server.
func (l *Log) SaveEnd() error {
	l.saving.Lock()
	defer l.saving.Unlock()
	l.mu.Lock()
	e, broken, s := l.durable, l.broken, l.segments[len(l.segments)-1]
	l.mu.Unlock()
	if broken != nil || e == l.saved {
		return broken
	}
	if l.copy {
		if err := s.file.Sync(); err != nil {
			return err
		}
	}
	next := l.endWrites + 1 // until it is written, so that the other place holds
	buf := make([]byte, 0, endBytes)
	for _, n := range []uint64{next, e.segment, e.offset, e.frame, e.index} {
		buf = binary.LittleEndian.AppendUint64(buf, n)
	}
	buf = binary.LittleEndian.AppendUint32(buf, crc32.Checksum(buf, table))
	if _, err := l.endFile.WriteAt(buf, int64(next%2)*endPlace); err != nil {
		return err
	}
	if err := l.endFile.Sync(); err != nil {
		return err
	}
	l.endWrites, l.saved = next, e
	return nil
}
