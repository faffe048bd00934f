// Package metric makes the server's histograms.
package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Histogram describes a histogram with these buckets, and a native histogram for scrapers that ask for one. The latter
// has buckets 10 % apart, at most 100 of them, which bounds its memory.
func Histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}
