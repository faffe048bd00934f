package filelog

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	// align is where frames begin, and headerBytes the length of a header, which lies within one sector.
	align, headerBytes = 32, 32
	sector             = 512
	magic              = 0x4c6b744c // "LktL"
	trailer            = 0xff
)

var table = crc32.MakeTable(crc32.Castagnoli)

// frame is one append to the log.
type frame struct {
	number uint64
	before uint32 // the header's checksum of the frame before
	sum    uint32 // this one's
	// payload is without the trailer.
	payload []byte
}

// size returns how many bytes a payload takes in the log.
func size(payload int) int { return (headerBytes + payload + 1 + align - 1) / align * align }

// seed is where the checksums of a log begin. It is not known outside, so that nobody can send what looks like a frame.
type seed uint32

func (s seed) sum(b []byte) uint32 { return crc32.Update(uint32(s), table, b) }

// append appends a frame to a buffer, and sets its checksum.
//
// The header is the magic number, its own checksum, the length of the payload with its trailer, the payload's
// checksum, the number of the frame, and the checksum before.
func (s seed) append(buf []byte, f *frame) []byte {
	begin := len(buf)
	buf = append(buf, make([]byte, headerBytes)...)
	buf = append(buf, f.payload...)
	buf = append(buf, trailer)
	h := buf[begin : begin+headerBytes]
	binary.LittleEndian.PutUint32(h, magic)
	binary.LittleEndian.PutUint32(h[8:], uint32(len(f.payload)+1))
	binary.LittleEndian.PutUint32(h[12:], s.sum(buf[begin+headerBytes:]))
	binary.LittleEndian.PutUint64(h[16:], f.number)
	binary.LittleEndian.PutUint32(h[24:], f.before)
	f.sum = s.sum(h[8:])
	binary.LittleEndian.PutUint32(h[4:], f.sum)
	return append(buf, make([]byte, size(len(f.payload))-(len(buf)-begin))...)
}

// length returns the length of the frame at the beginning of a buffer, 0 if there is no header.
func (s seed) length(buf []byte) int {
	if len(buf) < headerBytes || binary.LittleEndian.Uint32(buf) != magic ||
		binary.LittleEndian.Uint32(buf[4:]) != s.sum(buf[8:headerBytes]) {
		return 0
	}
	return headerBytes + int(binary.LittleEndian.Uint32(buf[8:]))
}

// read reads the frame at the begin of a buffer that goes to the end of the segment. It reports whether a whole, unchanged frame is there.
func (s seed) read(buf []byte) (f frame, whole bool) {
	length := s.length(buf)
	if length <= headerBytes || size(length-headerBytes-1) > len(buf) || !zeros(buf[length:size(length-headerBytes-1)]) {
		return f, false
	}
	h := buf[:headerBytes]
	f.sum = binary.LittleEndian.Uint32(h[4:])
	f.number = binary.LittleEndian.Uint64(h[16:])
	f.before = binary.LittleEndian.Uint32(h[24:])
	body := buf[headerBytes:length]
	if s.sum(body) != binary.LittleEndian.Uint32(h[12:]) {
		return f, false
	}
	f.payload = body[:len(body)-1]
	return f, true
}

// unwritten reports whether a sector of the frame at a place in a segment was not written. The header's sector was.
func (s seed) unwritten(segment []byte, at int) bool {
	for from, end := at, at+s.length(segment[at:]); from < end; {
		to := min((from/sector+1)*sector, end)
		if zeros(segment[from:to]) {
			return true
		}
		from = to
	}
	return false
}

func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
