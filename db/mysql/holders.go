package mysql

import "github.com/locket-service/locket/internal/rules/claim"

const (
	// maxHolders is how many holders are cached, and maxHolderBytes how large the data of
	// a cached claim may be.
	maxHolders     = 100_000
	maxHolderBytes = 1 << 10
)

// holders caches the exclusive holders that this server has seen last, by resource. An entry
// is valid while the resource's row has the same version: every change to a queue moves it,
// and a transaction locks and reads the row in any case. Only the transactions of the store
// use it, one after the other.
type holders map[string]cached

type cached struct {
	version uint64 // of the resource
	holder  *claim.Claim
}

// get returns the holder of a row that was just read, or nil if it is not in the cache.
func (h holders) get(row claim.Row) *claim.Claim {
	known, ok := h[row.Resource]
	if !ok || known.version != row.Version || known.holder.ID != row.Holder {
		return nil
	}
	return known.holder
}

// remember adds the holders of queues that were saved and committed.
func (h holders) remember(queues []*claim.Queue) {
	if len(h)+len(queues) > maxHolders {
		clear(h)
	}
	for _, q := range queues {
		holder := q.ExclusiveHolder()
		if holder == nil || holder.Brief || len(holder.Value)+len(holder.UserData) > maxHolderBytes {
			delete(h, q.Resource)
			continue
		}
		h[q.Resource] = cached{q.Version, holder}
	}
}
