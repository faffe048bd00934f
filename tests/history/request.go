package history

import (
	"cmp"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Request is a request about one resource.
type Request struct {
	Resource string
	// ID names the claim, "" for a claim whose id the server chooses.
	ID string

	// Session is the client's session, "" for none.
	Session string

	command claim.Command // nil for a special one, except a lock of a session
	special special
	ttl     time.Duration // of the session that is opened, or that a heartbeat keeps
}

// special is an operation other than a command of package claim.
type special string

const read special = "read"

// Create makes a claim; its owner is its id.
func Create(resource, id string, mode claim.Units, ttl time.Duration) Request {
	return CreateFor(claim.Create{ID: id, Resource: resource, Owner: id, Units: mode, TTL: ttl})
}

// CreateWithWaitTTL makes a claim that is aborted when nobody has asked about it for the wait TTL.
func CreateWithWaitTTL(resource, id string, mode claim.Units, ttl, waitTTL time.Duration) Request {
	return CreateFor(claim.Create{ID: id, Resource: resource, Owner: id, Units: mode, TTL: ttl, WaitTTL: waitTTL})
}

// Try makes a claim that does not wait; its owner is its id.
func Try(resource, id string, mode claim.Units, ttl time.Duration) Request {
	return CreateFor(claim.Create{ID: id, Resource: resource, Owner: id, Units: mode, TTL: ttl, NoWait: true})
}

// CreateFor makes any claim without a session.
func CreateFor(cmd claim.Create) Request {
	return Request{Resource: cmd.Resource, ID: cmd.ID, command: cmd}
}

// Keep is a call that waits for a claim, and so keeps it waiting.
func Keep(resource, id string) Request {
	return Request{Resource: resource, ID: id, command: claim.KeepWaiting{IDs: []string{id}}}
}

// Acquire takes a lock, or renews it, for an owner.
func Acquire(resource, owner string, ttl time.Duration) Request {
	return Reacquire(resource, owner, 0, ttl)
}

// Reacquire renews a lock by the token of its grant, and takes nothing.
func Reacquire(resource, owner string, token uint64, ttl time.Duration) Request {
	return Request{Resource: resource, command: claim.Acquire{
		Resource: resource, Owner: owner, Type: claim.Lock, TTL: ttl, Token: token,
	}}
}

// Release releases a lock; with a token other than 0, that grant only.
func Release(resource, owner string, token uint64) Request {
	return Request{Resource: resource, command: claim.Release{Resource: resource, Owner: owner, Token: token}}
}

// Renew gives a claim a new TTL.
func Renew(resource, id string, ttl time.Duration) Request {
	return Request{Resource: resource, ID: id, command: claim.Renew{ID: id, TTL: ttl}}
}

// Activate asks whether a claim is active by now, and gives it a new TTL unless that is nil.
func Activate(resource, id string, ttl *time.Duration) Request {
	return Request{Resource: resource, ID: id, command: claim.Activate{ID: id, TTL: ttl}}
}

// SetStatus moves a claim to a final status.
func SetStatus(resource, id string, to claim.Status) Request {
	return Request{Resource: resource, ID: id, command: claim.SetStatus{ID: id, Status: to}}
}

// End ends a claim in the way that its status allows.
func End(resource, id string) Request {
	return Request{Resource: resource, ID: id, command: claim.End{ID: id}}
}

// Read reads a claim.
func Read(resource, id string) Request {
	return Request{Resource: resource, ID: id, special: read}
}

// named returns the request's command about a claim with an id, where the server chose it.
func (r *Request) named(id string) claim.Command {
	switch cmd := r.command.(type) {
	case claim.Acquire:
		cmd.ID = id
		return cmd
	case claim.Create:
		if r.ID == "" {
			cmd.ID = id
		}
		return cmd
	default:
		return cmd
	}
}

// renews returns the owner or the id of the claim that the request may give a new TTL, and that.
func (r *Request) renews() (owner, id string, ttl time.Duration) {
	switch cmd := r.command.(type) {
	case claim.Acquire:
		return cmd.Owner, "", cmd.TTL
	case claim.Renew:
		return "", cmd.ID, cmd.TTL
	case claim.Activate:
		if cmd.TTL != nil {
			return "", cmd.ID, *cmd.TTL
		}
	}
	return "", "", 0
}

// subject returns the subject of the request: its session, its claim's id, or its owner.
func (r *Request) subject() string {
	switch cmd := r.command.(type) {
	case claim.Acquire:
		return cmd.Owner
	case claim.Release:
		return cmd.Owner
	case claim.Create:
		if r.ID == "" && r.Session == "" {
			return cmd.Owner
		}
	}
	return cmp.Or(r.Session, r.ID)
}

// Creates reports whether the request makes a claim with an id.
func (r *Request) Creates() bool {
	_, creates := r.command.(claim.Create)
	return creates && r.ID != ""
}
