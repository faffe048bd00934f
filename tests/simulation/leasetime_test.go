package simulation_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/internal/rules/claim"
)

// leaseTime checks the lease time in the records of the log: a decider continues from the last record before its epoch, counts no
// time before the epoch, and at most db.MaxSilence of the time while a record is on its way. The claims do not show that: a lease
// that counts too much time ends before its holder could renew it, and the trust window of the holder ends with it.
type leaseTime struct {
	mu    sync.Mutex
	epoch uint64
	began time.Time
	last  claim.Time
	// first is the lease time at the begin of the epoch.
	first claim.Time
	// uncounted is the time of the epoch that may not count.
	uncounted time.Duration
}

// precision is the largest error of rounded times.
const precision = time.Millisecond

// begin notes that an epoch has begun, unless that is known.
func (l *leaseTime) begin(e *order.Epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Number > l.epoch {
		l.epoch, l.began, l.first, l.uncounted = e.Number, time.Now(), l.last, 0
	}
}

// took notes how long an append of the decider of an epoch has taken.
func (l *leaseTime) took(epoch uint64, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch == l.epoch {
		l.uncounted += max(0, d-db.MaxSilence)
	}
}

// check returns an error if a new record has another lease time than it may have.
func (l *leaseTime) check(lease claim.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == 0 { // lease time begins with the first record, at the time of the wall
		l.first = lease
	}
	last, most := l.last, time.Since(l.began)-l.uncounted
	if l.last = lease; lease < last {
		return fmt.Errorf("lease time goes back by %s", last.Sub(lease))
	}
	if passed := lease.Sub(l.first); passed > most+precision {
		return fmt.Errorf("lease time of %s has passed in epoch %d, in which at most %s counts", passed, l.epoch, most)
	}
	return nil
}
