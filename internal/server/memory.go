package server

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// smallHeapPercent is what GOGC is for a server with little in memory: with Go's default the collector runs tens of
	// times a second under load.
	smallHeapPercent = 400
	// maxGarbage is how much garbage there is at most between two collections, or half of what is in use if that is more.
	maxGarbage = 256 << 20
)

// gcPercent returns what GOGC is to be while some bytes are in use.
func gcPercent(live uint64) int {
	return int(max(50, min(smallHeapPercent, maxGarbage*100/max(1, live))))
}

// tuneGC spends memory on speed, within bounds: after each collection it says when the next one is to be.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(smallHeapPercent)
		afterCollections(func(live uint64) { debug.SetGCPercent(gcPercent(live)) })
	}
}

// afterCollections calls do after each collection, with how many bytes are in use.
func afterCollections(do func(live uint64)) {
	collected := new([16]byte) // nothing refers to it, so that it is collected with the next garbage
	runtime.AddCleanup(collected, func(struct{}) {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		do(sample[0].Value.Uint64())
		afterCollections(do)
	}, struct{}{})
}
