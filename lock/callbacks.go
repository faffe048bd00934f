package lock

import "time"

// Callbacks report the events of a runner's lock, one at a time and in order. Renewals continue while a callback runs.
// Run waits for the callbacks before it returns. Any of them may be nil.
type Callbacks struct {
	// Waiting is called each time a server answers that others are before the runner. holder is the owner of the lock,
	// "" if the server does not name it.
	Waiting func(holder string)
	// Renewed is called for the grant, before Acquired, and for each renewal: sent is the time when the request was
	// sent, lasts the TTL that the server counts from then on.
	Renewed func(sent time.Time, lasts time.Duration)
	// Acquired gets the fencing token of the grant (0 from a server that gives none).
	Acquired func(token uint64)
	// Unverifiable gets the error of the first failed renewal while the trust window lasts: the lock is held, but
	// unverified. It is called again for the first renewal that the server refuses (Unauthenticated,
	// PermissionDenied). A session is unverified when no server has answered a heartbeat for two thirds of the TTL.
	Unverifiable func(error)
	// Verified is called when a renewal succeeds after failed ones.
	Verified func()
	// Lost gets the error, which wraps ErrLost. A runner of a lock then ends.
	Lost func(error)
	// Refused gets the error of each refused attempt to announce a lost presence again (Unauthenticated,
	// PermissionDenied, InvalidArgument). The runner tries again. A runner that has never held ends with the error
	// instead.
	Refused func(error)
}

// any reports whether one is set.
func (c *Callbacks) any() bool {
	return c.Waiting != nil || c.Renewed != nil || c.Acquired != nil || c.Unverifiable != nil || c.Verified != nil || c.Lost != nil || c.Refused != nil
}
