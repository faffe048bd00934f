package claim

import "github.com/locket-service/locket/internal/rules/access"

// Sees reports whether a claim may be shown to a caller: callers see their own claims, and claims of resources that
// they may read. A claim belongs to the identity that made it.
func Sees(caller access.Caller, c *Claim) bool {
	return caller.Owns(c.Identity) || caller.Need(access.Read, c.Resource) == nil
}

// SeesUserData reports whether a caller may see a claim's user data, which is private to the client. Others may see
// its value.
func SeesUserData(caller access.Caller, c *Claim) bool {
	return c.Identity == "" || caller.Owns(c.Identity) || caller.Need(access.Administer, c.Resource) == nil
}

// action is a kind of access to an existing claim.
type action uint8

const (
	// toSee shows the claim to the caller.
	toSee action = iota + 1
	// toRenew gives it a new TTL, or treats it as the caller's own.
	toRenew
	// toEnd ends it.
	toEnd
)

// permit returns nil if the caller of the current command may access an existing claim in this way. Otherwise the
// command fails with the returned error and changes nothing: an access.DeniedError, or ErrNotFound for a claim that the
// caller may not see, as if it did not exist.
//
// The caller that made a claim may see and end it without a rule, and renew it for as long as it may hold the resource.
// A claim without an identity, made while authentication was off, belongs to every caller that may hold the resource.
func (q *Queue) permit(a action, m *member) error {
	caller := q.set.caller
	own, open := caller.Owns(m.Identity), m.Identity == ""
	var err error
	switch {
	case a == toSee, a == toEnd && own:
	case a == toRenew && (own || open), a == toEnd && open:
		err = caller.Need(access.Hold, m.Resource)
	case a == toEnd:
		err = caller.Need(access.Revoke, m.Resource)
	default:
		err = caller.Need(access.Administer, m.Resource)
	}
	if (err != nil || a == toSee) && !Sees(caller, m.Claim) {
		return ErrNotFound
	}
	return err
}

// permitted returns the claim with an id if the caller may do something to it. It is ErrNotFound if there is none.
func (q *Queue) permitted(a action, id string) (*member, error) {
	m := q.find(id)
	if m == nil {
		return nil, ErrNotFound
	}
	return m, q.permit(a, m)
}

// permittedIn is permitted for a command of a session, "" for none. A session's claims belong to it, even if another
// identity resumed it, and even if they were made while authentication was off and the rules show them to nobody.
func (q *Queue) permittedIn(session string, a action, id string) (*member, error) {
	if m := q.find(id); m != nil && session != "" && m.Session == session {
		return m, nil
	}
	return q.permitted(a, id)
}
