package access

import (
	"context"
	"fmt"
)

// Identity is who a caller was authenticated as.
type Identity struct {
	// Name is unique among all ways of authentication; it is Anonymous for a caller without credentials, where that
	// is allowed.
	Name string
	// Groups are named by the credential.
	Groups []string
	// Credential is the id of the caller's credential, for the audit log; "" for none.
	Credential string
}

// Anonymous is the name of all callers without credentials, where that is allowed. No way of authentication produces
// it, because their names have a prefix.
const Anonymous = "anonymous"

// Caller is an identity with the rules and the quota that apply to it. It is data alone. The zero Caller may do everything:
// authentication is off.
type Caller struct {
	Identity
	// Rules are those in force; nil where everything is allowed.
	Rules *Rules
	// Quota is the identity's quota, nil for none.
	Quota *Quota
}

// DeniedError names the right that a caller would have needed.
type DeniedError struct {
	Identity string
	// Right is All for a caller that needs any right on any name.
	Right Right
	// Resource is the name; with Prefix set, all names that begin so.
	Resource string
	Prefix   bool
}

func (e *DeniedError) Error() string {
	what := fmt.Sprintf("%q", e.Resource)
	switch {
	case e.Right == All:
		return fmt.Sprintf("no rule allows %s to do anything", e.Identity)
	case e.Prefix && e.Resource == "":
		what = "all resources"
	case e.Prefix:
		what = fmt.Sprintf("all resources that begin with %q", e.Resource)
	}
	return fmt.Sprintf("no rule allows %s to %s %s", e.Identity, e.Right, what)
}

// Need returns nil if the caller has a right on a name, and a DeniedError otherwise.
func (c Caller) Need(right Right, resource string) error {
	if c.Rules == nil || c.Rules.Allows(c.Identity, right, resource) {
		return nil
	}
	return &DeniedError{Identity: c.Name, Right: right, Resource: resource}
}

// NeedOne is Need for one of several rights. The error names the first.
func (c Caller) NeedOne(rights []Right, resource string) error {
	for _, right := range rights {
		if c.Need(right, resource) == nil {
			return nil
		}
	}
	return &DeniedError{Identity: c.Name, Right: rights[0], Resource: resource}
}

// NeedAll is Need for all names that begin with a prefix.
func (c Caller) NeedAll(right Right, prefix string) error {
	if c.Rules == nil || c.Rules.AllowsAll(c.Identity, right, prefix) {
		return nil
	}
	return &DeniedError{Identity: c.Name, Right: right, Resource: prefix, Prefix: true}
}

// NeedAny returns nil if the caller has any right on any name, and a DeniedError otherwise.
func (c Caller) NeedAny() error {
	if c.Rules == nil || c.Rules.AllowsAny(c.Identity) {
		return nil
	}
	return &DeniedError{Identity: c.Name, Right: All, Prefix: true}
}

// Owns reports whether what has an identity, such as a claim, is the caller's own.
func (c Caller) Owns(identity string) bool {
	return c.Rules == nil || c.Name == identity && identity != ""
}

type callerKey struct{}

// WithCaller returns a context for the calls and the commands of a caller. CallerOf asks caller each time: the rules may
// change while a stream lasts.
func WithCaller(ctx context.Context, caller func() Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// CallerOf returns the current caller of a context, the zero Caller if the context has none.
func CallerOf(ctx context.Context) Caller {
	if caller, _ := ctx.Value(callerKey{}).(func() Caller); caller != nil {
		return caller()
	}
	return Caller{}
}

// Detached returns a context with the values and the caller of ctx that does not end with it. CallerOf finds the caller
// in it at once: a long stream asks for each of its commands.
func Detached(ctx context.Context) context.Context {
	caller, _ := ctx.Value(callerKey{}).(func() Caller)
	return WithCaller(context.WithoutCancel(ctx), caller)
}
