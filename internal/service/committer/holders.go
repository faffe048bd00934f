package committer

import (
	"sync"

	"github.com/locket-service/locket/internal/rules/claim"
)

// maxHolders is how many holders are remembered.
const maxHolders = 100_000

// holders remembers the exclusive holders that this server has committed. With them it distinguishes renewals of
// locks, which Cloud Foundry's clients send without a token, from new locks. If it forgets a holder, its renewal
// counts as a new lock, which is harmless.
type holders struct {
	mu     sync.RWMutex
	owners map[string]string // by resource
}

// Committed implements Listener.
func (h *holders) Committed(_ claim.Instant, changes []claim.Transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.owners)+len(changes) > maxHolders {
		clear(h.owners)
	}
	for _, change := range changes {
		switch c := change.After; {
		case !c.Units.All():
		case c.Status == claim.Active:
			h.owners[c.Resource] = c.Owner
		case h.owners[c.Resource] == c.Owner && change.Before != nil && change.Before.Status == claim.Active:
			delete(h.owners, c.Resource)
		}
	}
}

func (h *holders) Missed() {}

// holds reports whether an Acquire renews a lock that its owner holds.
func (h *holders) holds(cmd claim.Acquire) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	owner, known := h.owners[cmd.Resource]
	return known && owner == cmd.Owner
}
