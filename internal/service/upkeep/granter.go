package upkeep

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
)

const (
	// stoppedInterval is how often a granter looks for grants that have stopped half-way.
	stoppedInterval = 10 * time.Second
	// grantStep is how many resources one command is about.
	grantStep = 256
	// grantTimeout bounds each request to the database, and each command.
	grantTimeout = 15 * time.Second

	// quarantineIdle is how often a granter looks for a quarantine: a store may be found to be rolled back while it is
	// used. quarantineInterval is how often it looks during one.
	quarantineIdle     = time.Second
	quarantineInterval = 250 * time.Millisecond
	// quarantineLate is how long after its end, in lease time, a quarantine is settled. After that its waiting claims were
	// granted long ago.
	quarantineLate = 10 * time.Minute
	// quarantinePause is the pause after a grant that failed.
	quarantinePause = 5 * time.Second
)

// Ungranted is a store as a granter needs it.
type Ungranted interface {
	db.Clocks
	db.Resources
}

// Doer carries out commands, as a Committer does.
type Doer func(ctx context.Context, cmd claim.Command) error

// granter grants claims that no release and no expiry grants.
type granter struct {
	store Ungranted
	do    Doer
	log   *slog.Logger
	pause time.Duration // until the next look

	looked time.Time            // for grants that have stopped
	seen   map[string]unchanged // the resources with waiting claims that nobody holds alone

	// noted is the end of the last quarantine seen, and settled the end of the last one that was settled.
	noted, settled claim.Time
	// after is the last resource that was visited to settle it. After an error of the database it continues there.
	after string
	// failed is why claims of a resource before it could not be granted.
	failed error
}

// unchanged says for how many looks a resource has had a version.
type unchanged struct {
	version uint64
	looks   uint
}

// NewGranter returns a runner that grants waiting claims in two cases. It ends on any signal, without waiting for the
// database.
//
// When the quarantine of a store has ended, the resources that claims wait for are free, so no release or expiry grants them.
//
// If a change grants more claims than fit into one transaction, the committer grants the rest in the next. If that
// transaction is lost, because the server or the database fails, the rest waits until the resource changes again. So the
// granter looks for resources that have not changed between two looks, have waiting claims, and have no exclusive holder.
// Most of them wait for shared holders; the granter looks at these less and less often.
func NewGranter(store Ungranted, do Doer, log *slog.Logger) ifrit.Runner {
	g := &granter{store: store, do: do, log: log}
	return periodic.Paced(func() time.Duration { return g.pause }, nil, g.look)
}

func (g *granter) look(ctx context.Context) {
	g.pause = g.lookAtQuarantine(ctx)
	if time.Since(g.looked) < stoppedInterval {
		return
	}
	g.looked = time.Now()
	if err := g.resume(ctx); err != nil && ctx.Err() == nil {
		g.log.Debug("grants that were started cannot be continued", "error", err)
	}
}

// resume continues grants that have stopped. If more than db.MaxContended resources have waiting claims, it does nothing.
func (g *granter) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, grantTimeout, db.ErrUnavailable)
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
	var failed error
	for resources := range slices.Chunk(left, grantStep) {
		if err := g.grant(ctx, resources, &failed); err != nil {
			return err
		}
	}
	return failed
}

// grant grants claims that wait for resources. A resource that fails, and not because of the database, sets failed and
// delays no other resource.
func (g *granter) grant(ctx context.Context, resources []string, failed *error) error {
	do := func(names []string) error { return g.do(ctx, claim.Expire{Resources: names}) }
	return committer.Isolate(ctx, resources, do, func(name string, err error) { *failed = fmt.Errorf("resource %.200q: %w", name, err) })
}

// lookAtQuarantine settles the quarantine of the store, if it has one, and returns when to look again.
func (g *granter) lookAtQuarantine(ctx context.Context) (pause time.Duration) {
	state := g.store.ClockState()
	end := state.Quarantine
	if end != g.noted {
		g.noted = end
		if left := end.Sub(state.Lease); left > 0 {
			g.log.Warn("the database was restored from a backup, or rolled back: nothing is granted yet", "for", left)
		} else if left < -quarantineLate {
			g.settled = end
		}
	}
	switch {
	case end == g.settled:
		return quarantineIdle
	case !g.ended(ctx, end):
		return quarantineInterval
	}
	if err := g.settle(ctx); err != nil {
		if ctx.Err() == nil {
			g.log.Warn("claims that wait after the quarantine cannot be granted", "error", err)
		}
		return quarantinePause
	}
	g.log.Info("the quarantine has ended")
	g.settled = end
	return quarantineIdle
}

// ended reports whether the quarantine has ended. It asks the store for the lease time, since no server beats while
// claims only wait.
func (g *granter) ended(ctx context.Context, quarantine claim.Time) bool {
	if g.store.ClockState().Lease.Add(db.MaxSilence) < quarantine {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	now, err := g.store.Now(ctx)
	return err == nil && now.Lease >= quarantine
}

// settle visits all resources with waiting claims. After an error, call it again.
func (g *granter) settle(ctx context.Context) error {
	for more := true; more; more = g.after != "" {
		if err := g.settlePage(ctx); err != nil {
			return err
		}
	}
	failed := g.failed
	g.failed = nil
	return failed
}

// settlePage visits the next resources. A resource that fails is left for later.
func (g *granter) settlePage(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, grantTimeout, db.ErrUnavailable)
	defer cancel()
	live, next, _, err := g.store.Resources(ctx, "", g.after, grantStep)
	if err != nil {
		return err
	}
	var contended []string
	for _, r := range live {
		if r.Waiting > 0 {
			contended = append(contended, r.Resource)
		}
	}
	if len(contended) > 0 {
		err = g.grant(ctx, contended, &g.failed)
	}
	if err == nil {
		g.after = next
	}
	return err
}
