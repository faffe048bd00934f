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

// NewGranter returns a runner that continues large grants. If a change grants more claims than fit into one
// transaction, the committer grants the rest in the next. If that transaction is lost, because the server or the
// database fails, the rest waits until the resource changes again. So the granter looks for resources that have not
// changed between two looks, have waiting claims, and have no exclusive holder. Most of them wait for shared holders;
// the granter looks at these less and less often. It ends on any signal, without waiting for the database.
func NewGranter(store Contended, do Doer, log *slog.Logger) ifrit.Runner {
	g := &granter{store: store, do: do, log: log}
	return periodic.New(grantInterval, func(ctx context.Context) {
		if err := g.look(ctx); err != nil && ctx.Err() == nil {
			g.log.Debug("grants that were started cannot be continued", "error", err)
		}
	})
}

// look continues such grants. If more than db.MaxContended resources have waiting claims, it does nothing.
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
