package record

import (
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"
	"strings"
	"unsafe"

	"github.com/locket-service/locket/db/codec"
)

// Sums are checksums of the parts of a state. The decider puts the sums of the state before a record into the record, and every server
// compares them with its own: servers that have applied the same records have the same sums. The sum of a part is the sum of the hashes
// of its rows, so it does not depend on their order.
type Sums []PartSum

// PartSum is the checksum of a part.
type PartSum struct{ Part, Sum uint64 }

// The parts of a state. The numbers are stored. A part below PartSessions has the claims and the rows of the resources that begin with
// that byte.
const (
	PartSessions = iota + 256
	PartServers
	PartBatches
	PartCuts
	PartRest
	// Parts is how many there are.
	Parts
)

func (s *PartSum) code(c *codec.Coder) {
	c.Unsigned(&s.Part)
	c.Unsigned(&s.Sum)
}

// Differences names the parts that differ between two states, "" if none do.
func (l Sums) Differences(other Sums) string {
	var begins, names []string
	for part := range uint64(Parts) {
		switch name := [Parts - PartSessions]string{"sessions", "servers", "the last batches of servers", "what was deleted from the history", "lease time, floor or format"}; {
		case l.of(part) == other.of(part):
		case part < PartSessions:
			begins = append(begins, fmt.Sprintf("%q", []byte{byte(part)}))
		default:
			names = append(names, name[part-PartSessions])
		}
	}
	if len(begins) > 0 {
		names = slices.Insert(names, 0, "claims of resources that begin with "+strings.Join(begins, ", "))
	}
	return strings.Join(names, "; ")
}

// of returns the checksum of a part.
func (l Sums) of(part uint64) uint64 {
	for _, s := range l {
		if s.Part == part {
			return s.Sum
		}
	}
	return 0
}

// Hash is the hash of texts and numbers, in order. It begins as 0.
type Hash uint64

// Text adds a text.
func (h *Hash) Text(text string) { h.Data(unsafe.Slice(unsafe.StringData(text), len(text))) }

// Data adds bytes.
func (h *Hash) Data(data []byte) {
	h.Numbers(uint64(crc32.Checksum(data, table)) | uint64(len(data))<<32)
}

// Numbers adds numbers.
func (h *Hash) Numbers(numbers ...uint64) {
	for _, n := range numbers {
		high, low := bits.Mul64(uint64(*h)^n^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
		*h = Hash(high ^ low + 0xa0761d6478bd642f)
	}
}
