package watch

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
)

const (
	// renewInterval is how often the WaitRenewer looks for claims whose wait must be renewed, and idleRenew the same
	// while no call waits for such a claim.
	renewInterval = 100 * time.Millisecond
	idleRenew     = time.Minute
	// renewLimit is how many claims one command renews.
	renewLimit   = 256
	renewTimeout = 15 * time.Second
	// asideTime is the longest pause before a failed renewal of a claim is tried again, unless the database caused the failure.
	asideTime = time.Second
)

// WaitRenewer renews the wait of the claims that calls at a hub wait for, so that their WaitTTL does not abort them. To
// write seldom, it renews when half of the WaitTTL of one claim has passed, and then every claim of whose WaitTTL a
// quarter has passed.
type WaitRenewer struct {
	hub *Hub
	do  func(context.Context, claim.Command) error
	log *slog.Logger
}

// NewWaitRenewer returns a WaitRenewer for the calls at a hub. do runs its commands, as a Committer does.
func NewWaitRenewer(hub *Hub, do func(context.Context, claim.Command) error, log *slog.Logger) *WaitRenewer {
	return &WaitRenewer{hub: hub, do: do, log: log}
}

// Run implements ifrit.Runner.
func (r *WaitRenewer) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	return periodic.Paced(r.pause, r.hub.renewals.began, r.renew).Run(signals, ready)
}

func (r *WaitRenewer) pause() time.Duration {
	if r.hub.countRenewals() == 0 {
		return idleRenew
	}
	return renewInterval
}

func (r *WaitRenewer) renew(ctx context.Context) {
	ids := r.hub.dueRenewals(time.Now())
	if len(ids) == 0 {
		return
	}
	r.hub.noteKept(make(map[string]bool))
	defer r.hub.noteKept(nil)
	for some := range slices.Chunk(ids, renewLimit) {
		err := committer.Isolate(ctx, some, func(ids []string) error { return r.keep(ctx, ids) }, func(id string, err error) {
			r.log.Debug("a claim that calls wait for is not kept waiting", "claim", id, "error", err)
			r.hub.setAside(id)
		})
		if err != nil { // the next look tries again
			r.log.Debug("claims that calls wait for are not kept waiting", "error", err)
			return
		}
	}
}

// keep renews the waits of claims.
func (r *WaitRenewer) keep(ctx context.Context, ids []string) error {
	sent := time.Now()
	err := r.send(ctx, ids)
	if err == nil {
		r.hub.renewed(ids, sent)
	}
	return err
}

func (r *WaitRenewer) send(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, renewTimeout, db.ErrUnavailable)
	defer cancel()
	return r.do(ctx, claim.KeepWaiting{IDs: ids})
}

// renewals are a hub's records of claims whose wait must be renewed.
type renewals struct {
	count   int           // number of subscriptions to such claims
	soonest time.Time     // not later than the first renewal that is due
	began   chan struct{} // gets a value when the first subscription comes
	// kept are the claims whose wait this server's commits have renewed while the WaitRenewer works; nil while it
	// rests. Its commands skip claims whose rows somebody else keeps locked.
	kept map[string]bool
}

func (h *Hub) noteKept(kept map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewals.kept = kept
}

// kept notes that the wait of a claim was renewed.
func (h *Hub) kept(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.renewals.kept != nil {
		h.renewals.kept[id] = true
	}
}

// noteWaitTTL notes when the wait of a claim must be renewed. The claim was just read.
func (h *Hub) noteWaitTTL(s *subscription, c *claim.Claim, now claim.Instant) {
	if c.Status != claim.Waiting || c.Deadline == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.half == 0 {
		if h.renewals.count++; h.renewals.count == 1 {
			h.renewals.soonest = time.Time{}
			periodic.Wake(h.renewals.began)
		}
	}
	s.half = max(c.WaitTTL/2, 1)
	h.setRenewAt(s, time.Now().Add(c.Deadline.Sub(now.Lease)-s.half))
}

func (h *Hub) setRenewAt(s *subscription, at time.Time) {
	s.renewAt = at
	if at.Before(h.renewals.soonest) {
		h.renewals.soonest = at
	}
}

func (h *Hub) countRenewals() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.renewals.count
}

// dueRenewals returns the claims to renew now: none while each has more than half of its WaitTTL left, otherwise all
// that have used a quarter of it.
func (h *Hub) dueRenewals(now time.Time) (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.renewals.count == 0 || now.Before(h.renewals.soonest) {
		return nil
	}
	urgent := false
	h.renewals.soonest = now.Add(idleRenew)
	for id, subscriptions := range h.waiting {
		for s := range subscriptions {
			if s.half == 0 {
				continue
			}
			if s.renewAt.Before(h.renewals.soonest) {
				h.renewals.soonest = s.renewAt
			}
			urgent = urgent || !now.Before(s.renewAt)
			if !now.Before(s.renewAt.Add(-s.half / 2)) {
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

// setAside notes that the wait of a claim could not be renewed, and will be tried again a moment later.
func (h *Hub) setAside(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.waiting[id] {
		if s.half != 0 {
			h.setRenewAt(s, time.Now().Add(min(asideTime, s.half/4)))
		}
	}
}

// renewed notes that a command about claims was executed. sent is when it was sent. It has renewed the kept claims.
func (h *Hub) renewed(ids []string, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		for s := range h.waiting[id] {
			if s.half != 0 && h.renewals.kept[id] {
				h.setRenewAt(s, sent.Add(s.half))
			}
		}
	}
}
