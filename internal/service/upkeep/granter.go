package upkeep

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	// grantInterval is how often a granter looks.
	grantInterval = 10 * time.Second
	// grantStep is how many resources one command is about.
	grantStep = 256
)

// Contended is a store as a granter needs it.
type Contended interface {
	// Contended implements db.Resources.
	Contended(ctx context.Context, prefix string, after *db.Contention, limit int) ([]db.Resource, claim.Instant, error)
}

// granter finds resources where grants may have stopped half-way.
type granter struct {
	store Contended
	do    Doer
	log   *slog.Logger
	seen  map[string]unchanged // the resources with waiting claims that nobody holds alone
}

// unchanged says for how many looks a resource has had a version.
type unchanged struct {
	version uint64
	looks   uint
}

// NewGranter returns a runner that continues large grants. What is more than one transaction grants, the committer grants in the next; if that never
// comes, because the server has failed or the database did not take it, nobody grants the rest until the resource changes. A change grants
// all that can be granted. So the granter looks for resources that have not changed between two looks, where claims wait and nobody holds the
// resource alone. Most of them wait for shared holders, and are left alone for ever longer times. It ends on any signal, without waiting for the database.
func NewGranter(store Contended, do Doer, log *slog.Logger) ifrit.Runner {
	g := &granter{store: store, do: do, log: log}
	return periodic.New(grantInterval, func(ctx context.Context) {
		if err := g.look(ctx); err != nil && ctx.Err() == nil {
			g.log.Debug("grants that were begun cannot be continued", "error", err)
		}
	})
}

// look grants what may be left, of db.MaxContended resources at most: where more have waiting claims, it does nothing.
func (g *granter) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, db.ErrUnavailable)
	defer cancel()
	contended, _, err := g.store.Contended(ctx, "", nil, db.MaxContended)
	if err != nil {
		return err
	}
	before := g.seen
	g.seen = make(map[string]unchanged)
	var left []string
	for _, r := range contended {
		if r.Holder != "" {
			continue
		}
		now := unchanged{version: r.Version}
		if was, known := before[r.Resource]; known && was.version == r.Version {
			now.looks = was.looks + 1
			if now.looks&was.looks == 0 { // 1, 2, 4, 8, …
				left = append(left, r.Resource)
			}
		}
		g.seen[r.Resource] = now
	}
	for resources := range slices.Chunk(left, grantStep) {
		if err := g.do(ctx, claim.Expire{Resources: resources}); err != nil {
			return err
		}
	}
	return nil
}
