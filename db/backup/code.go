package backup

import (
	"encoding/binary"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// coder writes fields, or reads them into where the pointers point. A field is written as it is read.
type coder interface {
	text(s *string)
	data(b *[]byte)
	number(n *int64)
	unsigned(n *uint64)
	byte(b *uint8)
}

func codeTime(c coder, t *claim.Time) { code(c.number, t) }

func codeDuration(c coder, d *time.Duration) { code(c.number, d) }

func codeStatus(c coder, s *claim.Status) { code(c.byte, s) }

// code codes a value by the type that is below its own. What is written stays as it is, also while others read it.
func code[T, B ~int64 | ~uint8 | ~int](as func(*B), value *T) {
	below := B(*value)
	as(&below)
	if T(below) != *value {
		*value = T(below)
	}
}

func codeHead(c coder, h *Head) {
	c.text(&h.Engine)
	codeTime(c, &h.Taken)
	codeTime(c, &h.Lease)
	c.unsigned(&h.Floor)
	codeTime(c, &h.Quarantine)
}

func codeClaim(c coder, x *claim.Claim) {
	for _, s := range [...]*string{&x.ID, &x.Resource, &x.Owner, &x.Identity, &x.Session, &x.Value, &x.Reason, &x.EndedBy} {
		c.text(s)
	}
	c.data(&x.UserData)
	code(c.byte, &x.Mode)
	code(c.byte, &x.Type)
	codeStatus(c, &x.Status)
	codeDuration(c, &x.TTL)
	codeDuration(c, &x.WaitTTL)
	for _, n := range [...]*uint64{&x.Enqueued, &x.Token, &x.Version} {
		c.unsigned(n)
	}
	for _, t := range [...]*claim.Time{&x.Deadline, &x.Created, &x.Activated, &x.Finished} {
		codeTime(c, t)
	}
}

func codeSession(c coder, s *claim.Session) {
	for _, text := range [...]*string{&s.ID, &s.Owner, &s.Identity, &s.Server, &s.Ending.Reason, &s.Ending.By} {
		c.text(text)
	}
	c.data(&s.Secret)
	codeDuration(c, &s.TTL)
	for _, t := range [...]*claim.Time{&s.Attached, &s.Deadline, &s.Created} {
		codeTime(c, t)
	}
	c.unsigned(&s.Version)
	codeStatus(c, &s.Ending.Active)
	codeStatus(c, &s.Ending.Waiting)
}

func codeServer(c coder, s *Server) {
	c.text(&s.Name)
	codeTime(c, &s.Seen)
}

func codeRow(c coder, r *Row) {
	c.text(&r.Resource)
	c.unsigned(&r.Version)
	counted := uint8(0)
	if r.Counted {
		counted = 1
	}
	c.byte(&counted)
	if r.Counted = counted == 1; !r.Counted {
		return
	}
	c.text(&r.Holder)
	shared, waiting := int64(r.Shared), int64(r.Waiting)
	c.number(&shared)
	c.number(&waiting)
	r.Shared, r.Waiting = int(shared), int(waiting)
}

// appender is a coder that writes.
type appender struct{ buf []byte }

func (a *appender) byte(b *uint8)      { a.buf = append(a.buf, *b) }
func (a *appender) number(n *int64)    { a.buf = binary.AppendVarint(a.buf, *n) }
func (a *appender) unsigned(n *uint64) { a.buf = binary.AppendUvarint(a.buf, *n) }

func (a *appender) text(s *string) {
	a.buf = append(binary.AppendUvarint(a.buf, uint64(len(*s))), *s...)
}

// data writes bytes, of which none is not the same as nil.
func (a *appender) data(b *[]byte) {
	if *b == nil {
		a.buf = append(a.buf, 0)
		return
	}
	a.buf = append(binary.AppendUvarint(a.buf, uint64(len(*b))+1), *b...)
}

// parser is a coder that reads.
type parser struct {
	rest   []byte
	failed bool
}

func (p *parser) fail() { p.rest, p.failed = nil, true }

func (p *parser) byte(b *uint8) {
	if len(p.rest) == 0 {
		p.fail()
		return
	}
	*b, p.rest = p.rest[0], p.rest[1:]
}

func (p *parser) number(n *int64) {
	value, size := binary.Varint(p.rest)
	if size <= 0 {
		p.fail()
		return
	}
	*n, p.rest = value, p.rest[size:]
}

func (p *parser) unsigned(n *uint64) {
	value, size := binary.Uvarint(p.rest)
	if size <= 0 {
		p.fail()
		return
	}
	*n, p.rest = value, p.rest[size:]
}

func (p *parser) bytes(length uint64) (b []byte) {
	if length > uint64(len(p.rest)) {
		p.fail()
		return nil
	}
	b, p.rest = p.rest[:length], p.rest[length:]
	return b
}

func (p *parser) text(s *string) {
	var length uint64
	p.unsigned(&length)
	*s = string(p.bytes(length))
}

func (p *parser) data(b *[]byte) {
	var length uint64
	if p.unsigned(&length); length > 0 {
		*b = append([]byte{}, p.bytes(length-1)...)
	}
}
