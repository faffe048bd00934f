package snapshot

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/db/replica/disk"
)

// A server that lacks a part of the log gets another server's snapshot, in parts. If the transfer is cut off, the next one
// continues where the last one ended, unless there is a newer snapshot by then.

// ErrNone is returned when a server has no snapshot that is new enough.
var ErrNone = errors.New("there is no newer snapshot")

// transferVersion is the version of the messages of a transfer.
const transferVersion = 1

// request asks for a snapshot of an entry after one, and says how much of a snapshot is there already.
type request struct {
	after         uint64
	index, offset uint64 // 0 for none
	sum           uint32 // of the bytes before offset
}

func (r *request) code(c *codec.Coder) {
	c.Format(transferVersion)
	for _, n := range [...]*uint64{&r.after, &r.index, &r.offset} {
		c.Unsigned(n)
	}
	c.Uint32(&r.sum)
}

// part is a part of a snapshot.
type part struct {
	// index is the snapshot's, and bytes is how large it is.
	index, bytes uint64
	// offset is where data is in it.
	offset uint64
	data   []byte
}

func (p *part) code(c *codec.Coder) {
	c.Format(transferVersion)
	for _, n := range [...]*uint64{&p.index, &p.bytes, &p.offset} {
		c.Unsigned(n)
	}
	c.Sharing(true)
	c.Data(&p.data)
}

// partBytes is how much of a snapshot is in a part.
const partBytes = 256 << 10

// Send answers the request of a Receive. It sends the newest snapshot of a folder, even if that is replaced meanwhile. It
// returns ErrNone, or an error of send.
func Send(d disk.Disk, asked []byte, send func(part []byte) error) error {
	var want request
	c := codec.Reader(asked)
	if want.code(&c); c.End() != nil {
		return c.End()
	}
	f, index, err := openNewest(d)
	if err != nil {
		return err
	}
	defer f.Close()
	if index <= want.after {
		return fmt.Errorf("%w: the newest is of entry %d", ErrNone, index)
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	p := part{index: index, bytes: uint64(size)}
	if want.index == index && want.offset <= p.bytes {
		if sum, err := sumOf(f, int64(want.offset)); err != nil {
			return err
		} else if sum == want.sum {
			p.offset = want.offset
		}
	}
	for more := true; more; more = p.offset < p.bytes {
		p.data = make([]byte, min(partBytes, p.bytes-p.offset))
		if _, err := f.ReadAt(p.data, int64(p.offset)); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		w := codec.Writer(make([]byte, 0, len(p.data)+64))
		p.code(&w)
		if err := send(w.Buffer()); err != nil {
			return err
		}
		p.offset += uint64(len(p.data))
	}
	return nil
}

// openNewest opens the newest snapshot of a folder.
func openNewest(d disk.Disk) (f disk.File, index uint64, err error) {
	for {
		names, err := d.List()
		if err != nil {
			return nil, 0, err
		}
		newest := uint64(0)
		for _, file := range names {
			if at, is := indexOf(file); is {
				newest = max(newest, at)
			}
		}
		if newest == 0 {
			return nil, 0, ErrNone
		}
		f, err := d.Open(name(newest))
		if errors.Is(err, fs.ErrNotExist) && newest != index { // a newer one has replaced it
			index = newest
			continue
		}
		return f, newest, err
	}
}

// sumOf returns the checksum of the begin of a file.
func sumOf(f disk.File, length int64) (uint32, error) {
	sum := crc32.New(table)
	_, err := io.Copy(sum, io.NewSectionReader(f, 0, length))
	return sum.Sum32(), err
}
