package mysql

import (
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// refusedTime is for how long it matters that a resource's row was locked. It is longer than the pause after
// which every server looks again at what is due and could not be ended.
const refusedTime = 15 * time.Second

// refusedRows are the resources with a row that somebody else has kept locked, and when a command on them was
// refused last. Lease time goes on meanwhile, since other leases can be renewed; so the first
// transaction that gets such a resource again gives its holders their TTL anew. Each server that could end
// such a lease has tried to when it fell due, and so knows that its row was locked. Only the transactions of the
// store use it, one after the other.
type refusedRows map[string]time.Time

// renew renews the holders of resources that were refused before, and returns their names. left are those that
// are refused now.
func (r refusedRows) renew(qs *claim.Queues, rows map[string]claim.Row, left []string) (renewed []string) {
	for name, at := range r {
		if time.Since(at) > refusedTime {
			delete(r, name)
		} else if _, ok := rows[name]; ok {
			qs.RenewHolders(name)
			renewed = append(renewed, name)
		}
	}
	for _, name := range left {
		r[name] = time.Now()
	}
	return renewed
}

// done says that a transaction has been committed that has renewed holders.
func (r refusedRows) done(renewed []string) {
	for _, name := range renewed {
		delete(r, name)
	}
}
