package server

import (
	"runtime"
	"testing"
)

func TestGCPercent(t *testing.T) {
	const mib = 1 << 20
	for live, want := range map[uint64]int{0: 1000, 10 * mib: 1000, 25 * mib: 1000, 64 * mib: 400, 128 * mib: 200, 256 * mib: 100, 512 * mib: 50, 4096 * mib: 50} {
		if got := gcPercent(live); got != want {
			t.Errorf("with %d MiB in use: %d, want %d", live/mib, got, want)
		}
	}
}

func TestAfterCollections(t *testing.T) {
	told := make(chan uint64, 1)
	afterCollections(func(live uint64) {
		select {
		case told <- live:
		default:
		}
	})
	for seen := 0; seen < 3; { // each time again
		runtime.GC()
		select {
		case live := <-told:
			if live == 0 {
				t.Error("nothing is in use")
			}
			seen++
		default:
			runtime.Gosched()
		}
	}
}
