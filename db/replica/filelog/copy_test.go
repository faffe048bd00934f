package filelog_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/filelog"
)

// TestCopy has a log whose entries somebody else has too lose power again and again. It opens, with every entry up to the last
// SaveEnd, and nothing that was not appended.
func TestCopy(t *testing.T) {
	o, lost := filelog.Options{SegmentBytes: 4096, Copy: true}, 0
	for seed := range uint64(rounds) {
		rnd, d := rand.New(rand.NewPCG(seed, 1)), disktest.New()
		l, err := filelog.Create(d, id, 0, o)
		if err != nil {
			t.Fatal(err)
		}
		var had contents
		for range 8 {
			saved := had.last()
			for range rnd.IntN(40) {
				data := bytes.Repeat([]byte{byte(rnd.Uint32())}, rnd.IntN(900))
				if err := l.Append(data); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				had = had.with(data)
				if rnd.IntN(20) == 0 {
					if err := l.SaveEnd(); err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					saved = had.last()
				}
			}
			after := d.Crash(rnd)
			_ = l.Close() // of the process that is gone
			d = after
			if l, err = filelog.Open(d, id, saved, o); err != nil {
				t.Fatalf("seed %d, after entry %d was saved: %v", seed, saved, err)
			}
			lost += int(had.last() - l.Last())
			if had.entries = had.entries[:l.Last()]; !had.suffix(of(t, l, 500)) {
				t.Fatalf("seed %d: the log has other entries than were appended", seed)
			}
		}
		_ = l.Close() // the disk does not fail
	}
	if lost == 0 {
		t.Error("no entry was lost")
	}
}
