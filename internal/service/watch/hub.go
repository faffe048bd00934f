package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
)

// ErrStopped is returned to calls that wait when this server shuts down. They may be repeated at another server.
var ErrStopped = errors.New("the server lets no more calls wait")

// Store is the part of a store that a hub uses.
type Store interface {
	db.Getter
	db.Feed
}

// Hub wakes the calls that wait for a claim, reports changes of claims to their sessions, and has the log of the
// watchers.
type Hub struct {
	store db.Getter
	log   *feedLog
	// Answers measures how long callers wait for the news of a grant.
	Answers *Answers
	// Refusals counts the requests that this server refuses.
	Refusals *Refusals

	tracer Tracer // nil: no traces

	mu       sync.Mutex
	waiting  map[string]map[*subscription]struct{} // by the claim's id
	count    int
	renewals renewals
	wake     chan struct{}   // gets a value when the feed must be read now
	running  context.Context // ends with Stop
	stop     func()

	sessions map[string]*sessionFollower // by the session's id
}

// Tracer gets the commits of other servers.
type Tracer interface {
	Elsewhere(server string, changes []claim.Transition)
}

// Trace sets the tracer. Call it before the follower runs.
func (h *Hub) Trace(tracer Tracer) { h.tracer = tracer }

// subscription is one call that waits for one claim.
type subscription struct {
	id string
	// updates gets the current claim, or nil if the call must read it.
	updates chan *update
	// half is half of the claim's WaitTTL, 0 for none; renewAt is when its wait must be renewed: see WaitRenewer.
	half    time.Duration
	renewAt time.Time
}

// update is a claim after a transaction, the time of the transaction, and when it was committed here.
type update struct {
	claim *claim.Claim
	now   claim.Instant
	at    time.Time
}

// NewHub returns a hub that reads claims from a store. It registers metrics of the waiting calls and of the watches.
func NewHub(store Store, registerer prometheus.Registerer) *Hub {
	running, stop := context.WithCancel(context.Background())
	h := &Hub{store: store, Answers: newAnswers(registerer), Refusals: newRefusals(), running: running, stop: stop, waiting: make(map[string]map[*subscription]struct{}), wake: make(chan struct{}, 1), sessions: make(map[string]*sessionFollower)}
	h.renewals.began = make(chan struct{}, 1)
	h.log = newFeedLog(store, h.poke, registerer)
	registerer.MustRegister(metric.GaugeFunc("locket_waiters", "Calls that wait for a claim on this server.", func() float64 { return float64(h.len()) }))
	return h
}

// Committed implements committer.Listener: it wakes the calls whose claims have stopped waiting.
func (h *Hub) Committed(now claim.Instant, changes []claim.Transition) {
	if watched, _ := h.log.wanted(); watched {
		h.poke()
	}
	committed := time.Now()
	for _, change := range changes {
		switch {
		case change.StoppedWaiting():
			h.notify(change.After.ID, updateOf(change.After, now, committed))
		case change.Before != nil && change.After.Status == claim.Waiting:
			h.kept(change.After.ID)
		}
		h.changed(change)
	}
}

// updateOf returns the update of a claim, or nil if the claim is incomplete.
func updateOf(c *claim.Claim, now claim.Instant, at time.Time) *update {
	if c.Brief {
		return nil
	}
	return &update{c, now, at}
}

// applyFeed wakes the calls whose claims have stopped waiting by commits of other servers. It skips the changes of this
// server, which are in the feed for the watchers and which Committed has reported.
func (h *Hub) applyFeed(commits []db.Commit) {
	for _, c := range commits {
		if h.tracer != nil && len(c.Others) > 0 {
			h.tracer.Elsewhere(c.Server, c.Others)
		}
		for _, change := range c.Others {
			if change.StoppedWaiting() {
				h.notify(change.After.ID, nil)
			}
			h.changed(change)
		}
	}
}

// Missed implements committer.Listener: all waiting calls and all sessions of this server read their claims.
func (h *Hub) Missed() { h.notifyAll() }

func (h *Hub) subscribe(id string) *subscription {
	s := &subscription{id: id, updates: make(chan *update, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting[id] == nil {
		h.waiting[id] = make(map[*subscription]struct{})
	}
	h.waiting[id][s] = struct{}{}
	if h.count++; h.count == 1 {
		h.poke()
	}
	return s
}

// poke makes the follower read the feed now.
func (h *Hub) poke() { periodic.Wake(h.wake) }

func (h *Hub) unsubscribe(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting[s.id], s)
	if len(h.waiting[s.id]) == 0 {
		delete(h.waiting, s.id)
	}
	h.count--
	if s.half != 0 {
		h.renewals.count--
	}
}

// notify wakes the calls that wait for a claim. n may be nil: then they read it.
func (h *Hub) notify(id string, n *update) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.waiting[id] {
		s.tell(n)
	}
}

// notifyAll makes all waiting calls and all sessions of this server read their claims.
func (h *Hub) notifyAll() {
	defer h.missed()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, subscriptions := range h.waiting {
		for s := range subscriptions {
			s.tell(nil)
		}
	}
}

func (s *subscription) tell(n *update) {
	select {
	case s.updates <- n:
	default: // the call is awake already, and reads the claim
	}
}

func (h *Hub) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// waits reports whether a call waits on this server, or a session is attached to it: another server may end what the
// session holds.
func (h *Hub) waits() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count > 0 || len(h.sessions) > 0
}

// Stop makes every Await and every Watcher return ErrStopped, now and later.
func (h *Hub) Stop() { h.stop() }
