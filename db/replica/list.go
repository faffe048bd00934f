package replica

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/state"
	"github.com/locket-service/locket/internal/rules/claim"
)

// listTimeout is how long a list may take. A list that takes longer reads too much.
const listTimeout = 5 * time.Second

// List implements db.Reader. It is of one moment: the live claims, ended claims on their way to the history, and the
// history.
func (s *Store) List(ctx context.Context, f db.Filter) ([]claim.Claim, claim.Instant, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, db.ErrListTooLong)
	defer cancel()
	if err := s.current(ctx); err != nil {
		return nil, s.clock.instant(), err
	}
	if !f.Live() {
		if done, asked, err := s.readElsewhere(ctx, record.Query{Filter: f}); asked {
			return done.Claims, done.Now, err
		}
	}
	now := s.clock.instant()
	if history.Scans(f) {
		select {
		case s.scanning <- struct{}{}:
			defer func() { <-s.scanning }()
		case <-ctx.Done():
			return nil, now, context.Cause(ctx)
		}
	}
	l := &listing{f: f, now: now, budget: db.Budget(f.Bytes), skip: f.Offset, left: f.Limit}
	if l.left == 0 {
		l.left = math.MaxInt
	}
	written, err := s.inMemory(ctx, l)
	if err != nil {
		return nil, now, err
	}
	ofFile := f
	if ofFile.Offset = 0; f.Limit > 0 {
		ofFile.Limit = f.Limit + f.Offset
	}
	err = s.history.List(ctx, ofFile, written, func(c *claim.Claim) bool { return l.takeBefore(c) && l.take(c) })
	if err != nil {
		return nil, now, unavailable(err)
	}
	l.takeBefore(nil)
	return l.claims, now, nil
}

// listing is one list on its way.
type listing struct {
	f      db.Filter
	now    claim.Instant
	budget db.Budget
	// skip is how many claims are still left out, and left how many may still be taken.
	skip, left int
	over       bool
	// memory are the claims that the file does not have, in order.
	memory []kept
	claims []claim.Claim
}

// kept is a claim that a list may contain. A live one is copied only when it is taken: many may be skipped, and many
// lists may wait for the file.
type kept struct {
	created claim.Time
	id      string
	ended   *claim.Claim // nil for one that is live
	live    state.Kept
}

func (k kept) claim() *claim.Claim {
	if k.ended != nil {
		return k.ended
	}
	return k.live.Claim()
}

// inMemory gathers the claims that the history does not have. It returns the last entry of the log up to where the history's
// claims count.
func (s *Store) inMemory(ctx context.Context, l *listing) (written uint64, err error) {
	s.mu.Lock()
	var live liveClaims
	if l.f.Resource != nil {
		live = s.state.OfResource(*l.f.Resource)
	} else {
		live = s.state.Created()
	}
	var some []*claim.Claim // that have ended
	ended, written, last := s.pending.ended, s.pending.written, s.last
	for _, p := range s.proposed {
		for _, t := range p.changes {
			if t.After.Status.Final() {
				some = append(some, t.After)
			}
		}
	}
	s.mu.Unlock()
	if err := s.seen(ctx, last); err != nil {
		return 0, err
	}
	found, err := l.scan(ctx, live)
	if err != nil {
		return 0, err
	}
	for _, e := range ended {
		some = append(some, e.Claim)
	}
	l.memory = found
	for _, c := range some {
		if state.Passes(&l.f, c, l.now) {
			l.memory = append(l.memory, kept{created: c.Created, id: c.ID, ended: c})
		}
	}
	slices.SortFunc(l.memory, func(a, b kept) int {
		switch {
		case state.Before(&l.f, a.created, a.id, b.created, b.id):
			return -1
		case state.Before(&l.f, b.created, b.id, a.created, a.id):
			return 1
		}
		return 0
	})
	return written, nil
}

// liveClaims are live claims of one moment, in the order of lists. The claim that visit gets is another one after it.
type liveClaims interface {
	Scan(newest bool, from *claim.Claim, visit func(*claim.Claim, state.Kept) (more bool))
}

// scan returns the live claims that pass, as many as the list may need. If the list has only live claims, it skips the
// offset itself, and keeps no skipped claims in memory.
func (l *listing) scan(ctx context.Context, live liveClaims) (some []kept, err error) {
	skip := 0
	if l.f.Live() {
		skip, l.skip = l.skip, 0
	}
	needed := math.MaxInt
	if l.f.Limit > 0 {
		needed = l.f.Limit + l.skip
	}
	seen := 0
	visit := func(c *claim.Claim, live state.Kept) bool {
		if seen++; seen%4096 == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
			return false
		}
		switch {
		case !state.Passes(&l.f, c, l.now):
		case skip > 0:
			skip--
		default:
			some = append(some, kept{created: live.Created(), id: live.ID(), live: live})
		}
		return len(some) < needed && !l.past(c)
	}
	live.Scan(l.f.Newest, l.first(), visit)
	return some, err
}

// first returns a place in the order of the list that all matching claims come after, nil if none is known.
func (l *listing) first() *claim.Claim {
	bound := l.f.MinCreated
	if l.f.Newest {
		bound = l.f.MaxCreated
	}
	switch {
	case l.f.After != nil && (bound == nil || l.f.Newest == (l.f.After.Created < *bound)):
		return &claim.Claim{Created: l.f.After.Created, ID: l.f.After.ID}
	case bound != nil && l.f.Newest:
		return &claim.Claim{Created: *bound + 1}
	case bound != nil:
		return &claim.Claim{Created: *bound}
	default:
		return nil
	}
}

// past reports whether no claim after one passes.
func (l *listing) past(c *claim.Claim) bool {
	if l.f.Newest {
		return l.f.MinCreated != nil && c.Created < *l.f.MinCreated
	}
	return l.f.MaxCreated != nil && c.Created > *l.f.MaxCreated
}

// takeBefore takes the claims in memory that come before one of the file, or all for nil. It reports whether more may
// follow.
func (l *listing) takeBefore(c *claim.Claim) bool {
	for len(l.memory) > 0 && !l.over {
		first := l.memory[0]
		if c != nil && !state.Before(&l.f, first.created, first.id, c.Created, c.ID) {
			break
		}
		if l.memory = l.memory[1:]; l.skip > 0 {
			l.skip--
		} else {
			l.take(first.claim())
		}
	}
	return !l.over
}

// take takes a claim into the list, and reports whether more may follow.
func (l *listing) take(c *claim.Claim) bool {
	switch {
	case l.over:
		return false
	case l.skip > 0:
		l.skip--
		return true
	}
	l.claims = append(l.claims, *c)
	l.left--
	l.over = !l.budget.Take(c) || l.left == 0
	return !l.over
}
