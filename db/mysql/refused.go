package mysql

import (
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// refusedTime is how long it matters that a resource's row was locked. It is longer than any server's pause before it
// tries again to end due leases.
const refusedTime = 15 * time.Second

// refusedRows are the resources, or the sessions, with a row that somebody else has kept locked. Lease time continues
// in the meantime, since other leases can be renewed. So the first transaction that gets the resource again gives its
// holders their full TTL, or the detached session its own, since nobody could resume it. Waiting claims there keep
// their places even if their wait TTL had passed. Each server that could end such a lease or wait has tried to when it fell
// due, and so knows that its row was locked. Only the store's transactions use it, one after the other.
type refusedRows map[string]refusal

// refusal is when a command was refused last, the last deadline that was due then, and whether a transaction has renewed since.
type refusal struct {
	at      time.Time
	due     claim.Time
	renewed bool
}

// renew calls anew for each refused row that was not renewed since, and returns the rows where it returned true. left
// are refused now.
func (r refusedRows) renew(now claim.Instant, left []string, anew func(name string) bool) (renewed []string) {
	for _, name := range left {
		r[name] = refusal{at: time.Now(), due: now.DueBefore()}
	}
	for name, of := range r {
		if time.Since(of.at) > refusedTime {
			delete(r, name)
		} else if !of.renewed && anew(name) {
			renewed = append(renewed, name)
		}
	}
	return renewed
}

// renewHolders is renew for the resources of a transaction, which has locked all their rows except left. Where it knows
// only a part of the due holders, the next transaction renews more.
func (r refusedRows) renewHolders(qs *claim.Queues, rows map[string]claim.Row, left []string, part map[string]bool) (renewed []string) {
	renewed = r.renew(qs.Now, left, func(name string) bool {
		_, there := rows[name]
		if there {
			qs.RenewHolders(name)
		}
		if of := r[name]; there && part[name] {
			of.at = time.Now()
			r[name] = of
		}
		return there && !part[name]
	})
	for name, of := range r {
		if _, there := rows[name]; there {
			qs.KeepWaits(name, of.due)
		}
	}
	return renewed
}

// done says that a transaction has been committed that has renewed these.
func (r refusedRows) done(renewed []string) {
	for _, name := range renewed {
		of := r[name]
		of.renewed = true
		r[name] = of
	}
}
