package db

import (
	"context"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Resources reads which resources have live claims.
type Resources interface {
	// Resources reads the rows of up to limit resources, in the order of their names (as bytes): names that begin with
	// a prefix and come after another name, which need not exist. It returns the resources with live claims, and the
	// name to continue from, "" at the end. Its cost does not depend on the number of claims.
	Resources(ctx context.Context, prefix, after string, limit int) (live []Resource, next string, now claim.Instant, err error)

	// Contended returns up to limit resources with waiting claims and a prefix, most waiters first, then by name; after
	// skips resources up to and including one. It costs a look-up in an index for each of these resources, however many
	// claims wait: for more than MaxContended of them it returns ErrListTooLong, and for more than ManyContended while
	// many expensive lists wait.
	Contended(ctx context.Context, prefix string, after *Contention, limit int) ([]Resource, claim.Instant, error)
}

// ManyContended is the number of resources with waiting claims that makes Contended an expensive list; few of these run
// concurrently.
const ManyContended = 1000

// MaxContended is the maximum number of resources with waiting claims among which Contended searches.
const MaxContended = 10_000

// Resource is a resource with live claims.
type Resource struct {
	claim.Row
	// First is the claim that has held the resource for longest. It comes without UserData and Value. Its ID is "" if
	// nobody holds the resource.
	First claim.Claim
	// WaitsSince is when the first waiter was created; 0 if no claim waits.
	WaitsSince claim.Time
}

// Contention is a resource's place in the order of Contended.
type Contention struct {
	Waiting  int
	Resource string
}
