package lock

import "github.com/locket-service/locket/internal/lease"

// grant is what a Runner publishes: the lock as its holder may rely on it. The zero grant is
// that of a lock that is not held.
type grant struct {
	// token is the fencing token, 0 when there is no grant, or the server gives none.
	token uint64
	trust lease.Window
}
