package watch

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/periodic"
)

const (
	// keepInterval is how often the keeper looks whether claims are to be kept waiting, while calls
	// wait for such, and idleKeep otherwise.
	keepInterval = 100 * time.Millisecond
	idleKeep     = time.Minute
	// keepLimit is how many claims one command keeps waiting.
	keepLimit   = 256
	keepTimeout = 15 * time.Second
)

// Keeper keeps those claims waiting that calls at a hub wait for: as long as a call waits, somebody
// asks about the claim. It writes seldom: when half of the WaitTTL of one claim has passed, it
// moves all those on of which a quarter has passed.
type Keeper struct {
	hub *Hub
	do  func(context.Context, claim.Command) error
	log *slog.Logger
}

// NewKeeper returns a keeper for the calls at a hub that gives its commands to do.
func NewKeeper(hub *Hub, do func(context.Context, claim.Command) error, log *slog.Logger) *Keeper {
	return &Keeper{hub: hub, do: do, log: log}
}

// Run implements ifrit.Runner.
func (k *Keeper) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	return periodic.Paced(k.pause, k.hub.kept.began, k.keep).Run(signals, ready)
}

func (k *Keeper) pause() time.Duration {
	if k.hub.keeps() == 0 {
		return idleKeep
	}
	return keepInterval
}

func (k *Keeper) keep(ctx context.Context) {
	ids := k.hub.toKeep(time.Now())
	for len(ids) > 0 && ctx.Err() == nil {
		n := min(keepLimit, len(ids))
		sent := time.Now()
		if err := k.send(ctx, ids[:n]); err != nil { // the next look sends them again
			k.log.Debug("claims that calls wait for are not kept waiting", "claims", len(ids), "error", err)
			return
		}
		k.hub.wereKept(ids[:n], sent)
		ids = ids[n:]
	}
}

func (k *Keeper) send(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	return k.do(ctx, claim.KeepWaiting{IDs: ids})
}

// kept is what a hub knows of the claims that are to be kept waiting.
type kept struct {
	count   int           // of the subscriptions for such claims
	soonest time.Time     // not later than the first time at which one is to be kept waiting
	began   chan struct{} // gets a value with the first of them
}

// keeping notes when the claim of a call is to be kept waiting, as it was just read.
func (h *Hub) keeping(s *subscription, c *claim.Claim, now claim.Instant) {
	if c.Status != claim.Waiting || c.Deadline == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.half == 0 {
		if h.kept.count++; h.kept.count == 1 {
			h.kept.soonest = time.Time{}
			select {
			case h.kept.began <- struct{}{}:
			default:
			}
		}
	}
	s.half = max(c.WaitTTL/2, 1)
	h.keepAt(s, time.Now().Add(c.Deadline.Sub(now.Lease)-s.half))
}

func (h *Hub) keepAt(s *subscription, at time.Time) {
	s.keepAt = at
	if at.Before(h.kept.soonest) {
		h.kept.soonest = at
	}
}

func (h *Hub) keeps() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kept.count
}

// toKeep returns the claims to keep waiting now: none while half of the time of each is left,
// else all of which a quarter has passed.
func (h *Hub) toKeep(now time.Time) (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kept.count == 0 || now.Before(h.kept.soonest) {
		return nil
	}
	urgent := false
	h.kept.soonest = now.Add(idleKeep)
	for id, subscriptions := range h.waiting {
		for s := range subscriptions {
			if s.half == 0 {
				continue
			}
			if s.keepAt.Before(h.kept.soonest) {
				h.kept.soonest = s.keepAt
			}
			urgent = urgent || !now.Before(s.keepAt)
			if !now.Before(s.keepAt.Add(-s.half / 2)) {
				ids = append(ids, id)
				break
			}
		}
	}
	if !urgent {
		return nil
	}
	return ids
}

// wereKept notes that claims were kept waiting by a command that was sent at a time.
func (h *Hub) wereKept(ids []string, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		for s := range h.waiting[id] {
			if s.half != 0 {
				h.keepAt(s, sent.Add(s.half))
			}
		}
	}
}
