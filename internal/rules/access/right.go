package access

import (
	"fmt"
	"strings"
)

// Right is a permission on resources.
type Right uint8

const (
	// Read: see claims, queues, locks and waits of the resource, and watch it.
	Read Right = 1 << iota
	// Hold: claim the resource, and renew one's own claims.
	Hold
	// Revoke: end claims of other identities.
	Revoke
	// Administer: renew claims of other identities, and see their user data; with all resources:
	// list the sessions of all, and reset sessions.
	Administer

	// All are the rights together.
	All = Read | Hold | Revoke | Administer
)

var rightNames = []struct {
	right Right
	name  string
}{{Read, "read"}, {Hold, "hold"}, {Revoke, "revoke"}, {Administer, "administer"}}

func (r Right) String() string {
	var names []string
	for _, known := range rightNames {
		if r&known.right != 0 {
			names = append(names, known.name)
		}
	}
	return strings.Join(names, ", ")
}

// ParseRight returns a right by its name.
func ParseRight(name string) (Right, error) {
	for _, known := range rightNames {
		if known.name == name {
			return known.right, nil
		}
	}
	return 0, fmt.Errorf("unknown right %q; use read, hold, revoke or administer", name)
}

// Each returns the rights that a set of rights has.
func (r Right) Each() (rights []Right) {
	for _, known := range rightNames {
		if r&known.right != 0 {
			rights = append(rights, known.right)
		}
	}
	return rights
}
