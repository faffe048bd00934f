package state

import (
	"math"
	"time"
	"unsafe"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
)

// packed is a live claim as the state keeps it: what indexes and rules need at once, and behind it, in the same piece of memory,
// the id, the resource, and the codec.Coder.Rest of the claim. It is half as large as a claim.Claim, and has no pointers, so the
// garbage collector need not look into it. It never changes, and is used by its pointer alone.
type packed struct {
	created   claim.Time
	deadline  claim.Time // of the lease, or of the wait
	enqueued  uint64
	token     uint64
	version   uint64
	ttl       time.Duration
	activated claim.Time
	// sizes of everything, and of the texts
	size               uint32
	idLen, resourceLen uint16
	status             claim.Status
	shares             bool // it takes a part of the units
	kind               claim.Type
}

// packedSize is where the id begins: the padding at the end of the struct is used too.
const packedSize = int(unsafe.Offsetof(packed{}.kind) + unsafe.Sizeof(packed{}.kind))

// pack returns a claim in as much memory as it needs, and a buffer for the next call; it may be nil at first.
func pack(buffer []byte, c *claim.Claim) (_ *packed, used []byte) {
	w := codec.Writer(buffer[:0])
	w.Rest(c)
	rest := w.Buffer()
	size := packedSize + len(c.ID) + len(c.Resource) + len(rest)
	buf := make([]byte, packedSize, size)
	p := (*packed)(unsafe.Pointer(unsafe.SliceData(buf)))
	*p = packed{
		created: c.Created, deadline: c.Deadline, enqueued: c.Enqueued, token: c.Token, version: c.Version, ttl: c.TTL, activated: c.Activated,
		size: uint32(size), idLen: uint16(len(c.ID)), resourceLen: uint16(len(c.Resource)),
		status: c.Status, shares: !c.Units.All(), kind: c.Type,
	}
	buf = append(append(buf, c.ID...), c.Resource...)
	_ = append(buf, rest...)
	return p, rest
}

// text returns the bytes after the numbers.
func (p *packed) text() string {
	return unsafe.String((*byte)(unsafe.Pointer(p)), p.size)[packedSize:]
}

func (p *packed) id() string       { return p.text()[:p.idLen] }
func (p *packed) resource() string { return p.text()[p.idLen:][:p.resourceLen] }

// rest reads the part after the resource. The results are parts of the packed claim.
func (p *packed) rest() codec.Coder {
	text := p.text()[int(p.idLen)+int(p.resourceLen):]
	r := codec.Reader(unsafe.Slice(unsafe.StringData(text), len(text)))
	r.Sharing(true)
	return r
}

// units returns how many units the claim takes.
func (p *packed) units() (u claim.Units) {
	if p.shares {
		r := p.rest()
		r.Units(&u)
	}
	return u
}

// parties returns the owner, the identity and the session of the claim.
func (p *packed) parties() (owner, identity, session string) {
	var c claim.Claim
	r := p.rest()
	r.Units(&c.Units)
	r.Parties(&c)
	return c.Owner, c.Identity, c.Session
}

// bare returns the claim without UserData and Value.
func (p *packed) bare() claim.Claim {
	var c claim.Claim
	p.unpackBrief(&c, -1)
	c.UserData, c.Value, c.Brief = nil, "", false
	return c
}

// queued returns the claim as a queue has it, with the beginning of its value.
func (p *packed) queued() claim.Claim {
	var c claim.Claim
	p.unpackBrief(&c, math.MaxInt)
	c.UserData, c.Value, c.Brief = nil, db.Beginning(c.Value), false
	return c
}

// claim returns the claim. Its texts are parts of the packed one.
func (p *packed) claim() *claim.Claim {
	c := new(claim.Claim)
	p.unpack(c)
	return c
}

// unpack makes c the claim.
func (p *packed) unpack(c *claim.Claim) {
	p.unpackBrief(c, math.MaxInt)
}

// unpackBrief is unpack, without UserData and Value where they are longer than some bytes.
func (p *packed) unpackBrief(c *claim.Claim, most int) {
	*c = claim.Claim{
		ID: p.id(), Resource: p.resource(), Type: p.kind, TTL: p.ttl, Status: p.status, Enqueued: p.enqueued,
		Token: p.token, Version: p.version, Deadline: p.deadline, Created: p.created, Activated: p.activated,
	}
	r := p.rest()
	r.Rest(c)
	if len(c.Value) > most {
		c.Value, c.Brief = "", true
	}
	if c.UserData != nil && len(c.UserData) > most {
		c.UserData, c.Brief = nil, true
	}
}
