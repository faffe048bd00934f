package upkeep

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

const (
	// settleInterval is how often it is looked whether a quarantine has ended.
	settleInterval = 250 * time.Millisecond
	// settleLate is how much lease time after its end a quarantine is not looked at any more: what waited was granted then.
	settleLate = 10 * time.Minute
	settlePage = 1000
)

// Restored is a store that may have been restored from a backup.
type Restored interface {
	ClockState() db.ClockState
	Live(ctx context.Context, resource *string, page db.Page) ([]claim.Claim, error)
}

// Doer carries out commands.
type Doer func(ctx context.Context, cmd claim.Command) error

// NewSettler returns a runner that grants what claims wait for when the quarantine of a restored store has ended: nobody holds it, so
// that nothing else makes anybody look at it. Without a quarantine it does nothing.
func NewSettler(store Restored, do Doer, log *slog.Logger) ifrit.Runner {
	return ifrit.RunFunc(func(signals <-chan os.Signal, ready chan<- struct{}) error {
		close(ready)
		if store.ClockState().Quarantine == 0 {
			<-signals
			return nil
		}
		tick := time.NewTicker(settleInterval)
		defer tick.Stop()
		for told, done := false, false; !done; {
			select {
			case <-signals:
				return nil
			case <-tick.C:
			}
			switch state := store.ClockState(); {
			case state.Lease > state.Quarantine.Add(settleLate):
				done = true
			case state.Lease >= state.Quarantine:
				done = settle(store, do, log)
			case !told:
				log.Warn("the database was restored from a backup: nothing is granted yet", "for", state.Quarantine.Sub(state.Lease))
				told = true
			}
		}
		<-signals
		return nil
	})
}

// settle looks at all resources for which claims wait.
func settle(store Restored, do Doer, log *slog.Logger) (done bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	seen := make(map[string]bool)
	for page := (db.Page{Limit: settlePage}); ; {
		live, err := store.Live(ctx, nil, page)
		if err != nil {
			log.Warn("what waits after the quarantine cannot be read", "error", err)
			return false
		}
		for i := range live {
			c := &live[i]
			if c.Status != claim.Waiting || seen[c.Resource] {
				continue
			}
			seen[c.Resource] = true
			if err := do(ctx, claim.Expire{Resources: []string{c.Resource}}); err != nil {
				log.Warn("what waits after the quarantine cannot be granted", "resource", c.Resource, "error", err)
				return false
			}
		}
		if len(live) < settlePage {
			log.Info("the quarantine after the restore has ended")
			return true
		}
		page.After = live[len(live)-1].ID
	}
}
