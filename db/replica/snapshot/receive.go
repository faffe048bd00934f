package snapshot

import (
	"errors"
	"fmt"
	"io"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/record"
)

// Name returns the name of the file of the snapshot with an index.
func Name(index uint64) string { return name(index) }

// Receive receives a snapshot of an entry after one into a folder that has nothing else. ask sends a request to another
// server's Send, and calls part for each part of the answer. After an error, Receive keeps the parts for the next call.
// The snapshot that it returns is intact and durable.
func Receive(d disk.Disk, after uint64, ask func(request []byte, part func([]byte) error) error) (Meta, error) {
	r := &receiver{disk: d, after: after}
	if err := r.open(); err != nil {
		return Meta{}, err
	}
	if m, err := r.verify(); err == nil { // a crash has kept it from being used
		return m, errors.Join(r.sync(), r.close())
	}
	want := request{after: after, index: r.index, offset: r.at, sum: r.sum}
	c := codec.Writer(nil)
	want.code(&c)
	err := ask(c.Buffer(), r.part)
	if err == nil && (r.file == nil || r.at != r.bytes) {
		err = fmt.Errorf("it has ended early: %w", io.ErrUnexpectedEOF)
	}
	if err = errors.Join(err, r.sync(), r.close()); err != nil {
		if disk.NoRoom(err) {
			err = errors.Join(err, r.empty())
		}
		return Meta{}, fmt.Errorf("receive a snapshot: %w", err)
	}
	m, err := r.verify()
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrAlien) {
		err = errors.Join(err, r.empty())
	}
	return m, err
}

// receiver has the file of a snapshot, or the begin of it.
type receiver struct {
	disk   disk.Disk
	after  uint64
	file   disk.File // nil for none
	index  uint64
	at     uint64 // its length
	sum    uint32 // of the part that was there at first
	bytes  uint64 // how large it will be, 0 while that is not known
	synced uint64
}

// open opens the file that is there, unless it is useless.
func (r *receiver) open() error {
	names, err := r.disk.List()
	if err != nil {
		return err
	}
	for _, file := range names {
		if at, is := indexOf(file); is && at > r.after && len(names) == 1 {
			r.index = at
		}
	}
	if r.index == 0 {
		return r.empty()
	}
	if r.file, err = r.disk.Open(name(r.index)); err != nil {
		return err
	}
	size, err := r.file.Size()
	if err == nil {
		r.at = uint64(size)
		r.sum, err = sumOf(r.file, size)
	}
	return err
}

// empty deletes everything in the folder.
func (r *receiver) empty() error {
	names, err := r.disk.List()
	for _, file := range names {
		err = errors.Join(err, r.disk.Remove(file))
	}
	return err
}

// part writes a part. The first one may begin at the end of the file, or anew.
func (r *receiver) part(data []byte) error {
	var p part
	c := codec.Reader(data)
	if p.code(&c); c.End() != nil {
		return c.End()
	}
	if r.bytes == 0 && p.offset == 0 && p.index > r.after {
		if err := r.begin(p.index); err != nil {
			return err
		}
	}
	switch {
	case r.bytes == 0:
		r.bytes = p.bytes
	case r.bytes != p.bytes:
		return fmt.Errorf("%w: its length is %d, and was %d", ErrDamaged, p.bytes, r.bytes)
	}
	if r.file == nil || p.index != r.index || p.offset != r.at || r.at > r.bytes || uint64(len(p.data)) > r.bytes-r.at {
		return fmt.Errorf("%w: a part of %d bytes at %d of snapshot %d does not follow %d of %d bytes of snapshot %d",
			ErrDamaged, len(p.data), p.offset, p.index, r.at, r.bytes, r.index)
	}
	_, err := r.file.WriteAt(p.data, int64(r.at))
	if r.at += uint64(len(p.data)); err == nil && r.at-r.synced >= syncBytes {
		err = r.sync()
	}
	return err
}

// begin begins with another snapshot.
func (r *receiver) begin(index uint64) (err error) {
	if err := errors.Join(r.close(), r.empty()); err != nil {
		return err
	}
	r.index, r.at, r.synced = index, 0, 0
	r.file, err = r.disk.Create(name(index))
	return err
}

func (r *receiver) sync() error {
	if r.file == nil {
		return nil
	}
	r.synced = r.at
	return errors.Join(r.file.Sync(), r.disk.Sync())
}

func (r *receiver) close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}

// verify reads the whole file.
func (r *receiver) verify() (Meta, error) {
	if r.index == 0 {
		return Meta{}, ErrNone
	}
	m, err := Read(r.disk, r.index, func(*record.Decoded) error { return nil })
	if err != nil {
		err = fmt.Errorf("the snapshot from another server: %w", err)
	}
	return m, err
}
