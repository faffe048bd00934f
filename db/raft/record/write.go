package record

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// The kinds of the items of a record. The numbers are stored: they are only added to.
const (
	kindClaim uint8 = iota + 1
	kindSession
	kindServer
	kindRow
	kindFloor
	kindQuarantine
	kindBatch
)

// The ways in which an item says what became of a session, a server or a row.
const (
	whole uint8 = iota
	gone
	renewed
)

// itemBytes is what an item usually takes at most.
const itemBytes = 128

// sumBytes is the length of the checksum at the end of a record.
const sumBytes = 4

var table = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the checksum of a record, which is chained to that of the record before.
func Sum(before uint32, body []byte) uint32 { return crc32.Update(before, table, body) }

// Append appends a record to a buffer. before is the checksum of the record before it, 0 for the first. It returns
// the record's own checksum too, which is the last thing in it.
//
// A record is the version, the header, and the items, each of which begins with its kind. Numbers are varints,
// strings have their length before them. Versions and times are near the times in the header, and are written as
// the difference to these.
func Append(buf []byte, before uint32, r *Record) ([]byte, uint32) {
	begin := len(buf)
	w := writer{buf: append(slices.Grow(buf, itemBytes*(1+len(r.Claims)+len(r.Sessions))), Version)}
	w.unsigned(r.Term)
	w.unsigned(r.Seq)
	w.number(int64(r.Wall))
	w.number(int64(r.Lease))
	w.wall, w.lease = int64(r.Wall), int64(r.Lease)
	if r.Floor != 0 {
		w.byte(kindFloor)
		w.near(w.wall, int64(r.Floor))
	}
	if r.Quarantine != 0 {
		w.byte(kindQuarantine)
		w.leased(r.Quarantine)
	}
	for _, t := range r.Claims {
		w.claim(t)
	}
	for _, c := range r.Sessions {
		w.session(c)
	}
	for _, s := range r.Servers {
		w.server(s)
	}
	for _, row := range r.Rows {
		w.row(row)
	}
	for _, b := range r.Batches {
		w.batch(b)
	}
	sum := Sum(before, w.buf[begin:])
	return binary.LittleEndian.AppendUint32(w.buf, sum), sum
}

type writer struct {
	buf         []byte
	wall, lease int64
}

func (w *writer) byte(b uint8)        { w.buf = append(w.buf, b) }
func (w *writer) number(n int64)      { w.buf = binary.AppendVarint(w.buf, n) }
func (w *writer) unsigned(n uint64)   { w.buf = binary.AppendUvarint(w.buf, n) }
func (w *writer) version(v uint64)    { w.near(w.wall, int64(v)) }
func (w *writer) at(t claim.Time)     { w.near(w.wall, int64(t)) }
func (w *writer) leased(t claim.Time) { w.near(w.lease, int64(t)) }

func (w *writer) duration(d time.Duration) { w.number(int64(d)) }

func (w *writer) text(s string) {
	w.unsigned(uint64(len(s)))
	w.buf = append(w.buf, s...)
}

// data writes bytes. Empty ones differ from nil.
func (w *writer) data(b []byte) {
	if b == nil {
		w.unsigned(0)
		return
	}
	w.unsigned(uint64(len(b)) + 1)
	w.buf = append(w.buf, b...)
}

// The codes of numbers that are not written as a difference.
const (
	codeZero uint64 = iota
	codeForever
	codeFar
	codeNear
)

// near writes a number that is 0, claim.Forever, or near another.
func (w *writer) near(base, n int64) {
	switch n {
	case 0:
		w.unsigned(codeZero)
		return
	case int64(claim.Forever):
		w.unsigned(codeForever)
		return
	}
	d := n - base
	if (d < 0) != (n < base) || d > 1<<60 || d < -1<<60 {
		w.unsigned(codeFar)
		w.number(n)
		return
	}
	w.unsigned(uint64(d<<1^d>>63) + codeNear)
}

func (w *writer) claim(t claim.Transition) {
	fields, from := patchOf(t)
	w.byte(kindClaim)
	w.patch(fields, from, t.After)
}

// patch writes what became of a claim: the fields, the statuses before and after, the id, and what the fields say.
func (w *writer) patch(fields Fields, from claim.Status, c *claim.Claim) {
	w.unsigned(uint64(fields)<<6 | uint64(from)<<3 | uint64(c.Status))
	w.text(c.ID)
	w.version(c.Version)
	if fields&Made != 0 {
		w.made(c)
		return
	}
	has := func(f Fields) bool { return fields&f != 0 }
	if has(Type) {
		w.byte(uint8(c.Type))
	}
	if has(TTL) {
		w.duration(c.TTL)
	}
	if has(Token) {
		w.version(c.Token)
	}
	if has(Deadline) {
		w.leased(c.Deadline)
	}
	if has(Activated) {
		w.at(c.Activated)
	}
	if has(Finished) {
		w.at(c.Finished)
	}
	if has(Reason) {
		w.text(c.Reason)
	}
	if has(EndedBy) {
		w.text(c.EndedBy)
	}
	if has(Value) {
		w.text(c.Value)
	}
}

// made writes the fields of a new claim that have not been written yet.
func (w *writer) made(c *claim.Claim) {
	w.byte(uint8(c.Mode))
	w.byte(uint8(c.Type))
	for _, s := range [...]string{c.Resource, c.Owner, c.Identity, c.Session, c.Value, c.Reason, c.EndedBy} {
		w.text(s)
	}
	w.data(c.UserData)
	w.duration(c.TTL)
	w.duration(c.WaitTTL)
	w.version(c.Enqueued)
	w.version(c.Token)
	w.leased(c.Deadline)
	w.at(c.Created)
	w.at(c.Activated)
	w.at(c.Finished)
}

func (w *writer) session(c claim.SessionChange) {
	w.byte(kindSession)
	switch {
	case c.After == nil:
		w.byte(gone)
		w.text(c.Before.ID)
	case onlyRenewed(c):
		w.byte(renewed)
		w.text(c.After.ID)
		w.version(c.After.Version)
		w.leased(c.After.Attached)
	default:
		s := c.After
		w.byte(whole)
		w.text(s.ID)
		w.version(s.Version)
		for _, text := range [...]string{s.Owner, s.Identity, s.Server, s.Ending.Reason, s.Ending.By} {
			w.text(text)
		}
		w.data(s.Secret)
		w.duration(s.TTL)
		w.leased(s.Attached)
		w.leased(s.Deadline)
		w.at(s.Created)
		w.byte(uint8(s.Ending.Active))
		w.byte(uint8(s.Ending.Waiting))
	}
}

// onlyRenewed reports whether nothing but the version of a session and Attached has changed, as they do with each of its claims.
func onlyRenewed(c claim.SessionChange) bool {
	a, b := c.Before, c.After
	return a != nil && a.Server == b.Server && a.Deadline == b.Deadline && a.TTL == b.TTL &&
		a.Ending == b.Ending && a.Owner == b.Owner && a.Identity == b.Identity && a.Created == b.Created && string(a.Secret) == string(b.Secret)
}

func (w *writer) server(s Server) {
	w.byte(kindServer)
	if s.Gone {
		w.byte(gone)
		w.text(s.Name)
		return
	}
	w.byte(whole)
	w.text(s.Name)
	w.leased(s.Seen)
}

func (w *writer) row(r Row) {
	w.byte(kindRow)
	if r.Dropped {
		w.byte(gone)
	} else {
		w.byte(whole)
	}
	w.text(r.Name)
	w.version(r.Version)
}

func (w *writer) batch(b Batch) {
	w.byte(kindBatch)
	w.unsigned(b.Node)
	w.unsigned(b.Seq)
	w.data(b.Outcome)
}
