package state

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"
	"unsafe"

	"github.com/locket-service/locket/internal/claim"
)

// packed is a live claim as the state keeps it: numbers, and behind them, in the same piece of memory, the id, the resource,
// and what few claims have, each with its length before it. It is half as large as a claim.Claim, and has no pointers, so
// the garbage collector need not look into it. It never changes, and is used by its pointer alone.
type packed struct {
	created   claim.Time
	deadline  claim.Time // of the lease, or of the wait
	enqueued  uint64
	token     uint64
	version   uint64
	ttl       time.Duration
	activated claim.Time
	// size is that of all, idLen and resourceLen those of the texts.
	size, idLen, resourceLen uint32
	status                   claim.Status
	mode                     claim.Mode
	kind                     claim.Type
	hasData                  bool // there is UserData
}

const packedSize = int(unsafe.Sizeof(packed{}))

func pack(c *claim.Claim) *packed {
	parties, texts := [...]string{c.Owner, c.Identity, c.Session}, [...]string{c.Value, c.Reason, c.EndedBy}
	size := packedSize + len(c.ID) + len(c.Resource) + numberBytes(uint64(c.WaitTTL)) + len(c.UserData)
	for _, list := range [...][3]string{parties, texts} {
		for _, text := range list {
			size += numberBytes(uint64(len(text))) + len(text)
		}
	}
	buf := make([]byte, packedSize, size)
	p := (*packed)(unsafe.Pointer(unsafe.SliceData(buf)))
	*p = packed{
		created: c.Created, deadline: c.Deadline, enqueued: c.Enqueued, token: c.Token, version: c.Version, ttl: c.TTL, activated: c.Activated,
		size: uint32(size), idLen: uint32(len(c.ID)), resourceLen: uint32(len(c.Resource)),
		status: c.Status, mode: c.Mode, kind: c.Type, hasData: c.UserData != nil,
	}
	buf = append(append(buf, c.ID...), c.Resource...)
	for _, text := range parties {
		buf = append(binary.AppendUvarint(buf, uint64(len(text))), text...)
	}
	buf = binary.AppendUvarint(buf, uint64(c.WaitTTL))
	for _, text := range texts {
		buf = append(binary.AppendUvarint(buf, uint64(len(text))), text...)
	}
	_ = append(buf, c.UserData...)
	return p
}

// numberBytes is how many bytes a number takes in binary.AppendUvarint.
func numberBytes(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

// text returns what stands behind the numbers.
func (p *packed) text() string {
	return unsafe.String((*byte)(unsafe.Pointer(p)), p.size)[packedSize:]
}

func (p *packed) id() string       { return p.text()[:p.idLen] }
func (p *packed) resource() string { return p.text()[p.idLen:][:p.resourceLen] }
func (p *packed) rest() reader     { return reader(p.text()[p.idLen+p.resourceLen:]) }

// reader reads what stands behind the resource.
type reader string

func (r *reader) number() (n uint64) {
	for shift := 0; ; shift += 7 {
		b := (*r)[0]
		*r = (*r)[1:]
		if n |= uint64(b&0x7f) << shift; b < 0x80 {
			return n
		}
	}
}

func (r *reader) text() string {
	n := r.number()
	text := (*r)[:n]
	*r = (*r)[n:]
	return string(text)
}

// parties returns for whom the claim is.
func (p *packed) parties() (owner, identity, session string) {
	r := p.rest()
	return r.text(), r.text(), r.text()
}

// bare returns the claim without UserData and Value.
func (p *packed) bare() claim.Claim {
	var c claim.Claim
	p.unpackBrief(&c, -1)
	c.UserData, c.Value, c.Brief = nil, "", false
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
	r := p.rest()
	*c = claim.Claim{
		ID: p.id(), Resource: p.resource(), Mode: p.mode, Type: p.kind, TTL: p.ttl, Status: p.status, Enqueued: p.enqueued,
		Token: p.token, Version: p.version, Deadline: p.deadline, Created: p.created, Activated: p.activated,
		Owner: r.text(), Identity: r.text(), Session: r.text(), WaitTTL: time.Duration(r.number()),
		Value: r.text(), Reason: r.text(), EndedBy: r.text(),
	}
	if len(c.Value) > most {
		c.Value, c.Brief = "", true
	}
	switch {
	case !p.hasData:
	case len(r) > most:
		c.Brief = true
	default:
		c.UserData = unsafe.Slice(unsafe.StringData(string(r)), len(r)) // nobody changes what a claim has
	}
}
