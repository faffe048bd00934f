package guard

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/internal/base/metric"
)

const (
	// MaxArrivals is how many calls may be arriving at once without valid credentials. Each has up to
	// twice the largest message in memory.
	MaxArrivals = 128
	// ArrivalTime is how long such a call may take to arrive.
	ArrivalTime = 5 * time.Second
)

// Arrivals are the calls without valid credentials whose messages have not arrived yet. Their number is bounded. Beyond
// the bound, a new call ends the oldest one, so that a call that is sent at once succeeds beside requests that are never
// finished.
type Arrivals struct {
	known func(context.Context) bool
	cuts  prometheus.Counter

	mu   sync.Mutex
	open list.List // of *arrival, oldest first
}

// arrival is one call whose message has not arrived yet.
type arrival struct {
	cut   func()
	timer *time.Timer
	place *list.Element // nil once it has arrived, or was cut off
}

// NewArrivals returns the bound for one server, whose metric is registered. known reports, without waiting, whether the
// credentials of a context are valid; calls with valid credentials do not count.
func NewArrivals(known func(context.Context) bool, registerer prometheus.Registerer) *Arrivals {
	a := &Arrivals{known: known, cuts: metric.Counter("locket_arrivals_cut_total",
		"Number of calls without valid credentials that were cut off because their messages did not come in time, or too many came.")}
	registerer.MustRegister(a.cuts)
	return a
}

// Begin notes the header of a call: peer and incoming metadata of its context. Call the function that it returns when
// the message has arrived or the call has ended; it is nil for a call with valid credentials. cut is called once if the message
// takes too long.
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

// add adds an arrival. It returns the arrival that must end for it, nil if there is room.
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

// leave removes an arrival, and reports whether it was there.
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
