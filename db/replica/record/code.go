package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
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
	kindCut
	kindSum
	kindFormat
)

// The ways to code a change of a session.
const (
	whole uint8 = iota
	renewed
	gone
)

// itemBytes is the usual maximum size of an item.
const itemBytes = 128

// sumBytes is the length of the checksum at the end of a record.
const sumBytes = 4

var table = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the checksum of a record; it continues the checksum of the record before.
func Sum(before uint32, body []byte) uint32 { return crc32.Update(before, table, body) }

// Checksum returns the checksum of a record, and whether it is right after a record with the checksum before.
func Checksum(before uint32, record []byte) (sum uint32, ok bool) {
	if len(record) < sumBytes {
		return 0, false
	}
	body := record[:len(record)-sumBytes]
	sum = binary.LittleEndian.Uint32(record[len(body):])
	return sum, sum == Sum(before, body)
}

// Append appends a record to a buffer. before is the checksum of the record before it, 0 for the first. It also returns
// the record's own checksum, which comes last in it.
//
// A record has the version, the header, and the items; each begins with its kind. Versions and times are written as
// differences from the times in the header.
func Append(buf []byte, before uint32, r *Record) ([]byte, uint32) {
	begin := len(buf)
	c := codec.Writer(slices.Grow(buf, itemBytes*(1+len(r.Claims)+len(r.Sessions))))
	c.Format(Version)
	r.codeHeader(&c)
	item := func(kind uint8) *codec.Coder { c.Byte(&kind); return &c }
	if r.Floor != 0 {
		item(kindFloor).Version(&r.Floor)
	}
	if r.Format != 0 {
		item(kindFormat).Unsigned(&r.Format)
	}
	if r.Quarantine != 0 {
		item(kindQuarantine).Lease(&r.Quarantine)
	}
	for _, t := range r.Claims {
		item(kindClaim).Change(t)
	}
	for _, change := range r.Sessions {
		s := sessionOf(change)
		s.code(item(kindSession))
	}
	for i := range r.Servers {
		r.Servers[i].code(item(kindServer))
	}
	for i := range r.Rows {
		r.Rows[i].code(item(kindRow))
	}
	for i := range r.Batches {
		r.Batches[i].code(item(kindBatch))
	}
	for i := range r.Cuts {
		r.Cuts[i].code(item(kindCut))
	}
	for i := range r.Sums {
		r.Sums[i].code(item(kindSum))
	}
	sum := Sum(before, c.Buffer()[begin:])
	return binary.LittleEndian.AppendUint32(c.Buffer(), sum), sum
}

// Read decodes the output of Append, without its checksum: see Check. The result does not share memory with the record.
// It returns ErrFormat if data is not a record of this version.
func Read(record []byte) (*Decoded, error) {
	d := &Decoded{}
	if err := d.read(record, false); err != nil {
		return nil, err
	}
	return d, nil
}

// ReadInto is Read into d, whose memory it uses again. The texts and the data of claims and rows are parts of the record, which must not change.
func ReadInto(d *Decoded, record []byte) error {
	*d = Decoded{Claims: d.Claims[:0], Sessions: d.Sessions[:0], Servers: d.Servers[:0], Rows: d.Rows[:0]}
	return d.read(record, true)
}

func (d *Decoded) read(record []byte, parts bool) error {
	if len(record) < sumBytes {
		return fmt.Errorf("%w: it is cut off", ErrFormat)
	}
	c := codec.Reader(record[:len(record)-sumBytes])
	c.Format(Version)
	d.codeHeader(&c)
	for c.More() {
		var kind uint8
		c.Byte(&kind)
		c.Sharing(parts && (kind == kindClaim || kind == kindRow))
		switch kind {
		case kindClaim:
			c.Patch(add(&d.Claims))
		case kindSession:
			add(&d.Sessions).code(&c)
		case kindServer:
			add(&d.Servers).code(&c)
		case kindRow:
			add(&d.Rows).code(&c)
		case kindFloor:
			c.Version(&d.Floor)
		case kindQuarantine:
			c.Lease(&d.Quarantine)
		case kindBatch:
			add(&d.Batches).code(&c)
		case kindCut:
			add(&d.Cuts).code(&c)
		case kindFormat:
			c.Unsigned(&d.Format)
		case kindSum:
			add((*[]PartSum)(&d.Sums)).code(&c)
		default:
			c.Fail("kind")
		}
	}
	left := len(d.Claims)
	for _, b := range d.Batches {
		if left -= b.Claims; b.Claims < 0 || left < 0 {
			c.Fail("batch")
		}
	}
	return c.Err()
}

// add adds an element to a slice.
func add[T any](l *[]T) *T {
	*l = append(*l, *new(T))
	return &(*l)[len(*l)-1]
}

func (h *Header) codeHeader(c *codec.Coder) {
	codec.Signed(c, &h.Wall)
	codec.Signed(c, &h.Lease)
	c.Near(h.Wall, h.Lease)
}

// sessionOf returns the part of a record for a changed session.
func sessionOf(change claim.SessionChange) Session {
	switch before, after := change.Before, change.After; {
	case after == nil:
		return Session{ID: before.ID, Ended: true}
	case onlyRenewed(change):
		return Session{ID: after.ID, Version: after.Version, Attached: after.Attached}
	default:
		return Session{Put: after}
	}
}

// onlyRenewed reports whether nothing but the version of a session and Attached has changed, as they do with each of its claims.
func onlyRenewed(c claim.SessionChange) bool {
	a, b := c.Before, c.After
	return a != nil && a.Server == b.Server && a.Deadline == b.Deadline && a.TTL == b.TTL &&
		a.Ending == b.Ending && a.Owner == b.Owner && a.Identity == b.Identity && a.Created == b.Created && string(a.Secret) == string(b.Secret)
}

func (s *Session) code(c *codec.Coder) {
	how := renewed
	switch {
	case s.Put != nil:
		how = whole
	case s.Ended:
		how = gone
	}
	codec.Small(c, &how, gone)
	if how == whole {
		if c.Reads() {
			s.Put = new(claim.Session)
		}
		c.Session(s.Put)
		s.ID, s.Version = s.Put.ID, s.Put.Version
		return
	}
	c.Text(&s.ID)
	if s.Ended = how == gone; !s.Ended {
		c.Version(&s.Version)
		c.Lease(&s.Attached)
	}
}

func (s *Server) code(c *codec.Coder) {
	c.Flag(&s.Gone)
	if c.Text(&s.Name); !s.Gone {
		c.Lease(&s.Seen)
	}
}

func (r *Row) code(c *codec.Coder) {
	c.Flag(&r.Dropped)
	c.Text(&r.Name)
	c.Version(&r.Version)
}

func (b *Batch) code(c *codec.Coder) {
	c.Unsigned(&b.Node)
	c.Unsigned(&b.Seq)
	codec.Signed(c, &b.Claims)
	c.Data(&b.Outcome)
}
