package auth

import (
	"context"
	"fmt"

	"github.com/locket-service/locket/internal/claim"
)

// Caller is an identity with its rules. A nil Caller may do everything: authentication is off.
//
// A claim belongs to the identity that made it. The caller that made a claim may see and end it without a rule,
// and renew it for as long as it may hold the resource. A claim without an identity, made while
// authentication was off, belongs to every caller that may hold the resource.
type Caller struct {
	Identity
	// Rules returns those that are in force now: a stream sees them change.
	Rules func() *Rules
}

// DeniedError says which right a caller would have needed.
type DeniedError struct {
	Identity string
	Right    Right
	// Resource is the name; with Prefix set, all names that begin so.
	Resource string
	Prefix   bool
}

func (e *DeniedError) Error() string {
	what := fmt.Sprintf("%q", e.Resource)
	switch {
	case e.Prefix && e.Resource == "":
		what = "all resources"
	case e.Prefix:
		what = fmt.Sprintf("all resources that begin with %q", e.Resource)
	}
	return fmt.Sprintf("no rule allows %s to %s %s", e.Identity, e.Right, what)
}

// Need returns nil if the caller has a right on a name, else a DeniedError.
func (c *Caller) Need(right Right, resource string) error {
	if c == nil || c.Rules().Allows(c.Identity, right, resource) {
		return nil
	}
	return &DeniedError{Identity: c.Name, Right: right, Resource: resource}
}

// NeedOne is Need for one of several rights. The error names the first.
func (c *Caller) NeedOne(rights []Right, resource string) error {
	for _, right := range rights {
		if c.Need(right, resource) == nil {
			return nil
		}
	}
	return &DeniedError{Identity: c.Name, Right: rights[0], Resource: resource}
}

// NeedAll is Need for all names that begin with a prefix.
func (c *Caller) NeedAll(right Right, prefix string) error {
	if c == nil || c.Rules().AllowsAll(c.Identity, right, prefix) {
		return nil
	}
	return &DeniedError{Identity: c.Name, Right: right, Resource: prefix, Prefix: true}
}

// Owns reports whether a claim, or what else has an identity, is the caller's own.
func (c *Caller) Owns(identity string) bool { return c == nil || c.Name == identity && identity != "" }

// Sees reports whether a claim may be shown to the caller: its own, and those of resources that
// it may read.
func (c *Caller) Sees(cl *claim.Claim) bool {
	return c.Owns(cl.Identity) || c.Need(Read, cl.Resource) == nil
}

// SeesUserData reports whether the caller may see a claim's user data, which is between the client
// and itself: value is for others to read.
func (c *Caller) SeesUserData(cl *claim.Claim) bool {
	return cl.Identity == "" || c.Owns(cl.Identity) || c.Need(Administer, cl.Resource) == nil
}

// Permit decides about a claim that is there already. A claim that the caller may not see is
// claim.ErrNotFound, as if it were not there.
func (c *Caller) Permit(a claim.Action, cl *claim.Claim) error {
	own, open := c.Owns(cl.Identity), cl.Identity == ""
	err := error(nil)
	switch {
	case a == claim.ToSee, a == claim.ToEnd && own:
	case a == claim.ToRenew && (own || open), a == claim.ToEnd && open:
		err = c.Need(Hold, cl.Resource)
	case a == claim.ToEnd:
		err = c.Need(Revoke, cl.Resource)
	default:
		err = c.Need(Administer, cl.Resource)
	}
	if (err != nil || a == claim.ToSee) && !c.Sees(cl) {
		return claim.ErrNotFound
	}
	return err
}

type callerKey struct{}

// WithCaller returns a context for the calls of a caller.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller of a context, nil if authentication is off.
func CallerOf(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}
