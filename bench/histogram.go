package main

import (
	"math/bits"
	"sync"
	"time"
)

const (
	// octave is how many buckets there are between a duration and its double: a quantile is at most 1/64 too high.
	octave     = 64
	octaveBits = 7
	// longest is the limit of the last bucket, which has all longer durations.
	longest = 1<<32 - 1
)

// histogram counts durations in buckets whose width grows with the duration, so that any number of samples takes the
// same memory.
type histogram struct {
	mu      sync.Mutex
	buckets [27 * octave]uint64
	count   uint64
	max     time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buckets[bucketOf(d)]++
	h.count++
	h.max = max(h.max, d)
}

// addAll adds the samples of another histogram, which must not be in use.
func (h *histogram) addAll(other *histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.count += other.count
	h.max = max(h.max, other.max)
}

// quantile returns the duration that a share of the samples does not exceed.
func (h *histogram) quantile(share float64) time.Duration {
	rank := uint64(share * float64(h.count))
	for i, n := range h.buckets {
		if n > rank {
			return min(endOf(i), h.max)
		}
		rank -= n
	}
	return h.max
}

// bucketOf returns the bucket of a duration: one for each microsecond at first, then
// octave buckets for each doubling.
func bucketOf(d time.Duration) int {
	us := uint64(min(max(d.Microseconds(), 0), longest))
	shift := max(bits.Len64(us)-octaveBits, 0)
	return shift*octave + int(us>>shift)
}

// endOf returns the largest duration of a bucket.
func endOf(bucket int) time.Duration {
	shift := max(bucket/octave-1, 0)
	return time.Duration((bucket-shift*octave+1)<<shift)*time.Microsecond - 1
}
