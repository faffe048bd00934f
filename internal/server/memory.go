package server

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// smallHeapPercent is GOGC for a server with a small heap: with Go's default the collector runs tens of times a
	// second under load, and at 400 it still takes a tenth of the processor time of commands over streams.
	smallHeapPercent = 1000
	// maxGarbage limits the garbage between two collections, in bytes; half of the live heap if that is more.
	maxGarbage = 256 << 20
)

// gcPercent returns GOGC for a live heap of some bytes.
func gcPercent(live uint64) int {
	return int(max(50, min(smallHeapPercent, maxGarbage*100/max(1, live))))
}

// tuneGC trades memory for speed, within limits: after each collection it sets when the next one comes. It does nothing
// if $GOGC is set.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(smallHeapPercent)
		afterCollections(func(live uint64) { debug.SetGCPercent(gcPercent(live)) })
	}
}

// afterCollections calls do after each collection, with the size of the live heap in bytes.
func afterCollections(do func(live uint64)) {
	collected := new([16]byte) // unreachable, so that the next collection collects it
	runtime.AddCleanup(collected, func(struct{}) {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		do(sample[0].Value.Uint64())
		afterCollections(do)
	}, struct{}{})
}
