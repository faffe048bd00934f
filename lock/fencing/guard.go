// Package fencing has a guard for the target of writes: it refuses the fencing tokens of former holders
// (docs/fencing.md).
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

// Guard protects a target inside its own process: it refuses each token lower than the highest that it has seen. Use
// one Guard per lock. Its state is lost with the process; to guard data for longer, keep the token beside the data.
// The zero value is ready to use.
type Guard struct {
	mu      sync.Mutex
	highest uint64
}

// Do calls write and returns its error, or returns ErrStale for a lower token and ErrNoToken for 0. No other write
// runs at the same time, so a write with a lower token never follows one with a higher token.
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
