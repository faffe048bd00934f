// Package metric has what the server's metrics have in common.
package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Histogram describes a histogram with these buckets, which is also a native one where the scraper asks for those: with
// buckets of 10 % of their values and at most 100 of them, whose number is what bounds its memory.
func Histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}
