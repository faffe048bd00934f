package backup

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
)

// A file begins with magic and the version of the format. Blocks follow: their length in 4 bytes, items, and a checksum
// of 4 bytes that also covers the checksum of the block before. An item begins with its kind. The last one, itemEnd,
// ends the file.
const (
	magic   = "locket backup\x00"
	version = 1
	// blockBytes is how long a block becomes, its last item apart, and maxBlock is more than any is.
	blockBytes = 64 << 10
	maxBlock   = 4 << 20
	fileMode   = 0o600
)

// The kinds of items. The numbers are stored: they are only added to.
const (
	itemHead uint8 = iota + 1
	itemClaim
	itemSession
	itemServer
	itemRow
	itemEnded
	itemEnd
)

var table = crc32.MakeTable(crc32.Castagnoli)

// Write writes a backup into a temporary file beside path, and renames it when it is durable. It replaces an existing
// backup, but no other file. from writes the contents. check gets the name of the temporary file before that is renamed. If
// it returns an error, the file is removed, and an existing backup stays.
func Write(path string, from func(Sink) error, check func(file string) error) (err error) {
	if err := replaceable(path); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	err = writeTo(&synced{file: file}, from)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := check(file.Name()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// syncBytes is how much of a file is written until it is synced. Were all of a large one left for the end, the log of a server on the same disk
// would wait for it: for too long, for the disk would count as broken.
const syncBytes = 16 << 20

// synced syncs a file while it is written.
type synced struct {
	file interface {
		io.Writer
		Sync() error
	}
	bytes int // since the last sync
}

func (s *synced) Write(b []byte) (n int, err error) {
	n, err = s.file.Write(b)
	if s.bytes += n; err == nil && s.bytes >= syncBytes {
		s.bytes, err = 0, s.file.Sync()
	}
	return n, err
}

// replaceable returns an error for an existing file that is not a backup.
func replaceable(path string) error {
	if path == "" {
		return errors.New("the name of the file is empty")
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is there already, and is no file: give another name", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(file, begin); err != nil || string(begin) != magic {
		return fmt.Errorf("%s is there already, and is no backup: give another name", path)
	}
	return nil
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func writeTo(to io.Writer, from func(Sink) error) error {
	w := &writer{to: to, state: newStateHash()}
	if err := w.write(append([]byte(magic), version)); err != nil {
		return err
	}
	if err := from(w); err != nil {
		return err
	}
	if !w.ended {
		return errors.New("the contents are incomplete")
	}
	return nil
}

// writer is a Sink that writes the bytes of a file.
type writer struct {
	to    io.Writer
	buf   []byte
	sum   uint32
	state *stateHash
	ended bool
}

func (w *writer) item(kind uint8, code func(*codec.Coder)) error {
	if len(w.buf) == 0 {
		w.buf = append(w.buf, 0, 0, 0, 0)
	}
	c := codec.Writer(w.buf)
	c.Byte(&kind)
	code(&c)
	if w.buf = c.Buffer(); len(w.buf) < blockBytes {
		return nil
	}
	return w.flush()
}

func (w *writer) flush() error {
	binary.LittleEndian.PutUint32(w.buf, uint32(len(w.buf)-4))
	w.sum = crc32.Update(w.sum, table, w.buf)
	err := w.write(binary.LittleEndian.AppendUint32(w.buf, w.sum))
	w.buf = w.buf[:0]
	return err
}

func (w *writer) write(b []byte) error {
	_, err := w.to.Write(b)
	return err
}

func (w *writer) Begin(h Head) error {
	return w.item(itemHead, h.code)
}

func (w *writer) Claim(x *claim.Claim) error {
	w.state.claim(x)
	return w.item(itemClaim, func(c *codec.Coder) { c.Claim(x) })
}

func (w *writer) Session(s *claim.Session) error {
	w.state.session(s)
	return w.item(itemSession, func(c *codec.Coder) { c.Session(s) })
}

func (w *writer) Server(s Server) error {
	return w.item(itemServer, s.code)
}

func (w *writer) Row(r Row) error {
	w.state.row(r)
	return w.item(itemRow, r.code)
}

func (w *writer) Ended(x *claim.Claim) error {
	return w.item(itemEnded, func(c *codec.Coder) { c.Claim(x) })
}

func (w *writer) End(h Head) error {
	w.ended = true
	w.state.head(h)
	sum := w.state.sum()
	if err := w.item(itemEnd, func(c *codec.Coder) { h.code(c); c.Data(&sum) }); err != nil || len(w.buf) == 0 {
		return err
	}
	return w.flush()
}

// Read reads a backup and gives its contents to a sink. If Read returns an error, the contents are incomplete and must not
// be used. Errors have the file's name.
func Read(path string, to Sink) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := readFrom(file, to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func readFrom(from io.Reader, to Sink) error {
	r := &reader{from: bufio.NewReaderSize(from, blockBytes), to: to, state: newStateHash()}
	begin := make([]byte, len(magic)+1)
	switch _, err := io.ReadFull(r.from, begin); {
	case err != nil && !cut(err):
		return err
	case err != nil, string(begin[:len(magic)]) != magic:
		return ErrAlien
	case begin[len(magic)] != version:
		return fmt.Errorf("%w: it is of version %d, and this locket reads %d", ErrVersion, begin[len(magic)], version)
	}
	for !r.ended {
		if err := r.block(); cut(err) {
			return fmt.Errorf("%w: it ends early", ErrDamaged)
		} else if err != nil {
			return err
		}
	}
	if _, err := r.from.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something stands behind its end", ErrDamaged)
	}
	return nil
}

// cut reports whether an error says that a file ends early.
func cut(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// reader reads a file.
type reader struct {
	from    *bufio.Reader
	to      Sink
	sum     uint32
	buf     []byte
	state   *stateHash
	head    Head
	started bool
	ended   bool
}

// block reads a block, verifies it, and hands over its items.
func (r *reader) block() error {
	var length [4]byte
	if _, err := io.ReadFull(r.from, length[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n == 0 || n > maxBlock {
		return ErrDamaged
	}
	if cap(r.buf) < int(n)+4 {
		r.buf = make([]byte, n+4)
	}
	buf := r.buf[:n+4]
	if _, err := io.ReadFull(r.from, buf); err != nil {
		return err
	}
	r.sum = crc32.Update(crc32.Update(r.sum, table, length[:]), table, buf[:n])
	if r.sum != binary.LittleEndian.Uint32(buf[n:]) {
		return ErrDamaged
	}
	c := codec.Reader(buf[:n])
	for c.More() && !r.ended {
		if err := r.item(&c); err != nil {
			return err
		}
	}
	if c.End() != nil {
		return ErrDamaged
	}
	return nil
}

// item reads an item, and gives it to the sink when it has been read completely.
func (r *reader) item(c *codec.Coder) (err error) {
	var kind uint8
	c.Byte(&kind)
	give := func() error { return ErrDamaged }
	switch kind {
	case itemHead:
		r.head.code(c)
		again := r.started
		r.started = true
		give = func() error {
			if again {
				return ErrDamaged
			}
			return r.to.Begin(r.head)
		}
	case itemClaim, itemEnded:
		x := &claim.Claim{}
		c.Claim(x)
		give = func() error {
			if kind == itemEnded {
				return r.to.Ended(x)
			}
			r.state.claim(x)
			return r.to.Claim(x)
		}
	case itemSession:
		s := &claim.Session{}
		c.Session(s)
		give = func() error { r.state.session(s); return r.to.Session(s) }
	case itemServer:
		var s Server
		s.code(c)
		give = func() error { return r.to.Server(s) }
	case itemRow:
		var row Row
		row.code(c)
		give = func() error { r.state.row(row); return r.to.Row(row) }
	case itemEnd:
		var sum []byte
		r.head.code(c)
		c.Data(&sum)
		give = func() error { return r.end(sum) }
	}
	if c.Err() != nil || !r.started {
		return ErrDamaged
	}
	return give()
}

func (r *reader) end(sum []byte) error {
	r.state.head(r.head)
	if string(sum) != string(r.state.sum()) {
		return fmt.Errorf("%w: the state differs from the one written", ErrDamaged)
	}
	r.ended = true
	return r.to.End(r.head)
}

// stateHash is a hash of the live state: two stores that hold the same have the same.
type stateHash struct {
	hash hash.Hash
	buf  []byte
}

func newStateHash() *stateHash { return &stateHash{hash: sha256.New()} }

func (h *stateHash) add(kind uint8, code func(*codec.Coder)) {
	c := codec.Writer(h.buf[:0])
	c.Byte(&kind)
	code(&c)
	h.buf = c.Buffer()
	_, _ = h.hash.Write(h.buf)
}

func (h *stateHash) head(head Head) {
	head.Engine, head.Taken = "", 0
	h.add(itemHead, head.code)
}

func (h *stateHash) claim(x *claim.Claim) { h.add(itemClaim, func(c *codec.Coder) { c.Claim(x) }) }

func (h *stateHash) session(s *claim.Session) {
	h.add(itemSession, func(c *codec.Coder) { c.Session(s) })
}

func (h *stateHash) row(r Row) {
	bare := Row{Row: claim.Row{Resource: r.Resource, Version: r.Version}}
	h.add(itemRow, bare.code)
}

func (h *stateHash) sum() []byte { return h.hash.Sum(nil) }
