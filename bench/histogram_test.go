package main

import (
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	var h histogram
	for i := range 10_000 {
		h.add(time.Duration(i+1) * 100 * time.Microsecond) // up to a second
	}
	for share, exact := range map[float64]time.Duration{0: 100 * time.Microsecond, 0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond} {
		if got := h.quantile(share); got < exact || got > exact+exact/32 {
			t.Errorf("quantile %v: %v, exactly it is %v", share, got, exact)
		}
	}
	var all histogram
	all.addAll(&h)
	all.add(2 * time.Hour)
	all.add(-time.Second)
	if got := all.quantile(1); got != 2*time.Hour || all.count != 10_002 {
		t.Errorf("of %d samples the longest is %v", all.count, got)
	}
}

func TestBuckets(t *testing.T) {
	for us := int64(0); us < longest; us += us/100 + 1 {
		d := time.Duration(us) * time.Microsecond
		if end := endOf(bucketOf(d)); end < d || end > d+d/octave+time.Microsecond {
			t.Fatalf("%v is in a bucket that ends at %v", d, end)
		}
		if next := bucketOf(endOf(bucketOf(d)) + 1); next != bucketOf(d)+1 && bucketOf(d) < bucketOf(time.Hour) {
			t.Fatalf("after bucket %d comes %d", bucketOf(d), next)
		}
	}
}
