package wal

import (
	"encoding/binary"
	"fmt"
)

// Entry is one entry of the log.
type Entry struct {
	Index, Term uint64
	// Kind is what the entry is, as Raft numbers it.
	Kind uint8
	// Data is not changed by anybody.
	Data []byte
}

// HardState is what a node must remember of its votes, and how far it knows the log to be committed.
type HardState struct{ Term, Vote, Commit uint64 }

// The kinds of frames.
const (
	kindSegment = 1 // the first frame of a segment
	kindBatch   = 2 // what one Append wrote
)

// segmentVersion is the format of segments.
const segmentVersion = 1

// start is what the first frame of a segment says: so all that is in the segments before may be deleted.
type start struct {
	// id is that of the log, which all its segments have.
	id uint64
	// segment is the number of the segment, and length how long its file is.
	segment, length uint64
	// index and term are of the last entry before the segment.
	index, term uint64
	state       HardState
}

func (s start) append(buf []byte) []byte {
	buf = append(buf, kindSegment, segmentVersion)
	for _, n := range []uint64{s.id, s.segment, s.length, s.index, s.term, s.state.Term, s.state.Vote, s.state.Commit} {
		buf = binary.AppendUvarint(buf, n)
	}
	return buf
}

func readStart(payload []byte) (s start, err error) {
	if len(payload) < 2 || payload[0] != kindSegment {
		return s, errPayload
	}
	if payload[1] != segmentVersion {
		return s, fmt.Errorf("%w: it is of version %d, and this locket reads %d", ErrAlien, payload[1], segmentVersion)
	}
	r := reader{rest: payload[2:]}
	for _, n := range []*uint64{&s.id, &s.segment, &s.length, &s.index, &s.term, &s.state.Term, &s.state.Vote, &s.state.Commit} {
		*n = r.number()
	}
	return s, r.end()
}

// batch is what one Append writes.
type batch struct {
	state   HardState
	entries []Entry
}

func (b batch) append(buf []byte) []byte {
	buf = append(buf, kindBatch)
	for _, n := range []uint64{b.state.Term, b.state.Vote, b.state.Commit, uint64(len(b.entries))} {
		buf = binary.AppendUvarint(buf, n)
	}
	for _, e := range b.entries {
		buf = append(buf, e.Kind)
		for _, n := range []uint64{e.Index, e.Term, uint64(len(e.Data))} {
			buf = binary.AppendUvarint(buf, n)
		}
		buf = append(buf, e.Data...)
	}
	return buf
}

var errPayload = fmt.Errorf("%w: what a frame says makes no sense", ErrDamaged)

// readBatch reads a batch. The data of its entries are parts of the payload.
func readBatch(payload []byte) (b batch, err error) {
	if len(payload) == 0 || payload[0] != kindBatch {
		return b, errPayload
	}
	r := reader{rest: payload[1:]}
	b.state = HardState{r.number(), r.number(), r.number()}
	for n := r.number(); n > 0 && !r.wrong; n-- {
		var e Entry
		if len(r.rest) == 0 {
			return b, errPayload
		}
		e.Kind, r.rest = r.rest[0], r.rest[1:]
		e.Index, e.Term = r.number(), r.number()
		e.Data = r.take(r.number())
		b.entries = append(b.entries, e)
	}
	return b, r.end()
}

type reader struct {
	rest  []byte
	wrong bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.wrong, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.wrong, r.rest = true, nil
		return nil
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) end() error {
	if r.wrong || len(r.rest) > 0 {
		return errPayload
	}
	return nil
}
