package mysql

import "github.com/locket-service/locket/claim"

const (
	// maxHolders is how many holders are remembered, and maxHolderBytes how much a claim
	// may carry to be among them.
	maxHolders     = 100_000
	maxHolderBytes = 1 << 10
)

// holders remembers the exclusive holders that this server has seen last, by resource.
// Whether a memory is still true is told by the resource's row, which a transaction locks
// and reads in any case: every change to a queue moves the row's version. Only the
// transactions of the store use it, one after the other.
type holders map[string]memory

type memory struct {
	version uint64 // of the resource
	holder  *claim.Claim
}

// get returns the holder of a row that was just read, or nil if it is not remembered.
func (h holders) get(row claim.Row) *claim.Claim {
	known, ok := h[row.Resource]
	if !ok || known.version != row.Version || known.holder.ID != row.Holder {
		return nil
	}
	return known.holder
}

// learn remembers the holders of queues that were saved and committed.
func (h holders) learn(queues []*claim.Queue) {
	if len(h)+len(queues) > maxHolders {
		clear(h)
	}
	for _, q := range queues {
		holder := q.ExclusiveHolder()
		if holder == nil || len(holder.Value)+len(holder.UserData) > maxHolderBytes {
			delete(h, q.Resource)
			continue
		}
		h[q.Resource] = memory{q.Version, holder}
	}
}
