package quota

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	// maxAge is how long a count is used. Until it is read again this server does not know what other servers change.
	maxAge = 2 * time.Second
	// perSecond bounds the work of counting: a count of n claims is used for n/perSecond if that is longer than maxAge.
	perSecond = 20_000
	// countTimeout is how long a count may take.
	countTimeout = 10 * time.Second
	// unused is how long the usage of an identity that makes no claims is kept.
	unused = time.Minute
)

// usage is the live claims of one identity.
type usage struct {
	claim.Count
	// read is when the count was read, zero if it must be read again.
	read, used time.Time
	// admitted are the ids of the claims whose commands are not decided yet. Each counts as active and as waiting.
	admitted map[string]bool
	counting *counting // nil while nothing is read
}

// counting is the read of a count.
type counting struct {
	// changes are this server's changes since the read began.
	changes claim.Count
	missed  bool // it may have changed more
	done    chan struct{}
	err     error
}

// fresh reports whether the count may be used.
func (u *usage) fresh(now time.Time) bool {
	age := max(maxAge, time.Duration(u.Active+u.Waiting)*time.Second/perSecond)
	return u.counting == nil && now.Sub(u.read) < age
}

// beyond returns an Error if the identity may not have one more claim that waits, or that does not wait. An identity with as
// many active claims as its quota allows may still have a claim that waits, which is granted in its turn. An identity with
// more active claims may not.
func (u *usage) beyond(n *newClaim, waits bool) error {
	quota, admitted := n.Quota, len(u.admitted)
	switch {
	case quota.Held > 0 && (u.Active > quota.Held || u.Active+admitted >= quota.Held && !waits):
		return &Error{Identity: n.Name, Status: claim.Active, Limit: quota.Held}
	case quota.WaitingClaims > 0 && waits && u.Waiting+admitted >= quota.WaitingClaims:
		return &Error{Identity: n.Name, Status: claim.Waiting, Limit: quota.WaitingClaims}
	}
	return nil
}

// admit admits a claim whether it waits or not, if the count is fresh and neither limit is reached.
func (g *Guard) admit(n *newClaim) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, now := g.usages[n.Name], time.Now()
	if u == nil || !u.fresh(now) || u.beyond(n, true) != nil || u.beyond(n, false) != nil {
		return false
	}
	u.used, u.admitted[n.id] = now, true
	return true
}

// admitAs admits a claim that will wait, or will not wait, or returns an Error. It does neither during a count.
func (g *Guard) admitAs(n *newClaim, waits bool) (admitted bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.use(n.Name, time.Now())
	if u.counting != nil {
		return false, nil
	}
	if err := u.beyond(n, waits); err != nil {
		return false, err
	}
	u.admitted[n.id] = true
	return true, nil
}

// release notes that the command of a claim is decided, or will never be.
func (g *Guard) release(n *newClaim) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if u := g.usages[n.Name]; u != nil {
		delete(u.admitted, n.id)
	}
}

// count makes sure that the count of an identity is fresh. Callers that need the same count share one read.
func (g *Guard) count(ctx context.Context, identity string) error {
	reading := g.beginCount(ctx, identity)
	if reading == nil {
		return nil
	}
	select {
	case <-reading.done:
		return reading.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginCount returns the read of a count, nil if the count is fresh.
func (g *Guard) beginCount(ctx context.Context, identity string) *counting {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	u := g.use(identity, now)
	if u.fresh(now) {
		return nil
	}
	if u.counting == nil {
		u.counting = &counting{done: make(chan struct{})}
		go g.read(context.WithoutCancel(ctx), identity, u, slices.Collect(maps.Keys(u.admitted)))
	}
	return u.counting
}

// read reads a count. It leaves out the claims that were admitted before it began, which may be committed before or after
// the store counts. No claim is admitted meanwhile.
func (g *Guard) read(ctx context.Context, identity string, u *usage, admitted []string) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	begin := time.Now()
	count, err := g.store.Usage(ctx, identity, admitted)
	g.mu.Lock()
	defer g.mu.Unlock()
	reading := u.counting
	u.counting, reading.err = nil, err
	close(reading.done)
	if err != nil {
		return
	}
	u.Active, u.Waiting = count.Active+reading.changes.Active, count.Waiting+reading.changes.Waiting
	if !reading.missed {
		u.read = begin
	}
}

// use returns the usage of an identity. When it makes a new one, it drops the unused ones.
func (g *Guard) use(identity string, now time.Time) *usage {
	u := g.usages[identity]
	if u == nil {
		if now.Sub(g.swept) >= unused {
			g.swept = now
			maps.DeleteFunc(g.usages, func(_ string, u *usage) bool { return u.idle(now) })
		}
		u = &usage{admitted: make(map[string]bool)}
		g.usages[identity] = u
	}
	u.used = now
	return u
}

func (u *usage) idle(now time.Time) bool {
	return u.counting == nil && len(u.admitted) == 0 && now.Sub(u.used) >= unused
}

// Committed implements committer.Listener.
func (g *Guard) Committed(_ claim.Instant, changes []claim.Transition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.usages) == 0 {
		return
	}
	for _, t := range changes {
		u := g.usages[t.After.Identity]
		if u == nil {
			continue
		}
		u.Add(t)
		if u.counting != nil {
			u.counting.changes.Add(t)
		}
		if t.Before == nil {
			delete(u.admitted, t.After.ID)
		}
	}
}

func (g *Guard) Missed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, u := range g.usages {
		u.read = time.Time{}
		if u.counting != nil {
			u.counting.missed = true
		}
	}
}
