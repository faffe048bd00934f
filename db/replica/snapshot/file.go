// Package snapshot stores the live state after an entry of the log, so that the entries up to there are not needed. A
// snapshot is a file of records that make everything anew: claims by id, then sessions, servers and rows of resources,
// each by name, then the last batch of each server that does not decide. The next snapshot is made from it and the entries
// since, file to file: that does not involve or delay the state in memory.
package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/record"
)

var (
	// ErrDamaged is returned for a file that has changed since it was written.
	ErrDamaged = errors.New("the snapshot is damaged")
	// ErrAlien is returned for a file that is not a snapshot of this log, or of another version of Locket.
	ErrAlien = errors.New("the file does not belong to the snapshots")
)

// Meta describes a snapshot.
type Meta struct {
	// Log is the id of the log.
	Log uint64
	// Index is of the last entry that it has.
	Index uint64
	// Sum is the checksum of the last record that it has.
	Sum uint32
	// History is the last entry that the history covered then. If it is before Index the history could not be written, and so many claims
	// that ended since were Missing in it.
	History, Missing uint64
	// Bytes is how large the file is. It is not in it.
	Bytes int64
}

const (
	suffix  = ".snap"
	newName = "new"
	// head is how a file begins; its last byte is the version of the format.
	head = "locket snapshot\x01"
	// endMark replaces a block's length at the end.
	endMark = 1<<32 - 1
)

var table = crc32.MakeTable(crc32.Castagnoli)

func name(index uint64) string { return fmt.Sprintf("%016x%s", index, suffix) }

// indexOf returns the index of the snapshot in a file.
func indexOf(file string) (index uint64, is bool) {
	hex, is := strings.CutSuffix(file, suffix)
	index, err := strconv.ParseUint(hex, 16, 64)
	return index, is && err == nil && name(index) == file
}

// Latest returns the index of the newest snapshot of a folder, 0 for none, and deletes the others. One that cannot be deleted does not keep the rest.
func Latest(d disk.Disk) (index uint64, err error) {
	names, err := d.List()
	if err != nil {
		return 0, err
	}
	var old []string
	for _, file := range names {
		at, is := indexOf(file)
		switch {
		case file == newName: // it was never finished
			old = append(old, file)
		case !is:
			return 0, fmt.Errorf("%w: %s: take it away", ErrAlien, d.Path(file))
		default:
			if index != 0 {
				old = append(old, name(index))
			}
			index = at
		}
	}
	for _, file := range old {
		err = errors.Join(err, d.Remove(file))
	}
	return index, err
}

// MetaOf returns the Meta of a snapshot.
func MetaOf(d disk.Disk, index uint64) (Meta, error) { return read(d, index, &reader{}, nil) }

// Read calls block for each record of a snapshot, and returns its Meta.
func Read(d disk.Disk, index uint64, block func(*record.Decoded) error) (Meta, error) {
	return read(d, index, &reader{}, block)
}

// Load is Read for a caller that does not use a record, nor the texts of its claims and rows, after the call: see record.ReadInto.
func Load(d disk.Disk, index uint64, block func(*record.Decoded) error) (Meta, error) {
	return read(d, index, &reader{used: make(chan *record.Decoded, blocksAhead+2)}, block)
}

func read(d disk.Disk, index uint64, r *reader, block func(*record.Decoded) error) (m Meta, err error) {
	path := d.Path(name(index))
	f, err := d.Open(name(index))
	if err != nil {
		return m, err
	}
	defer f.Close()
	r.file = f
	if r.size, err = f.Size(); err == nil {
		m, err = r.meta()
	}
	if m.Bytes = r.size; err == nil && m.Index != index {
		err = ErrDamaged
	}
	if err == nil && block != nil {
		err = r.blocks(block)
	}
	if errors.Is(err, record.ErrFormat) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return m, fmt.Errorf("%w: %s; restore a backup", err, path)
	}
	return m, nil
}

// reader reads a file from its begin.
type reader struct {
	file disk.File
	size int64
	at   int64
	buf  []byte // read ahead
	sum  uint32
	// used are records that nobody uses any more, nil where they may be kept.
	used chan *record.Decoded
}

const ahead = 1 << 20

// take returns the next n bytes.
func (r *reader) take(n int) ([]byte, error) {
	if left := len(r.buf) + int(r.size-r.at); left < n {
		return nil, io.ErrUnexpectedEOF
	} else if len(r.buf) < n {
		buf := make([]byte, min(max(n, ahead), left))
		copy(buf, r.buf)
		read, err := r.file.ReadAt(buf[len(r.buf):], r.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		r.at += int64(read)
		r.buf = buf[:len(r.buf)+read]
	}
	if len(r.buf) < n {
		return nil, io.ErrUnexpectedEOF
	}
	taken := r.buf[:n]
	r.buf = r.buf[n:]
	return taken, nil
}

// maxBlock is more than the length of any block.
const maxBlock = 64 << 20

// sized returns the next bytes that have their length before them. The end has none.
func (r *reader) sized() (b []byte, end bool, err error) {
	length, err := r.take(4)
	if err != nil {
		return nil, false, err
	}
	n := binary.LittleEndian.Uint32(length)
	switch {
	case n == endMark:
		return nil, true, nil
	case n > maxBlock:
		return nil, false, ErrDamaged
	}
	b, err = r.take(int(n))
	return b, false, err
}

func (r *reader) meta() (m Meta, err error) {
	begin, err := r.take(len(head))
	if err != nil {
		return m, err
	}
	if string(begin) != head {
		if string(begin[:len(head)-1]) == head[:len(head)-1] {
			return m, fmt.Errorf("%w: it is of version %d, and this locket reads %d", ErrAlien, begin[len(head)-1], head[len(head)-1])
		}
		return m, ErrDamaged
	}
	b, end, err := r.sized()
	if err != nil || end || len(b) < 4+5 {
		return m, errors.Join(err, ErrDamaged)
	}
	body := b[:len(b)-4]
	if r.sum = crc32.Checksum(body, table); r.sum != binary.LittleEndian.Uint32(b[len(body):]) {
		return m, ErrDamaged
	}
	c := codec.Reader(body)
	if m.code(&c); c.End() != nil {
		return m, ErrDamaged
	}
	return m, nil
}

func (m *Meta) code(c *codec.Coder) {
	for _, n := range [...]*uint64{&m.Log, &m.Index, &m.History, &m.Missing} {
		c.Unsigned(n)
	}
	sum := uint64(m.Sum)
	if c.Unsigned(&sum); c.Reads() {
		m.Sum = uint32(sum)
	}
}

// blocksAhead is how many records are read while others are used.
const blocksAhead = 4

// blocks calls use for each record, while another goroutine reads the next ones.
func (r *reader) blocks(use func(*record.Decoded) error) (err error) {
	blocks, stop := make(chan *record.Decoded, blocksAhead), make(chan struct{})
	var unread error
	go func() {
		defer close(blocks)
		for {
			d, more, err := r.block()
			if err != nil || !more {
				unread = err
				return
			}
			select {
			case blocks <- d:
			case <-stop:
				return
			}
		}
	}()
	for d := range blocks {
		if err = use(d); err != nil {
			close(stop)
			break
		}
		if r.used != nil {
			r.used <- d // there is room for all
		}
	}
	for range blocks { // the file is closed when nobody reads it any more
	}
	return errors.Join(err, unread)
}

// block returns the next record.
func (r *reader) block() (d *record.Decoded, more bool, err error) {
	b, end, err := r.sized()
	if err != nil {
		return nil, false, err
	}
	if end {
		last, err := r.take(4)
		if err == nil && (binary.LittleEndian.Uint32(last) != r.sum || len(r.buf) > 0) {
			err = ErrDamaged
		}
		return nil, false, err
	}
	sum, ok := record.Checksum(r.sum, b)
	if !ok {
		return nil, false, ErrDamaged
	}
	r.sum = sum
	if r.used == nil {
		d, err = record.Read(b)
		return d, true, err
	}
	select {
	case d = <-r.used:
	default:
		d = new(record.Decoded)
	}
	return d, true, record.ReadInto(d, b)
}

// writer writes a file.
type writer struct {
	disk   disk.Disk
	file   disk.File
	at     int64
	synced int64 // what is on the disk
	buf    []byte
	sum    uint32
}

// syncBytes is how much of a file is written until it is synced. Were all of a large one left for the end, the log on the same disk would wait
// for it: for too long, for the disk would count as broken.
const syncBytes = 1 << 20

func newWriter(d disk.Disk, m Meta) (*writer, error) {
	f, err := d.Create(newName)
	if err != nil {
		return nil, err
	}
	w := &writer{disk: d, file: f, buf: []byte(head)}
	c := codec.Writer(nil)
	m.code(&c)
	body := c.Buffer()
	w.sum = crc32.Checksum(body, table)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(len(body)+4))
	w.buf = binary.LittleEndian.AppendUint32(append(w.buf, body...), w.sum)
	return w, nil
}

// block writes a record.
func (w *writer) block(r *record.Record) error {
	at := len(w.buf)
	w.buf, w.sum = record.Append(append(w.buf, 0, 0, 0, 0), w.sum, r)
	binary.LittleEndian.PutUint32(w.buf[at:], uint32(len(w.buf)-at-4))
	if len(w.buf) < ahead {
		return nil
	}
	return w.flush()
}

func (w *writer) flush() error {
	n, err := w.file.WriteAt(w.buf, w.at)
	w.at += int64(n)
	w.buf = w.buf[:0]
	if err == nil && w.at-w.synced >= syncBytes {
		w.synced, err = w.at, w.file.Sync()
	}
	return err
}

// remove deletes a file that is not a snapshot yet: on a full disk it would keep the room from others.
func (w *writer) remove() error {
	if err := w.disk.Remove(newName); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// end makes the file the snapshot with an index, durably.
func (w *writer) end(index uint64) error {
	w.buf = binary.LittleEndian.AppendUint32(w.buf, endMark)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, w.sum)
	err := w.flush()
	if err == nil {
		err = w.file.Sync()
	}
	if err = errors.Join(err, w.file.Close()); err != nil {
		return err
	}
	if err := w.disk.Rename(newName, name(index)); err != nil {
		return err
	}
	return w.disk.Sync()
}
