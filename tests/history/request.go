package history

import (
	"time"

	"github.com/locket-service/locket/claim"
)

// Request is what was asked of one resource.
type Request struct {
	Resource string
	// ID names the claim. A lock has no id that its owner knows: its request invents one,
	// new for each grant.
	ID string

	// Session is who asks, "" for a client without one.
	Session string

	command claim.Command // nil for a special one, but for a lock of a session
	special special
	ttl     time.Duration // of a heartbeat's session
	token   uint64        // that the request shows, as the client knows it; 0 for none
}

// special is an operation that is no command of package claim.
type special string

const (
	read   special = "read"
	expire special = "expire"
)

// Create makes a claim; its owner is its id.
func Create(resource, id string, mode claim.Mode, ttl time.Duration) Request {
	return Request{Resource: resource, ID: id, command: claim.Create{
		ID: id, Resource: resource, Owner: id, Mode: mode, TTL: ttl,
	}}
}

// CreateWithWaitTTL makes a claim that is aborted when nobody has asked about it for the wait TTL.
func CreateWithWaitTTL(resource, id string, mode claim.Mode, ttl, waitTTL time.Duration) Request {
	return Request{Resource: resource, ID: id, command: claim.Create{
		ID: id, Resource: resource, Owner: id, Mode: mode, TTL: ttl, WaitTTL: waitTTL,
	}}
}

// Keep is a call that waits for a claim, and so keeps it waiting.
func Keep(resource, id string) Request {
	return Request{Resource: resource, ID: id, command: claim.KeepWaiting{IDs: []string{id}}}
}

// Try makes a claim that does not wait; its owner is its id.
func Try(resource, id string, mode claim.Mode, ttl time.Duration) Request {
	return Request{Resource: resource, ID: id, command: claim.Create{
		ID: id, Resource: resource, Owner: id, Mode: mode, TTL: ttl, NoWait: true,
	}}
}

// Acquire takes a lock, or renews it, for an owner. The claim's id is made up: new unless
// the owner holds the resource.
func Acquire(resource, id, owner string, ttl time.Duration) Request {
	return Request{Resource: resource, ID: id, command: claim.Acquire{
		ID: id, Resource: resource, Owner: owner, Type: claim.Lock, TTL: ttl,
	}}
}

// Reacquire renews a lock by the token of its grant, and takes nothing.
func Reacquire(resource, id, owner string, token uint64, ttl time.Duration) Request {
	r := Acquire(resource, id, owner, ttl)
	r.token = token
	return r
}

// Release gives a lock back, that of one grant unless the token is 0.
func Release(resource, id, owner string, token uint64) Request {
	return Request{Resource: resource, ID: id, token: token, command: claim.Release{
		Resource: resource, Owner: owner,
	}}
}

// Renew gives a claim a new TTL.
func Renew(resource, id string, ttl time.Duration) Request {
	return Request{Resource: resource, ID: id, command: claim.Renew{ID: id, TTL: ttl}}
}

// Activate asks whether a claim is active by now.
func Activate(resource, id string) Request {
	return Request{Resource: resource, ID: id, command: claim.Activate{ID: id}}
}

// SetStatus moves a claim to a final status.
func SetStatus(resource, id string, to claim.Status) Request {
	return Request{Resource: resource, ID: id, command: claim.SetStatus{ID: id, Status: to}}
}

// End ends a claim in the way that its status allows.
func End(resource, id string) Request {
	return Request{Resource: resource, ID: id, command: claim.End{ID: id}}
}

// Read shows a claim as it is.
func Read(resource, id string) Request {
	return Request{Resource: resource, ID: id, special: read}
}

// Expire is the end of a claim whose lease has run out, or of one that waits and whose wait TTL has. No client asks for it: the history
// says only that it happened, and between which moments.
func Expire(resource, id string) Request {
	return Request{Resource: resource, ID: id, special: expire}
}
