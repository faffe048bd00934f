package committer

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

const (
	sweepInterval = 50 * time.Millisecond
	// idleGrace is for how long a lease that ran out is left alone while nobody waits
	// for it, so that a renewal that is a little late still finds it.
	idleGrace  = 500 * time.Millisecond
	sweepLimit = 256
)

// Sweeper ends leases that have run out: within 100 ms where somebody waits, within a
// second otherwise.
type Sweeper struct {
	store     db.Reader
	committer *Committer
	log       *slog.Logger
}

// NewSweeper returns a sweeper of the store that ends leases through the committer.
func NewSweeper(store db.Reader, committer *Committer, log *slog.Logger) *Sweeper {
	return &Sweeper{store: store, committer: committer, log: log}
}

// Run implements ifrit.Runner.
func (s *Sweeper) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	return every(sweepInterval, signals, ready, s.sweep)
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
		if !s.expire(ctx, resources) || len(resources) < sweepLimit {
			return
		}
	}
}

// expire reports whether all went well.
func (s *Sweeper) expire(ctx context.Context, resources []string) bool {
	var (
		group  sync.WaitGroup
		failed atomic.Bool
	)
	for _, resource := range resources {
		group.Go(func() {
			if _, err := s.committer.Do(ctx, claim.Expire{Resources: []string{resource}}); err != nil {
				failed.Store(true)
				s.log.Debug("the sweep cannot write", "error", err)
			}
		})
	}
	group.Wait()
	return !failed.Load()
}

// every calls work at an interval until it is told to stop, never twice at once. The
// context of a call that is under way then ends.
func every(interval time.Duration, signals <-chan os.Signal, ready chan<- struct{}, work func(context.Context)) error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				work(ctx)
			}
		}
	}()
	close(ready)
	<-signals
	cancel()
	<-done
	return nil
}
