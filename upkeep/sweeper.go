package upkeep

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/committer"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/periodic"
)

const (
	sweepInterval = 50 * time.Millisecond
	// idleGrace is for how long a lease that ran out is left alone while no claim waits
	// for it, so that a renewal that is a little late still finds it.
	idleGrace  = 500 * time.Millisecond
	sweepLimit = 256
)

// Sweeper ends leases that have run out: within 100 ms where somebody waits, within a
// second otherwise.
type Sweeper struct {
	store     db.Due
	committer *committer.Committer
	log       *slog.Logger
}

// NewSweeper returns a sweeper of the store that ends leases through the committer.
func NewSweeper(store db.Due, queues *committer.Committer, log *slog.Logger) *Sweeper {
	return &Sweeper{store: store, committer: queues, log: log}
}

// Run implements ifrit.Runner.
func (s *Sweeper) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	return periodic.New(sweepInterval, s.sweep).Run(signals, ready)
}

// sweep goes on while there is more to do than fits into one batch, unless the database
// refuses: it would be asked for the same again, without a pause.
func (s *Sweeper) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		resources, err := s.store.Due(ctx, idleGrace, sweepLimit)
		if err != nil {
			s.log.Debug("the sweep cannot read", "error", err)
			return
		}
		if len(resources) == 0 {
			return
		}
		if _, err := s.committer.Do(ctx, claim.Expire{Resources: resources}); err != nil {
			s.log.Debug("the sweep cannot write", "error", err)
			return
		}
		if len(resources) < sweepLimit {
			return
		}
	}
}
