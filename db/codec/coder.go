// Package codec, for this module only, is the one binary format of claims and sessions: in the feed, the log, snapshots, backups, the history and
// memory. The same code writes a field and reads it.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/locket-service/locket/internal/rules/claim"
)

// ErrFormat is returned, wrapped, for bytes that cannot be read.
var ErrFormat = errors.New("not in the format of this version")

// Coder writes fields to a buffer, or reads them from one. Writing changes no field: others may read it at the same time.
type Coder struct {
	// buf has the written bytes, or all bytes to read.
	buf []byte
	// at is the offset of the next byte to read.
	at    int
	reads bool
	// parts says that texts and data that are read are parts of the buffer.
	parts bool
	// wall and lease are the times that others are written relative to.
	wall, lease int64
	err         error
}

// Writer returns a Coder that appends to a buffer.
func Writer(buf []byte) Coder { return Coder{buf: buf} }

// Reader returns a Coder that reads. What it reads does not share memory with data.
func Reader(data []byte) Coder { return Coder{buf: data, reads: true} }

// Reads reports whether the Coder reads.
func (c *Coder) Reads() bool { return c.reads }

// Buffer returns the written bytes, or the rest to read.
func (c *Coder) Buffer() []byte { return c.buf[c.at:] }

// Sharing sets whether texts and data that are read are parts of the buffer, which must not change then.
func (c *Coder) Sharing(parts bool) { c.parts = parts }

// Near sets the times that other times and versions are written relative to. They are 0 at first.
func (c *Coder) Near(wall, lease claim.Time) { c.wall, c.lease = int64(wall), int64(lease) }

// More reports whether there is more to read.
func (c *Coder) More() bool { return c.at < len(c.buf) }

// Err returns the first error.
func (c *Coder) Err() error { return c.err }

// End returns the first error, which is one if something is left to read.
func (c *Coder) End() error {
	if c.reads && c.More() {
		c.Fail("end")
	}
	return c.err
}

// Fail ends the work. what is wrong.
func (c *Coder) Fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: its %s is cut off or wrong", ErrFormat, what)
	}
	c.at = len(c.buf)
}

// Format codes the version of a format. It fails for another one.
func (c *Coder) Format(version uint8) {
	got := version
	if c.Byte(&got); got != version && c.err == nil {
		c.err = fmt.Errorf("%w: it is of version %d, and this locket reads %d", ErrFormat, got, version)
		c.at = len(c.buf)
	}
}

// Byte codes one byte.
func (c *Coder) Byte(b *uint8) {
	switch {
	case !c.reads:
		c.buf = append(c.buf, *b)
	case c.at == len(c.buf):
		*b = 0
		c.Fail("byte")
	default:
		*b = c.buf[c.at]
		c.at++
	}
}

// Unsigned codes a number in few bytes if it is small.
func (c *Coder) Unsigned(n *uint64) {
	if c.reads {
		*n = c.number()
	} else {
		c.buf = binary.AppendUvarint(c.buf, *n)
	}
}

// Uint32 codes a number of 32 bits.
func (c *Coder) Uint32(n *uint32) {
	wide := uint64(*n)
	if c.Unsigned(&wide); !c.reads {
		return
	}
	if wide > math.MaxUint32 {
		c.Fail("number")
		wide = 0
	}
	*n = uint32(wide)
}

func (c *Coder) number() uint64 {
	if c.at < len(c.buf) && c.buf[c.at] < 0x80 {
		c.at++
		return uint64(c.buf[c.at-1])
	}
	value, size := binary.Uvarint(c.buf[c.at:])
	if size <= 0 {
		c.Fail("number")
		return 0
	}
	c.at += size
	return value
}

// zigzag maps numbers near 0 to small ones without a sign, and unzigzag maps them back.
func zigzag(n int64) uint64   { return uint64(n)<<1 ^ uint64(n>>63) }
func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// Signed codes a number in few bytes if it is near 0.
func Signed[N ~int | ~int64](c *Coder, n *N) {
	if c.reads {
		*n = N(unzigzag(c.number()))
	} else {
		c.buf = binary.AppendUvarint(c.buf, zigzag(int64(*n)))
	}
}

// Small codes a number of one byte, and fails to read one above most.
func Small[N ~uint8](c *Coder, n *N, most N) {
	b := uint8(*n)
	if c.Byte(&b); !c.reads {
		return
	}
	if *n = N(b); *n > most {
		*n = 0
		c.Fail("number")
	}
}

// Flag codes a bit, in a byte of its own.
func (c *Coder) Flag(flag *bool) {
	var b uint8
	if *flag {
		b = 1
	}
	if Small(c, &b, 1); c.reads {
		*flag = b == 1
	}
}

// Duration codes a duration.
func (c *Coder) Duration(d *time.Duration) { Signed(c, d) }

// Text codes a string.
func (c *Coder) Text(s *string) {
	if !c.reads {
		c.buf = append(binary.AppendUvarint(c.buf, uint64(len(*s))), *s...)
		return
	}
	if taken := c.take(c.number()); c.parts {
		*s = unsafe.String(unsafe.SliceData(taken), len(taken))
	} else {
		*s = string(taken)
	}
}

// Data codes bytes. Empty ones differ from nil.
func (c *Coder) Data(b *[]byte) {
	if !c.reads {
		if *b == nil {
			c.buf = append(c.buf, 0)
		} else {
			c.buf = append(binary.AppendUvarint(c.buf, uint64(len(*b))+1), *b...)
		}
		return
	}
	n := c.number()
	if n == 0 {
		*b = nil
		return
	}
	if taken := c.take(n - 1); c.parts {
		*b = taken[:len(taken):len(taken)]
	} else {
		*b = append([]byte{}, taken...)
	}
}

func (c *Coder) take(n uint64) []byte {
	if n > uint64(len(c.buf)-c.at) {
		c.Fail("text")
		return nil
	}
	c.at += int(n)
	return c.buf[c.at-int(n) : c.at]
}

// The codes of numbers that are not written as a difference.
const (
	codeZero uint64 = iota
	codeForever
	codeFar
	codeNear
)

// near codes a number that is 0, claim.Forever, or near another.
func (c *Coder) near(n *int64, base int64) {
	if !c.reads {
		c.writeNear(*n, base)
		return
	}
	switch code := c.number(); code {
	case codeZero:
		*n = 0
	case codeForever:
		*n = int64(claim.Forever)
	case codeFar:
		Signed(c, n)
	default:
		*n = base + unzigzag(code-codeNear)
	}
}

func (c *Coder) writeNear(n, base int64) {
	code, d := codeFar, n-base
	switch {
	case n == 0:
		code = codeZero
	case n == int64(claim.Forever):
		code = codeForever
	case (d < 0) == (n < base) && -1<<60 <= d && d <= 1<<60:
		code = zigzag(d) + codeNear
	}
	if c.Unsigned(&code); code == codeFar {
		Signed(c, &n)
	}
}

// Version codes the version of a resource, which is near the time of the wall.
func (c *Coder) Version(v *uint64) {
	n := int64(*v)
	if c.near(&n, c.wall); c.reads {
		*v = uint64(n)
	}
}

// Wall codes a time of the database's clock.
func (c *Coder) Wall(t *claim.Time) { c.near((*int64)(t), c.wall) }

// Lease codes a lease time.
func (c *Coder) Lease(t *claim.Time) { c.near((*int64)(t), c.lease) }
