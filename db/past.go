package db

import (
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// MaxSkew is by how much the clocks of a cluster's nodes may differ.
const MaxSkew = 10 * time.Second

// Past tells which rows are older than an age, by their times of the database's clock, even if that clock has stepped.
// It keeps the lowest time that the clock had within the age, measured by this server's monotonic clock, and before the
// start of this server by lease time: no younger row has a lower time. Until the age has passed since its first reading
// it calls no row old. It is wrong only about a clock that steps back and forth between two readings.
type Past struct {
	age         time.Duration
	first, last time.Time // of the readings
	spans       []span    // in order, without spans that are wholly older than the age
}

// span is a part of the past, with the lowest time that a row may have got in it.
type span struct {
	end time.Time
	low claim.Time
}

// NewPast returns a Past for an age. With 0 every row is old.
func NewPast(age time.Duration) *Past { return &Past{age: age} }

// Resume records readings that servers made before this one was started (Pruner.Remember). Lease time says how long ago each was, at least.
func (p *Past) Resume(now claim.Instant, earlier []claim.Instant) {
	for _, reading := range earlier {
		p.saw(time.Now().Add(-max(0, now.Lease.Sub(reading.Lease))), reading.Wall)
	}
}

// Saw records a reading of the database's clock. Call it many times within the age.
func (p *Past) Saw(now claim.Time) { p.saw(time.Now(), now) }

func (p *Past) saw(at time.Time, now claim.Time) {
	width := p.age / 32
	if p.first.IsZero() {
		p.first, p.last = at, at
	}
	low := now.Add(-at.Sub(p.last)) // a row may have got that, whenever the clock has stepped since the last reading
	p.last = at
	if n := len(p.spans); n > 0 && at.Before(p.spans[n-1].end) {
		p.spans[n-1].low = min(p.spans[n-1].low, low)
	} else {
		p.spans = append(p.spans, span{at.Add(width), low})
	}
	for at.Sub(p.spans[0].end) > p.age {
		p.spans = p.spans[1:]
	}
}

// Before returns a time; all rows with earlier times are older than the age. 0 if none is known.
func (p *Past) Before() claim.Time {
	switch {
	case p.age == 0:
		return claim.Forever
	case p.first.IsZero(), time.Since(p.first) < p.age:
		return 0
	}
	return p.Low().Add(-MaxSkew)
}

// Low returns the lowest time that the clock may have had within the age, as far as the readings tell:
// claim.Forever before the first of them.
func (p *Past) Low() claim.Time {
	low := claim.Time(claim.Forever)
	for _, s := range p.spans {
		low = min(low, s.low)
	}
	return low
}
