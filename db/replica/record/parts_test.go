package record

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// TestParts: entries are no larger than the log takes, and make the same records again, whatever a deposed decider has left
// between two of them.
func TestParts(t *testing.T) {
	const most = 16
	rnd, joiner, left := rand.New(rand.NewPCG(1, 0)), new(Joiner), 0
	for range 2000 {
		record := make([]byte, 1+rnd.IntN(5*most))
		for n := range record {
			record[n] = byte(rnd.Uint32())
		}
		record[0] = Version
		entries := Split(record, most)
		all := len(entries)
		if all > 1 && rnd.IntN(3) == 0 { // the decider is deposed
			entries = entries[:1+rnd.IntN(all-1)]
			left++
		}
		for n, entry := range entries {
			if len(entry) > most || GoesOn(entry) != (n > 0) {
				t.Fatalf("entry %d of %d has %d bytes: %x", n, all, len(entry), entry)
			}
			got, err := joiner.Add(entry)
			if last := n == all-1; err != nil || last != (got != nil) || last && !bytes.Equal(got, record) {
				t.Fatalf("entry %d of %d of %x gives %x (%v)", n, all, record, got, err)
			}
		}
	}
	if left == 0 {
		t.Error("no record was left without its end")
	}
}

// TestNoParts: entries that no decider appends are errors.
func TestNoParts(t *testing.T) {
	for _, entry := range [][]byte{{}, {partMiddle, 1}, {partLast, 1}} {
		joiner := new(Joiner)
		for n, before := range [][]byte{nil, {partFirst, 1}, {Version, 1}} { // the last one replaces the parts before it
			if before != nil {
				_, _ = joiner.Add(before)
			}
			if n == 1 {
				continue
			}
			if record, err := joiner.Add(entry); !errors.Is(err, ErrFormat) {
				t.Errorf("after %x, %x gives %x (%v)", before, entry, record, err)
			}
		}
	}
}
