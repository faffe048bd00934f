package server

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
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

// TestGarbageBesideStacks: the bound of the garbage also holds where stacks use much of the memory, as with many streams.
func TestGarbageBesideStacks(t *testing.T) {
	const goroutines, stack = 500, 64 << 10
	end := make(chan struct{})
	var all, deep sync.WaitGroup
	deep.Add(goroutines)
	for range goroutines {
		all.Go(func() {
			var used [stack]byte
			deep.Done()
			<-end
			runtime.KeepAlive(&used)
		})
	}
	defer all.Wait()
	defer close(end)
	deep.Wait()
	told := make(chan uint64, 100)
	afterCollections(func(inUse uint64) {
		select {
		case told <- inUse:
		default:
		}
	})
	runtime.GC()
	inUse := <-told
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent(inUse)))
	samples := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	if garbage := samples[0].Value.Uint64() - samples[1].Value.Uint64(); garbage > maxGarbage+maxGarbage/10 {
		t.Errorf("there may be %d MiB of garbage beside %d MiB in use", garbage>>20, inUse>>20)
	}
}
