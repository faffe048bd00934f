package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/locket-service/locket/models"
)

const (
	// maxResources is the maximum number of resources in a board. At the maximum half of them are removed: first those
	// without waiters that have not changed for the longest time.
	maxResources = 10_000
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
	// Holder is one of them, nil if none is known; Since is when it became active, by the clock of this machine.
	Holder *models.Claim
	Since  time.Time
	// Waiting is how many claims wait, negative if that is not known.
	Waiting int
	// WaitsSince is when the first claim in the queue began to wait, zero if that is not known.
	WaitsSince time.Time
	// Deadlock: it was in a deadlock that lasts when it was listed last, and has not changed since.
	Deadlock bool
	// Rate is how many changes of its claims there were per second.
	Rate float64
}

// resource is a row and how it came about.
type resource struct {
	Row
	// version is the highest known version, listed the version in the last list.
	version, listed uint64
	changed         time.Time
	counter         counter
}

const unknown = -1

// board is the known state of all resources.
type board struct {
	started   time.Time
	resources map[string]*resource
	// whole says that all resources that are not free are known, and more that the last list was incomplete.
	whole, more bool
	// dirty says that a list would contain something that is not known.
	dirty                         bool
	changes                       []*models.Transition
	grants, waits, ends, expiries counter
	refusals                      counter // of the server that sends the feed
}

func newBoard(now time.Time) *board {
	return &board{started: now, resources: make(map[string]*resource)}
}

// forget makes all that is known unknown: changes have been missed.
func (b *board) forget() {
	clear(b.resources)
	b.whole, b.dirty = false, true
}

// merge takes a page of a list, which was asked for at a time, and says whether there are more.
func (b *board) merge(list []*models.ResourceInfo, more bool, asked, now time.Time) {
	b.whole, b.more, b.dirty = !more, more, false
	listed := make(map[string]bool, len(list))
	for _, info := range list {
		listed[info.GetResource()] = true
		b.take(info, now)
	}
	if more {
		return
	}
	for name, r := range b.resources { // what is not in a whole list is free
		switch {
		case listed[name]:
		case r.changed.Before(asked):
			r.Holding, r.Holder, r.Waiting, r.WaitsSince, r.Deadlock = 0, nil, 0, time.Time{}, false
		case r.Waiting == unknown:
			b.dirty = true
		}
	}
}

func (b *board) take(info *models.ResourceInfo, now time.Time) {
	r := b.resources[info.GetResource()]
	if r == nil {
		r = b.add(info.GetResource(), now)
	}
	if info.GetVersion() < r.version {
		b.dirty = b.dirty || r.Waiting == unknown
		return
	}
	r.version, r.listed = info.GetVersion(), info.GetVersion()
	r.Holding, r.Holder, r.Waiting = int(info.GetHolding()), info.GetHolder(), int(info.GetWaiting())
	r.Deadlock = info.GetDeadlock()
	r.Since, r.WaitsSince = ago(now, info.GetHolder().GetActiveDuration()), time.Time{}
	if info.OldestWait != nil {
		r.WaitsSince = ago(now, info.GetOldestWait())
	}
}

func ago(now time.Time, seconds float64) time.Time {
	return now.Add(-time.Duration(seconds * float64(time.Second)))
}

func (b *board) add(name string, now time.Time) *resource {
	if len(b.resources) >= maxResources {
		b.shrink()
	}
	r := &resource{Row: Row{Resource: name, Waiting: unknown}, changed: now}
	if b.whole { // it was free
		r.Waiting = 0
	}
	b.resources[name] = r
	return r
}

// shrink forgets half of the resources.
func (b *board) shrink() {
	all := b.all()
	slices.SortFunc(all, func(x, y *resource) int {
		return cmp.Or(cmp.Compare(max(x.Waiting, 0), max(y.Waiting, 0)), x.changed.Compare(y.changed))
	})
	for _, r := range all[:len(all)-maxResources/2] {
		delete(b.resources, r.Resource)
	}
	b.whole, b.more = false, true
}

func (b *board) all() []*resource {
	all := make([]*resource, 0, len(b.resources))
	for _, r := range b.resources {
		all = append(all, r)
	}
	return all
}

// apply takes a change, unless a list has told of it. Changes of one commit may come in any order.
func (b *board) apply(t *models.Transition, now time.Time) {
	c := t.GetClaim()
	r := b.resources[c.GetResource()]
	if r == nil {
		r = b.add(c.GetResource(), now)
	}
	if c.GetVersion() <= r.listed {
		return
	}
	r.version, r.changed = max(r.version, c.GetVersion()), now
	r.counter.add(now, 1)
	b.count(t, now)
	if b.changes = append(b.changes, t); len(b.changes) > maxChanges {
		b.changes = b.changes[1:]
	}
	r.apply(t, now)
	b.dirty = b.dirty || r.Waiting == unknown && (r.Holding > 0 || c.GetStatus() == models.Status_STATUS_WAITING) ||
		r.Waiting > 0 && r.WaitsSince.IsZero() || r.Holding > 0 && r.Holder == nil
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

func (r *resource) apply(t *models.Transition, now time.Time) {
	c, before, after := t.GetClaim(), t.GetBefore(), t.GetClaim().GetStatus()
	if before == after {
		return
	}
	r.Deadlock = false
	switch before {
	case models.Status_STATUS_WAITING:
		r.leaveLine(after == models.Status_STATUS_ACTIVE)
	case models.Status_STATUS_ACTIVE:
		r.end(c)
	}
	switch after {
	case models.Status_STATUS_WAITING:
		r.joinLine(now)
	case models.Status_STATUS_ACTIVE:
		r.grant(c, now)
	}
}

func isAlone(c *models.Claim) bool { return c != nil && c.GetMode() == models.Mode_MODE_EXCLUSIVE }

// grant adds a holder. It takes the place of all others if they cannot hold together: then their end is to come.
func (r *resource) grant(c *models.Claim, now time.Time) {
	if isAlone(c) || isAlone(r.Holder) {
		r.Holding, r.Holder = 0, nil
	}
	if r.Holding++; r.Holding == 1 {
		r.Holder, r.Since = c, now
	}
}

// end takes a holder away, unless another one has taken its place already.
func (r *resource) end(c *models.Claim) {
	if same := r.Holder.GetId() == c.GetId(); r.Holder != nil && !same && (isAlone(c) || isAlone(r.Holder)) {
		return
	} else if r.Holding = max(r.Holding-1, 0); r.Holding == 0 || same {
		r.Holder = nil
	}
}

func (r *resource) joinLine(now time.Time) {
	if r.Waiting == unknown {
		return
	}
	if r.Waiting++; r.Waiting == 1 {
		r.WaitsSince = now
	}
}

// leaveLine takes a claim out of the line. first: it was granted, so it was the first.
func (r *resource) leaveLine(first bool) {
	if r.Waiting > 0 {
		r.Waiting--
	}
	if first || r.Waiting == 0 {
		r.WaitsSince = time.Time{}
	}
}

// rows returns the resources in an order, and forgets resources that are free and have not changed lately.
func (b *board) rows(order Order, now time.Time) []Row {
	var rows []Row
	for name, r := range b.resources {
		if r.Rate = b.rate(&r.counter, now); r.Holding == 0 && r.Waiting <= 0 && r.Rate == 0 {
			delete(b.resources, name)
			continue
		}
		rows = append(rows, r.Row)
	}
	slices.SortFunc(rows, func(x, y Row) int { return compare(order, x, y) })
	return rows
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
