// Package fencing guards what a lock protects: its target refuses the fencing tokens of former holders (docs/fencing.md).
package fencing

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale is returned for a fencing token that is lower than one seen before: its holder
// has lost the lock, and may not know it yet.
var ErrStale = errors.New("the fencing token is stale")

// ErrNoToken is returned for the token 0, which no grant has: the sender does not hold the lock,
// or its server gives no tokens, and nothing can be guarded by them.
var ErrNoToken = errors.New("no fencing token")

// Guard protects a target inside the process that owns it: it refuses any token lower than the highest that it has seen
// (Kleppmann, "How to do distributed locking", 2016). Use one Guard per lock. It forgets when its process ends; to
// guard data for longer, keep the token beside the data. The zero value is ready.
type Guard struct {
	mu      sync.Mutex
	highest uint64
}

// Do calls write unless the token is stale, which is ErrStale, or 0, which is ErrNoToken.
// Meanwhile no other write is under way, so that none with a lower token can come after one
// with a higher.
func (g *Guard) Do(token uint64, write func() error) error {
	if token == 0 {
		return ErrNoToken
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if token < g.highest {
		return fmt.Errorf("%w: %d, and %d was seen", ErrStale, token, g.highest)
	}
	g.highest = token
	return write()
}
