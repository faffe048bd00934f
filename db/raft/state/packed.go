package state

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"
	"unsafe"

	"github.com/locket-service/locket/internal/claim"
)

// packed is a live claim as the state keeps it: one string without pointers, half as large as a claim.Claim, and next to
// nothing for the garbage collector. It never changes.
//
// It begins with numbers at fixed places; then come the id, the resource, and what few claims have, each with its length
// before it.
type packed string

// The places of the numbers.
const (
	atCreated   = 8 * iota
	atDeadline  // of the lease, or of the wait
	atEnqueued  //
	atToken     //
	atVersion   //
	atTTL       //
	atActivated //
	atLengths   // of the id and of the resource, 4 bytes each
	atKinds     // the status, the mode, the type, and whether there is UserData
	atText      = atKinds + 4
)

func pack(c *claim.Claim) packed {
	parties, texts := [...]string{c.Owner, c.Identity, c.Session}, [...]string{c.Value, c.Reason, c.EndedBy}
	size := atText + len(c.ID) + len(c.Resource) + numberBytes(uint64(c.WaitTTL)) + len(c.UserData)
	for _, list := range [...][3]string{parties, texts} {
		for _, text := range list {
			size += numberBytes(uint64(len(text))) + len(text)
		}
	}
	buf := make([]byte, atText, size)
	put := func(at int, n uint64) { binary.LittleEndian.PutUint64(buf[at:], n) }
	put(atCreated, uint64(c.Created))
	put(atDeadline, uint64(c.Deadline))
	put(atEnqueued, c.Enqueued)
	put(atToken, c.Token)
	put(atVersion, c.Version)
	put(atTTL, uint64(c.TTL))
	put(atActivated, uint64(c.Activated))
	put(atLengths, uint64(len(c.ID))|uint64(len(c.Resource))<<32)
	buf[atKinds], buf[atKinds+1], buf[atKinds+2] = byte(c.Status), byte(c.Mode), byte(c.Type)
	if c.UserData != nil {
		buf[atKinds+3] = 1
	}
	buf = append(append(buf, c.ID...), c.Resource...)
	for _, text := range parties {
		buf = append(binary.AppendUvarint(buf, uint64(len(text))), text...)
	}
	buf = binary.AppendUvarint(buf, uint64(c.WaitTTL))
	for _, text := range texts {
		buf = append(binary.AppendUvarint(buf, uint64(len(text))), text...)
	}
	buf = append(buf, c.UserData...)
	return packed(unsafe.String(unsafe.SliceData(buf), len(buf))) // nobody changes it any more
}

// numberBytes is how many bytes a number takes in binary.AppendUvarint.
func numberBytes(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

// number returns the number at a place. A single load.
func (p packed) number(at int) uint64 {
	b := p[at : at+8]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

func (p packed) created() claim.Time  { return claim.Time(p.number(atCreated)) }
func (p packed) deadline() claim.Time { return claim.Time(p.number(atDeadline)) }
func (p packed) enqueued() uint64     { return p.number(atEnqueued) }
func (p packed) version() uint64      { return p.number(atVersion) }
func (p packed) ttl() time.Duration   { return time.Duration(p.number(atTTL)) }
func (p packed) status() claim.Status { return claim.Status(p[atKinds]) }
func (p packed) mode() claim.Mode     { return claim.Mode(p[atKinds+1]) }
func (p packed) kind() claim.Type     { return claim.Type(p[atKinds+2]) }
func (p packed) id() string           { return string(p[atText : atText+uint32(p.number(atLengths))]) }
func (p packed) resource() string     { return string(p[p.resourceAt():p.restAt()]) }
func (p packed) resourceAt() int      { return atText + int(uint32(p.number(atLengths))) }
func (p packed) restAt() int          { return p.resourceAt() + int(p.number(atLengths)>>32) }

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
func (p packed) parties() (owner, identity, session string) {
	r := reader(p[p.restAt():])
	return r.text(), r.text(), r.text()
}

// bare returns the claim without UserData and Value.
func (p packed) bare() claim.Claim {
	var c claim.Claim
	p.unpackBrief(&c, -1)
	c.UserData, c.Value, c.Brief = nil, "", false
	return c
}

// claim returns the claim. Its texts are parts of the packed one.
func (p packed) claim() *claim.Claim {
	c := new(claim.Claim)
	p.unpack(c)
	return c
}

// unpack makes c the claim.
func (p packed) unpack(c *claim.Claim) {
	p.unpackBrief(c, math.MaxInt)
}

// unpackBrief is unpack, without UserData and Value where they are longer than some bytes.
func (p packed) unpackBrief(c *claim.Claim, most int) {
	r := reader(p[p.restAt():])
	*c = claim.Claim{
		ID: p.id(), Resource: p.resource(), Mode: p.mode(), Type: p.kind(), TTL: p.ttl(), Status: p.status(), Enqueued: p.enqueued(),
		Token: p.number(atToken), Version: p.version(), Deadline: p.deadline(), Created: p.created(), Activated: claim.Time(p.number(atActivated)),
		Owner: r.text(), Identity: r.text(), Session: r.text(), WaitTTL: time.Duration(r.number()),
		Value: r.text(), Reason: r.text(), EndedBy: r.text(),
	}
	if len(c.Value) > most {
		c.Value, c.Brief = "", true
	}
	switch {
	case p[atKinds+3] == 0:
	case len(r) > most:
		c.Brief = true
	default:
		c.UserData = unsafe.Slice(unsafe.StringData(string(r)), len(r)) // nobody changes what a claim has
	}
}
