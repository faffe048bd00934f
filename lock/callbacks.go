package lock

import "time"

// Callbacks report what happens to the lock, one at a time and in order. The lock is renewed in the meantime. Run waits
// for them before it returns. Any may be nil.
type Callbacks struct {
	// Waiting is called each time that a server has answered that others come first. It gets the owner that holds the lock, "" if the
	// server does not name it.
	Waiting func(holder string)
	// Renewed is called for the gain, before Acquired, and for each renewal: when it was sent, and for how long from then on the server lets
	// the lock last.
	Renewed func(sent time.Time, lasts time.Duration)
	// Acquired gets the fencing token of the grant (0 from a server that gives none).
	Acquired func(token uint64)
	// Unverifiable gets the error of the first renewal that failed while the trust window lasts:
	// the lock is held, but unverified. It is called again for the first renewal that the
	// server denies (Unauthenticated, PermissionDenied). A session is unverified when no server
	// has answered a heartbeat for two thirds of the TTL.
	Unverifiable func(error)
	// Verified is called when a renewal succeeded after some that had failed.
	Verified func()
	// Lost gets the error, which wraps ErrLost. For a lock the runner ends next.
	Lost func(error)
	// Refused gets the error of each attempt to announce a lost presence again that the server
	// refuses (Unauthenticated, PermissionDenied, InvalidArgument). It is tried again. A runner that never held ends with
	// the error.
	Refused func(error)
}

// any reports whether one is set.
func (c *Callbacks) any() bool {
	return c.Waiting != nil || c.Renewed != nil || c.Acquired != nil || c.Unverifiable != nil || c.Verified != nil || c.Lost != nil || c.Refused != nil
}
