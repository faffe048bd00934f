package db

import (
	"context"

	"github.com/locket-service/locket/internal/claim"
)

// Resources reads which resources have live claims.
type Resources interface {
	// Resources reads the rows of up to limit resources, in the order of their names (as bytes): those whose
	// names begin with a prefix, and come after a name, which need not be that of a resource. It returns those with live claims, and the name at
	// which to go on, "" at the end. It costs the same however many claims there are.
	Resources(ctx context.Context, prefix, after string, limit int) (live []Resource, next string, now claim.Instant, err error)

	// Contended returns up to limit of the resources for which claims wait and whose names begin with a
	// prefix: those for which most wait come first, of as many in the order of their names; after leaves out
	// one and those before it. It costs a look-up in an index for each of these resources, however many
	// claims wait: for more than MaxContended of them it returns ErrListTooLong, and for more than ManyContended while
	// many expensive lists wait.
	Contended(ctx context.Context, prefix string, after *Contention, limit int) ([]Resource, claim.Instant, error)
}

// ManyContended is the number of resources with waiting claims above which Contended counts as one of the
// expensive lists, of which few run concurrently.
const ManyContended = 1000

// MaxContended is the maximum number of resources with waiting claims among which Contended searches.
const MaxContended = 10_000

// Resource is a resource with live claims.
type Resource struct {
	claim.Row
	// First is a claim that holds the resource, the one that has held it for longest if there are several.
	// It comes without UserData and Value. Its ID is "" where nobody holds the resource.
	First claim.Claim
	// WaitsSince is when the first waiter was created; 0 if no claim waits.
	WaitsSince claim.Time
}

// Contention is a resource's place in the order of Contended.
type Contention struct {
	Waiting  int
	Resource string
}
