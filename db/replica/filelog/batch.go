package filelog

import (
	"fmt"

	"github.com/locket-service/locket/db/codec"
)

// Entry is one entry of the log.
type Entry struct {
	Index, Term uint64
	// Kind is the kind of the entry, as Raft numbers it.
	Kind uint8
	// Data is not changed by anybody.
	Data []byte
}

// HardState has a node's votes, which it must remember, and how far it knows the log to be committed.
type HardState struct{ Term, Vote, Commit uint64 }

// The kinds of frames.
const (
	kindSegment = 1 // the first frame of a segment
	kindBatch   = 2 // what one Append wrote
)

// segmentVersion is the format of segments.
const segmentVersion = 1

// start is the content of the first frame of a segment. With it the segments before may all be deleted.
type start struct {
	// id is the log's, and the same in all its segments.
	id uint64
	// segment is the number of the segment, and length how long its file is.
	segment, length uint64
	// index and term are of the last entry before the segment.
	index, term uint64
	state       HardState
}

func (s *start) code(c *codec.Coder) {
	codeKind(c, kindSegment)
	c.Format(segmentVersion)
	for _, n := range [...]*uint64{&s.id, &s.segment, &s.length, &s.index, &s.term} {
		c.Unsigned(n)
	}
	s.state.code(c)
}

func (h *HardState) code(c *codec.Coder) {
	c.Unsigned(&h.Term)
	c.Unsigned(&h.Vote)
	c.Unsigned(&h.Commit)
}

// codeKind codes the kind of a frame, and fails for another one.
func codeKind(c *codec.Coder, kind uint8) {
	got := kind
	if c.Byte(&got); got != kind {
		c.Fail("kind")
	}
}

// written appends what code writes to a buffer.
func written(buf []byte, code func(*codec.Coder)) []byte {
	c := codec.Writer(buf)
	code(&c)
	return c.Buffer()
}

// errPayload is returned for a frame that is intact but makes no sense.
var errPayload = fmt.Errorf("%w: what a frame says makes no sense", ErrDamaged)

func readStart(payload []byte) (s start, err error) {
	if len(payload) > 1 && payload[0] == kindSegment && payload[1] != segmentVersion {
		return s, fmt.Errorf("%w: it is of version %d, and this locket reads %d", ErrAlien, payload[1], segmentVersion)
	}
	return s, read(payload, s.code)
}

// read reads all of a payload. What it reads are parts of the payload.
func read(payload []byte, code func(*codec.Coder)) error {
	c := codec.Reader(payload)
	c.Sharing(true)
	if code(&c); c.End() != nil {
		return errPayload
	}
	return nil
}

// batch is the content of one Append.
type batch struct {
	state   HardState
	entries []Entry
}

func (b *batch) code(c *codec.Coder) {
	codeKind(c, kindBatch)
	b.state.code(c)
	n := uint64(len(b.entries))
	c.Unsigned(&n)
	for i := 0; uint64(i) < n && c.Err() == nil; i++ {
		if c.Reads() {
			b.entries = append(b.entries, Entry{})
		}
		b.entries[i].code(c)
	}
}

func (e *Entry) code(c *codec.Coder) {
	c.Byte(&e.Kind)
	c.Unsigned(&e.Index)
	c.Unsigned(&e.Term)
	c.Data(&e.Data)
}

func readBatch(payload []byte) (b batch, err error) { return b, read(payload, b.code) }
