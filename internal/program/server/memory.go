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
	// maxGarbage limits the garbage between two collections, in bytes; half of the memory in use if that is more.
	maxGarbage = 256 << 20
)

// gcPercent returns GOGC for so many bytes in use.
func gcPercent(inUse uint64) int {
	return int(max(50, min(smallHeapPercent, maxGarbage*100/max(1, inUse))))
}

// tuneGC trades memory for speed, within limits: after each collection it sets when the next one comes. It does nothing
// if $GOGC is set.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(smallHeapPercent)
		afterCollections(func(inUse uint64) { debug.SetGCPercent(gcPercent(inUse)) })
	}
}

// inUse are the metrics whose sum GOGC is a percentage of: the live heap, the stacks and the globals.
var inUse = []string{"/gc/heap/live:bytes", "/gc/scan/stack:bytes", "/gc/scan/globals:bytes"}

// afterCollections calls do after each collection, with how many bytes are in use.
func afterCollections(do func(inUse uint64)) {
	collected := new([16]byte) // unreachable, so that the next collection collects it
	runtime.AddCleanup(collected, func(struct{}) {
		samples := make([]metrics.Sample, len(inUse))
		for i, name := range inUse {
			samples[i].Name = name
		}
		metrics.Read(samples)
		sum := uint64(0)
		for _, sample := range samples {
			sum += sample.Value.Uint64()
		}
		do(sum)
		afterCollections(do)
	}, struct{}{})
}
