package guard

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// MaxArrivals is how many calls may be arriving at once without valid credentials. Each has up to
	// twice the largest message in memory.
	MaxArrivals = 128
	// ArrivalTime is how long such a call may take to arrive.
	ArrivalTime = 5 * time.Second
)

// Arrivals are the calls that have shown no valid credentials and whose messages are still to come. They
// have a budget of their own: when it is used up, a new one has the oldest cut off, so that what is sent
// in one piece gets through between requests that are never finished.
type Arrivals struct {
	known func(context.Context) bool
	cuts  prometheus.Counter

	mu   sync.Mutex
	open list.List // of *arrival, oldest first
}

// arrival is one call that arrives.
type arrival struct {
	cut   func()
	timer *time.Timer
	place *list.Element // nil once it has arrived, or was cut off
}

// NewArrivals returns a budget whose metric is registered. known reports, without waiting, whether the
// credentials of a context are valid; calls with such have no part of the budget.
func NewArrivals(known func(context.Context) bool, registerer prometheus.Registerer) *Arrivals {
	a := &Arrivals{known: known, cuts: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "locket_arrivals_cut_total",
		Help: "Number of calls without valid credentials that were cut off because their messages did not come in time, or too many came.",
	})}
	registerer.MustRegister(a.cuts)
	return a
}

// Begin notes that a call arrives, by its header: peer and incoming metadata of its context. It returns
// what is to be called when it has arrived or ended, nil for a call with valid credentials. cut is called
// once if that takes too long.
func (a *Arrivals) Begin(ctx context.Context, cut func()) (arrived func()) {
	if a.known(ctx) {
		return nil
	}
	one := &arrival{cut: cut}
	if oldest := a.add(one); oldest != nil {
		a.cutOff(oldest)
	}
	return func() { a.leave(one) }
}

// add returns the arrival for which there is no more room, nil if there is room.
func (a *Arrivals) add(one *arrival) (oldest *arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open.Len() >= MaxArrivals {
		oldest = a.open.Front().Value.(*arrival)
		a.remove(oldest)
	}
	one.place = a.open.PushBack(one)
	one.timer = time.AfterFunc(ArrivalTime, func() {
		if a.leave(one) {
			a.cutOff(one)
		}
	})
	return oldest
}

// leave reports whether the arrival was still under way.
func (a *Arrivals) leave(one *arrival) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one.place == nil {
		return false
	}
	a.remove(one)
	return true
}

func (a *Arrivals) remove(one *arrival) {
	a.open.Remove(one.place)
	one.place = nil
	one.timer.Stop()
}

func (a *Arrivals) cutOff(one *arrival) {
	a.cuts.Inc()
	one.cut()
}
