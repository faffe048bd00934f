package top

import "time"

// window is how many seconds a rate is of.
const window = 10

// counter counts what happens in each of the last seconds.
type counter struct {
	second int64 // the last second with an event
	counts [window]uint64
}

// add counts what has happened n times.
func (c *counter) add(now time.Time, n uint64) {
	c.advance(now)
	c.counts[c.second%window] += n
}

// advance forgets the seconds that have left the window.
func (c *counter) advance(now time.Time) {
	second := max(now.Unix(), c.second)
	for range min(second-c.second, window) {
		c.second++
		c.counts[c.second%window] = 0
	}
	c.second = second
}

// rate returns how often something happened per second, in the window or since the board was made.
func (b *board) rate(c *counter, now time.Time) float64 {
	c.advance(now)
	sum := 0.0
	for _, n := range c.counts {
		sum += float64(n)
	}
	return sum / min(max(now.Sub(b.started).Seconds(), 1), window)
}
