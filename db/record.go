package db

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// MaxFeedValue is the maximum length in bytes of a claim's value in the feed.
const MaxFeedValue = claim.MaxBrief

// recordVersion is the first byte of a record. A record with another first byte was written by a
// server of another version, and cannot be read.
const recordVersion = 1

// recordBytes is the usual maximum size of a transition in a record.
const recordBytes = 96

// errRecord is returned for bytes that are no record of this version.
var errRecord = errors.New("not a record of this version")

// AppendRecord appends the record of a transaction in the feed to a buffer: its time, and its
// transitions except renewals. A claim that is created and granted at once is one
// transition.
//
// A record is the version, the time, and the transitions. Numbers are varints, strings have
// their length before them; times and versions, which are near the time of the transaction, are
// written as the difference to it. A resource that is the same as before is empty.
func AppendRecord(buf []byte, at claim.Time, transitions []claim.Transition) []byte {
	w := recordWriter{buf: append(slices.Grow(buf, recordBytes*(len(transitions)+1)), recordVersion), at: int64(at)}
	w.buf = binary.AppendVarint(w.buf, w.at)
	for i, t := range transitions {
		if i+1 < len(transitions) && grantedAtOnce(t, transitions[i+1]) {
			continue
		}
		before := t.Before
		if i > 0 && grantedAtOnce(transitions[i-1], t) {
			before = nil
		}
		if !onlyRenews(claim.Transition{Before: before, After: t.After}) {
			w.transition(before, t.After)
		}
	}
	return w.buf
}

// RecordBytes is the maximum size in bytes of a record without its last transition.
const RecordBytes = 128 << 10

// Records returns the records of a transaction in the feed: one, or several if its transitions are many or large.
func Records(at claim.Time, transitions []claim.Transition) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for first := true; first || len(transitions) > 0; first = false {
			n := fitting(transitions)
			if !yield(AppendRecord(nil, at, transitions[:n])) {
				return
			}
			transitions = transitions[n:]
		}
	}
}

// fitting returns how many of the transitions fit into one record. The two transitions of a claim that is created
// and granted at once are kept together.
func fitting(transitions []claim.Transition) (n int) {
	for bytes := 0; n < len(transitions) && bytes < RecordBytes; n++ {
		c := transitions[n].After
		bytes += recordBytes + len(c.ID) + len(c.Resource) + len(c.Owner) + len(c.Session) + len(c.Reason) + len(c.Identity) + len(c.EndedBy)
		if len(c.Value) <= MaxFeedValue {
			bytes += len(c.Value)
		}
	}
	if 0 < n && n < len(transitions) && grantedAtOnce(transitions[n-1], transitions[n]) {
		n++
	}
	return n
}

// grantedAtOnce reports whether two successive transitions create a claim and grant it.
func grantedAtOnce(made, granted claim.Transition) bool {
	return made.Before == nil && granted.Before == made.After && granted.After.Status == claim.Active
}

func onlyRenews(t claim.Transition) bool {
	return t.Before != nil && t.Before.Status == t.After.Status && !t.SetsValue() && t.Before.Type == t.After.Type
}

type recordWriter struct {
	buf  []byte
	at   int64
	last string // resource
}

func (w *recordWriter) transition(before, after *claim.Claim) {
	var from claim.Status
	var version uint64
	if before != nil {
		from, version = before.Status, before.Version
	}
	w.buf = append(w.buf, byte(from)|byte(after.Status)<<3|byte(after.Mode)<<6)
	w.number(int64(after.Type))
	w.text(after.ID)
	if after.Resource == w.last {
		w.text("")
	} else {
		w.text(after.Resource)
		w.last = after.Resource
	}
	w.text(after.Owner)
	w.text(after.Session)
	w.text(after.Reason)
	w.text(after.Identity)
	w.text(after.EndedBy)
	if len(after.Value) > MaxFeedValue {
		w.text("")
	} else {
		w.text(after.Value)
	}
	w.number(after.TTL.Microseconds())
	w.number(after.WaitTTL.Microseconds())
	for _, n := range [...]uint64{after.Version, after.Enqueued, after.Token, version} {
		w.near(int64(n))
	}
	for _, t := range [...]claim.Time{after.Deadline, after.Created, after.Activated, after.Finished} {
		w.near(int64(t))
	}
}

func (w *recordWriter) number(n int64) { w.buf = binary.AppendVarint(w.buf, n) }

func (w *recordWriter) text(s string) {
	w.buf = append(binary.AppendUvarint(w.buf, uint64(len(s))), s...)
}

// near writes a number that is 0 or near the time of the transaction: 0, or one more than the
// zigzag encoding of the difference.
func (w *recordWriter) near(n int64) {
	var code uint64
	if n != 0 {
		d := n - w.at
		code = uint64(d<<1^d>>63) + 1
	}
	w.buf = binary.AppendUvarint(w.buf, code)
}

// ReadRecord returns what AppendRecord wrote.
func ReadRecord(record []byte) (claim.Time, []claim.Transition, error) {
	if len(record) == 0 || record[0] != recordVersion {
		return 0, nil, errRecord
	}
	r := recordReader{rest: record[1:]}
	r.at = r.number()
	var transitions []claim.Transition
	for len(r.rest) > 0 && r.err == nil {
		transitions = append(transitions, r.transition())
	}
	if r.err != nil {
		return 0, nil, r.err
	}
	return claim.Time(r.at), transitions, nil
}

type recordReader struct {
	rest []byte
	at   int64
	last string // resource
	err  error
}

func (r *recordReader) transition() claim.Transition {
	flags := r.rest[0]
	r.rest = r.rest[1:]
	from, after := claim.Status(flags&7), &claim.Claim{Status: claim.Status(flags >> 3 & 7), Mode: claim.Mode(flags >> 6 & 1)}
	if !after.Status.Valid() || flags>>7 != 0 {
		r.fail("status")
	}
	after.Type = claim.Type(r.number())
	after.ID = r.text()
	if after.Resource = r.text(); after.Resource == "" {
		after.Resource = r.last
	}
	r.last = after.Resource
	after.Owner, after.Session, after.Reason = r.text(), r.text(), r.text()
	after.Identity, after.EndedBy, after.Value = r.text(), r.text(), r.text()
	after.TTL = time.Duration(r.number()) * time.Microsecond
	after.WaitTTL = time.Duration(r.number()) * time.Microsecond
	after.Version, after.Enqueued, after.Token = uint64(r.near()), uint64(r.near()), uint64(r.near())
	version := uint64(r.near())
	after.Deadline, after.Created = claim.Time(r.near()), claim.Time(r.near())
	after.Activated, after.Finished = claim.Time(r.near()), claim.Time(r.near())
	if from == 0 {
		return claim.Transition{After: after}
	}
	return claim.Transition{
		Before: &claim.Claim{ID: after.ID, Resource: after.Resource, Status: from, Version: version},
		After:  after,
	}
}

func (r *recordReader) number() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.fail("number")
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *recordReader) unsigned() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.fail("number")
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *recordReader) text() string {
	n := r.unsigned()
	if n > uint64(len(r.rest)) {
		r.fail("text")
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *recordReader) near() int64 {
	code := r.unsigned()
	if code == 0 {
		return 0
	}
	code--
	return r.at + (int64(code>>1) ^ -int64(code&1))
}

func (r *recordReader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: its %s is cut off or wrong", errRecord, what)
	}
	r.rest = nil
}
