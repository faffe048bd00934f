package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/locket-service/locket/models"
)

const (
	// maxChanged is the maximum number of resources whose rates are known.
	maxChanged = 10_000
	// maxChanges is how many changes are kept to be shown.
	maxChanges = 20
)

// Order is the order of resources.
type Order int

// The orders: most waiting claims, most changes, longest wait, by name.
const (
	Contended Order = iota
	Busy
	Oldest
	Name
)

// OrderNames are the names of the orders.
var OrderNames = []string{"contended", "busy", "oldest", "name"}

func (o Order) String() string { return OrderNames[o] }

// next is the order after one.
func (o Order) next() Order { return (o + 1) % Order(len(OrderNames)) }

// Row is a resource.
type Row struct {
	Resource string
	// Holding is how many claims hold it.
	Holding int
	// Holder is one of them, nil for none; Since is when it became active, by the clock of this machine.
	Holder *models.Claim
	Since  time.Time
	// Waiting is how many claims wait, negative if that is not known.
	Waiting int
	// WaitsSince is when the first claim in the queue began to wait, zero if that is not known.
	WaitsSince time.Time
	// Deadlock: it is in a deadlock that lasts.
	Deadlock bool
	// Rate is how many changes of its claims there were per second.
	Rate float64
}

const unknown = -1

// board has the last list of resources, and counts the changes.
type board struct {
	started time.Time
	list    []Row
	more    bool // there are more resources than the list has
	changed map[string]*changed
	changes []*models.Transition

	grants, waits, ends, expiries counter
	refusals                      counter // of the server that sends the feed
}

// changed is a resource that has changed in the last seconds.
type changed struct {
	counter
	last *models.Claim // after the last change
	at   time.Time
}

func newBoard(now time.Time) *board {
	return &board{started: now, changed: make(map[string]*changed)}
}

// take takes the page of a list, and whether there are more.
func (b *board) take(page []*models.ResourceInfo, more bool, now time.Time) {
	b.list, b.more = make([]Row, len(page)), more
	for i, info := range page {
		b.list[i] = Row{
			Resource: info.GetResource(), Holding: int(info.GetHolding()), Holder: info.GetHolder(), Since: ago(now, info.GetHolder().GetActiveDuration()),
			Waiting: int(info.GetWaiting()), Deadlock: info.GetDeadlock(),
		}
		if info.OldestWait != nil {
			b.list[i].WaitsSince = ago(now, info.GetOldestWait())
		}
	}
}

func ago(now time.Time, seconds float64) time.Time {
	return now.Add(-time.Duration(seconds * float64(time.Second)))
}

// apply counts a change.
func (b *board) apply(t *models.Transition, now time.Time) {
	b.count(t, now)
	if b.changes = append(b.changes, t); len(b.changes) > maxChanges {
		b.changes = b.changes[1:]
	}
	c := t.GetClaim()
	r := b.changed[c.GetResource()]
	if r == nil {
		if len(b.changed) == maxChanged {
			return
		}
		r = &changed{}
		b.changed[c.GetResource()] = r
	}
	r.add(now, 1)
	if r.last.GetVersion() <= c.GetVersion() { // changes of one commit come in any order
		r.last, r.at = c, now
	}
}

func (b *board) count(t *models.Transition, now time.Time) {
	before, after := t.GetBefore(), t.GetClaim().GetStatus()
	switch {
	case before == after:
	case after == models.Status_STATUS_WAITING:
		b.waits.add(now, 1)
	case after == models.Status_STATUS_ACTIVE:
		b.grants.add(now, 1)
	case before == models.Status_STATUS_ACTIVE:
		b.ends.add(now, 1)
	}
	if after == models.Status_STATUS_EXPIRED && before != after {
		b.expiries.add(now, 1)
	}
}

// rows returns the resources in an order: the list, and others that have changed in the last seconds.
func (b *board) rows(order Order, now time.Time) []Row {
	rows, listed := slices.Clone(b.list), make(map[string]bool, len(b.list))
	for i := range rows {
		listed[rows[i].Resource] = true
		if r := b.changed[rows[i].Resource]; r != nil {
			rows[i].Rate = b.rate(&r.counter, now)
		}
	}
	for name, r := range b.changed {
		rate := b.rate(&r.counter, now)
		if rate == 0 {
			delete(b.changed, name)
		} else if !listed[name] {
			rows = append(rows, b.unlisted(name, r, rate))
		}
	}
	slices.SortFunc(rows, func(x, y Row) int { return compare(order, x, y) })
	return rows
}

// unlisted returns a resource that is not in the list: it is free, or there was no room for it.
func (b *board) unlisted(name string, r *changed, rate float64) Row {
	row := Row{Resource: name, Rate: rate}
	if b.more {
		row.Waiting = unknown
		if r.last.GetStatus() == models.Status_STATUS_ACTIVE {
			row.Holding, row.Holder, row.Since = 1, r.last, r.at
		}
	}
	return row
}

func compare(order Order, x, y Row) int {
	contended, busy, oldest := cmp.Compare(y.Waiting, x.Waiting), cmp.Compare(y.Rate, x.Rate), compareWaits(x, y)
	name := cmp.Compare(x.Resource, y.Resource)
	switch order {
	case Busy:
		return cmp.Or(busy, contended, name)
	case Oldest:
		return cmp.Or(oldest, contended, name)
	case Name:
		return name
	default:
		return cmp.Or(contended, oldest, busy, name)
	}
}

// compareWaits has the longest wait come first, and no known wait last.
func compareWaits(x, y Row) int {
	if x.WaitsSince.IsZero() != y.WaitsSince.IsZero() {
		if x.WaitsSince.IsZero() {
			return 1
		}
		return -1
	}
	return x.WaitsSince.Compare(y.WaitsSince)
}

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
