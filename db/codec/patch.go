package codec

import (
	"time"
	"unsafe"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Fields says which fields of a claim a Patch has. The status and the version are always there.
type Fields uint64

// Made is a new claim: all fields are there. The other bits each stand for one field, in order.
const Made Fields = 1

// field is a field that may change after a claim was made.
type field struct {
	code    func(*Coder, *claim.Claim)
	differs func(before, after *claim.Claim) bool
	set     func(to, from *claim.Claim)
}

// fields are all of them. Their places are stored: they are only added to, at the end.
var fields = [...]field{
	fieldOf(func(x *claim.Claim) *claim.Type { return &x.Type }, func(c *Coder, t *claim.Type) { Small(c, t, anyType) }),
	fieldOf(func(x *claim.Claim) *time.Duration { return &x.TTL }, (*Coder).Duration),
	fieldOf(func(x *claim.Claim) *uint64 { return &x.Token }, (*Coder).Version),
	fieldOf(func(x *claim.Claim) *claim.Time { return &x.Deadline }, (*Coder).Lease),
	fieldOf(func(x *claim.Claim) *claim.Time { return &x.Activated }, (*Coder).Wall),
	fieldOf(func(x *claim.Claim) *claim.Time { return &x.Finished }, (*Coder).Wall),
	fieldOf(func(x *claim.Claim) *string { return &x.Reason }, (*Coder).Text),
	fieldOf(func(x *claim.Claim) *string { return &x.EndedBy }, (*Coder).Text),
	valueField,
}

// valueField is Value. A claim that was read in part does not have it, and has not changed it.
var valueField = func() field {
	f := fieldOf(func(x *claim.Claim) *string { return &x.Value }, (*Coder).Text)
	f.differs = func(before, after *claim.Claim) bool {
		return claim.Transition{Before: before, After: after}.SetsValue()
	}
	return f
}()

func fieldOf[T comparable](of func(*claim.Claim) *T, code func(*Coder, *T)) field {
	return field{
		code:    func(c *Coder, x *claim.Claim) { code(c, of(x)) },
		differs: func(before, after *claim.Claim) bool { return *of(before) != *of(after) },
		set:     func(to, from *claim.Claim) { *of(to) = *of(from) },
	}
}

func bit(n int) Fields { return Made << (n + 1) }

// Patch is a change of one claim.
type Patch struct {
	Fields Fields
	// From is the status before, 0 for a claim that is Made.
	From claim.Status
	// Claim has the ID, the Status, the Version and the Fields.
	Claim claim.Claim
}

// Change codes a change of a claim as a Patch. A Coder that reads gets it with Patch.
func (c *Coder) Change(t claim.Transition) {
	which, from := Made, claim.Status(0)
	if t.Before != nil {
		which, from = 0, t.Before.Status
		for n := range fields {
			if fields[n].differs(t.Before, t.After) {
				which |= bit(n)
			}
		}
	}
	c.patch(&which, &from, t.After)
}

// Patch codes a patch.
func (c *Coder) Patch(p *Patch) { c.patch(&p.Fields, &p.From, &p.Claim) }

func (c *Coder) patch(which *Fields, from *claim.Status, x *claim.Claim) {
	c.Unsigned((*uint64)(which))
	if *which&Made != 0 {
		if c.Claim(x); c.reads && (*which != Made || !x.Status.Valid()) {
			c.Fail("claim")
		}
		return
	}
	c.Text(&x.ID)
	Small(c, from, claim.Revoked)
	Small(c, &x.Status, claim.Revoked)
	c.Version(&x.Version)
	if c.reads && (*which >= bit(len(fields)) || !from.Valid() || !x.Status.Valid()) {
		c.Fail("claim")
	}
	for n := range fields {
		if *which&bit(n) != 0 {
			fields[n].code(c, x)
		}
	}
}

// Apply changes a claim as the patch says.
func (p *Patch) Apply(x *claim.Claim) {
	if p.Fields&Made != 0 {
		*x = p.Claim
		return
	}
	x.Status, x.Version = p.Claim.Status, p.Claim.Version
	for n := range fields {
		if p.Fields&bit(n) != 0 {
			fields[n].set(x, &p.Claim)
		}
	}
}

// Then returns one patch that does what both do, one after the other.
func (p *Patch) Then(next *Patch) Patch {
	both := *p
	next.Apply(&both.Claim)
	both.Fields |= next.Fields
	if both.Fields&Made != 0 {
		both.Fields = Made
	}
	return both
}

// Packed is an encoded Patch, which takes a fraction of its memory.
type Packed string

// Pack returns the encoded patch, and a buffer for the next call; it may be nil at first.
func (p *Patch) Pack(buf []byte) (Packed, []byte) {
	c := Writer(buf[:0])
	c.Patch(p)
	return Packed(c.buf), c.buf
}

// Patch decodes the patch. Its texts and data are parts of p.
func (p Packed) Patch() (patch Patch) {
	c := p.reader()
	c.Patch(&patch)
	return patch
}

// ID returns the id of the claim, as a part of p.
func (p Packed) ID() (id string) {
	c := p.reader()
	var which uint64
	c.Unsigned(&which)
	c.Text(&id)
	return id
}

func (p Packed) reader() Coder {
	c := Reader(unsafe.Slice(unsafe.StringData(string(p)), len(p)))
	c.Sharing(true)
	return c
}
