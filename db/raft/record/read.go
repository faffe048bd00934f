package record

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"github.com/locket-service/locket/internal/claim"
)

// Check returns the checksum of a record, and whether it is the one that follows the record with the checksum before.
func Check(before uint32, record []byte) (sum uint32, ok bool) {
	if len(record) < sumBytes {
		return 0, false
	}
	body := record[:len(record)-sumBytes]
	sum = binary.LittleEndian.Uint32(record[len(body):])
	return sum, sum == Sum(before, body)
}

// Read returns what Append wrote, but for the checksum: see Check. What it returns does not share memory with the
// record. It returns ErrFormat for what is no record of this version.
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
	if err := checkVersion(record); err != nil {
		return err
	}
	if len(record) < 1+sumBytes {
		return fmt.Errorf("%w: it is cut off", ErrFormat)
	}
	r := reader{rest: record[1 : len(record)-sumBytes]}
	d.Term, d.Seq = r.unsigned(), r.unsigned()
	d.Wall, d.Lease = claim.Time(r.number()), claim.Time(r.number())
	r.wall, r.lease = int64(d.Wall), int64(d.Lease)
	for len(r.rest) > 0 && r.err == nil {
		kind := r.byte()
		r.parts = parts && (kind == kindClaim || kind == kindRow)
		switch kind {
		case kindClaim:
			d.Claims = append(d.Claims, Patch{})
			r.claim(&d.Claims[len(d.Claims)-1])
		case kindSession:
			d.Sessions = append(d.Sessions, r.session())
		case kindServer:
			d.Servers = append(d.Servers, r.server())
		case kindRow:
			d.Rows = append(d.Rows, r.row())
		case kindFloor:
			d.Floor = r.version()
		case kindQuarantine:
			d.Quarantine = r.leased()
		case kindBatch:
			d.Batches = append(d.Batches, Batch{Origin{r.unsigned(), r.unsigned()}, r.data()})
		default:
			r.fail("kind")
		}
	}
	return r.err
}

type reader struct {
	rest        []byte
	wall, lease int64
	parts       bool // texts and data are parts of the record
	err         error
}

func (r *reader) version() uint64         { return uint64(r.near(r.wall)) }
func (r *reader) at() claim.Time          { return claim.Time(r.near(r.wall)) }
func (r *reader) leased() claim.Time      { return claim.Time(r.near(r.lease)) }
func (r *reader) duration() time.Duration { return time.Duration(r.number()) }

// claim reads what writer.patch wrote.
func (r *reader) claim(p *Patch) {
	head := r.unsigned()
	p.Fields, p.From = Fields(head>>6), claim.Status(head>>3&7)
	c := &p.Claim
	c.Status = claim.Status(head & 7)
	if head>>6 > uint64(allFields) || !c.Status.Valid() || (p.Fields&Made != 0) != (p.From == 0) || p.Fields&Made != 0 && p.Fields != Made {
		r.fail("claim")
		return
	}
	c.ID, c.Version = r.text(), r.version()
	if p.Fields&Made != 0 {
		r.made(c)
		return
	}
	has := func(f Fields) bool { return p.Fields&f != 0 }
	if has(Type) {
		c.Type = claim.Type(r.byte())
	}
	if has(TTL) {
		c.TTL = r.duration()
	}
	if has(Token) {
		c.Token = r.version()
	}
	if has(Deadline) {
		c.Deadline = r.leased()
	}
	if has(Activated) {
		c.Activated = r.at()
	}
	if has(Finished) {
		c.Finished = r.at()
	}
	if has(Reason) {
		c.Reason = r.text()
	}
	if has(EndedBy) {
		c.EndedBy = r.text()
	}
	if has(Value) {
		c.Value = r.text()
	}
}

func (r *reader) made(c *claim.Claim) {
	if c.Mode = claim.Mode(r.byte()); c.Mode > claim.Shared {
		r.fail("mode")
	}
	c.Type = claim.Type(r.byte())
	for _, s := range [...]*string{&c.Resource, &c.Owner, &c.Identity, &c.Session, &c.Value, &c.Reason, &c.EndedBy} {
		*s = r.text()
	}
	c.UserData = r.data()
	c.TTL, c.WaitTTL = r.duration(), r.duration()
	c.Enqueued, c.Token = r.version(), r.version()
	c.Deadline = r.leased()
	c.Created, c.Activated, c.Finished = r.at(), r.at(), r.at()
}

func (r *reader) session() (s Session) {
	how := r.byte()
	s.ID = r.text()
	switch how {
	case gone:
		s.Ended = true
	case renewed:
		s.Version, s.Attached = r.version(), r.leased()
	case whole:
		p := &claim.Session{ID: s.ID, Version: r.version()}
		for _, text := range [...]*string{&p.Owner, &p.Identity, &p.Server, &p.Ending.Reason, &p.Ending.By} {
			*text = r.text()
		}
		p.Secret = r.data()
		p.TTL = r.duration()
		p.Attached, p.Deadline, p.Created = r.leased(), r.leased(), r.at()
		p.Ending.Active, p.Ending.Waiting = claim.Status(r.byte()), claim.Status(r.byte())
		s.Put, s.Version = p, p.Version
	default:
		r.fail("session")
	}
	return s
}

func (r *reader) server() (s Server) {
	how := r.byte()
	s.Name = r.text()
	switch how {
	case gone:
		s.Gone = true
	case whole:
		s.Seen = r.leased()
	default:
		r.fail("server")
	}
	return s
}

func (r *reader) row() (row Row) {
	how := r.byte()
	row.Name, row.Version = r.text(), r.version()
	if row.Dropped = how == gone; !row.Dropped && how != whole {
		r.fail("row")
	}
	return row
}

func (r *reader) byte() uint8 {
	if len(r.rest) == 0 {
		r.fail("byte")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) number() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.fail("number")
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) unsigned() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.fail("number")
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text() string {
	taken := r.take(r.unsigned())
	if r.parts {
		return unsafe.String(unsafe.SliceData(taken), len(taken))
	}
	return string(taken)
}

func (r *reader) data() []byte {
	n := r.unsigned()
	if n == 0 {
		return nil
	}
	taken := r.take(n - 1)
	if r.parts {
		return taken[:len(taken):len(taken)]
	}
	return append([]byte{}, taken...)
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.fail("text")
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) near(base int64) int64 {
	switch code := r.unsigned(); code {
	case codeZero:
		return 0
	case codeForever:
		return int64(claim.Forever)
	case codeFar:
		return r.number()
	default:
		code -= codeNear
		return base + (int64(code>>1) ^ -int64(code&1))
	}
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: its %s is cut off or wrong", ErrFormat, what)
	}
	r.rest = nil
}
