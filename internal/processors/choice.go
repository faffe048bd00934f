package processors

import "time"

const (
	// interval is how often the load is looked at, and rest is the same while there is nothing to do: each look costs some processor time.
	interval = 100 * time.Millisecond
	rest     = 10 * interval
	// calm and mostCalm are for how many looks there has been little to do before one processor is enough. It begins with calm, and
	// doubles each time that one was enough for less than settled looks.
	calm, mostCalm = 10, 640
	settled        = 100
)

// The limits of little to do. With 8 callers one processor does a fifth more than two, with 64 as much.
const (
	// few is how many calls are under way, and how many changes are in a commit, at most.
	few = 8
	// mostOfOne is which part of one processor is used at most while there is one, and mostOfAll how many processors are while there are
	// more: the wake-ups are part of it.
	mostOfOne, mostOfAll = 0.9, 1.5
)

// load is what there was to do between two looks.
type load struct {
	busy     float64 // processors that were in use
	together float64 // changes in a commit
	underWay int     // calls, at the end
}

// nothing reports whether there was nothing to do.
func (l load) nothing() bool { return l.together == 0 && l.underWay == 0 && l.busy < 0.05 }

// choice is whether one processor is enough.
type choice struct {
	one   bool
	looks int // since it changed, or since there was more than little to do
	after int // for how many looks there must be little to do; 0 for calm
}

// next returns whether one processor is enough from now on.
func (c *choice) next(l load) (one bool) {
	most := mostOfAll
	if c.one {
		most = mostOfOne
	}
	little := l.underWay <= few && l.together <= few && l.busy <= most
	c.after = max(c.after, calm)
	c.looks++
	switch {
	case c.one && !little:
		if c.looks < settled {
			c.after = min(2*c.after, mostCalm)
		} else {
			c.after = calm
		}
		c.one, c.looks = false, 0
	case !c.one && !little:
		c.looks = 0
	case !c.one && c.looks >= c.after:
		c.one, c.looks = true, 0
	}
	return c.one
}
