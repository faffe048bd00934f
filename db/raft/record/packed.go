package record

import (
	"encoding/binary"
	"unsafe"
)

// Packed is a Patch as a record has it, which takes a fraction of its memory.
type Packed string

// Pack returns the patch as it is written, and a buffer for the next call; it may be nil at first.
func (p *Patch) Pack(buf []byte) (Packed, []byte) {
	w := writer{buf: buf[:0]}
	w.patch(p.Fields, p.From, &p.Claim)
	return Packed(w.buf), w.buf
}

// Patch returns what was packed. Its texts and data are parts of p.
func (p Packed) Patch() (patch Patch) {
	r := reader{rest: unsafe.Slice(unsafe.StringData(string(p)), len(p)), parts: true}
	r.claim(&patch)
	return patch
}

// ID returns the id of the claim, as a part of p.
func (p Packed) ID() string {
	rest := unsafe.Slice(unsafe.StringData(string(p)), len(p))
	_, head := binary.Uvarint(rest)
	n, size := binary.Uvarint(rest[head:])
	return string(p[head+size:][:n])
}
