package session

import (
	"context"
	"errors"
	"time"

	"github.com/locket-service/locket/claim"
)

// background reads something beside the commands, and then calls what the read returned, unless
// the session has ended.
func (a *Attached) background(read func(context.Context) (then func())) {
	a.m.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(a.caller, readTimeout)
		defer cancel()
		go func() {
			select {
			case <-a.ended:
				cancel()
			case <-ctx.Done():
			}
		}()
		then := read(ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.err == nil && then != nil {
			then()
		}
	})
}

// look reads the claim of a resource that has ended, tells it, and goes on.
func (a *Attached) look(r *resource, then func()) {
	id := r.id
	if id == "" { // it has been told meanwhile
		then()
		return
	}
	a.background(func(ctx context.Context) func() {
		c, err := a.get(ctx, id)
		return func() {
			switch {
			case err != nil:
				a.refuse(r, err)
				return
			case r.id == id:
				a.gone(r, c)
			}
			then()
		}
	})
}

// get reads a claim. One that is there no more has ended, nobody knows how.
func (a *Attached) get(ctx context.Context, id string) (*claim.Claim, error) {
	c, _, err := a.m.store.Get(ctx, id)
	if errors.Is(err, claim.ErrNotFound) {
		return nil, nil
	}
	return &c, err
}

// gone takes in that the claim of a resource has ended; c is nil when it is there no more.
func (a *Attached) gone(r *resource, c *claim.Claim) {
	if c == nil {
		c = &claim.Claim{ID: r.id, Resource: r.name, Mode: r.mode, Version: r.version + 1}
	}
	a.changed(change{Transition: claim.Transition{Before: c, After: c}})
}

// Missed implements watch.SessionListener.
func (a *Attached) Missed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.err != nil:
	case a.loading:
		a.doubtful = true
	default:
		a.reconcile()
	}
}

// reconcile reads the session's claims again, since changes may have been missed.
func (a *Attached) reconcile() {
	if a.doubtful = a.reads > 0; a.doubtful { // once more, after the read under way
		return
	}
	a.reads++
	a.background(func(ctx context.Context) func() {
		claims, ended, err := a.readClaims(ctx)
		return func() {
			a.reads--
			if err != nil {
				time.AfterFunc(retryPause, a.Missed)
				return
			}
			for _, c := range claims {
				a.changed(change{Transition: claim.Transition{After: c}, own: true})
			}
			for _, c := range ended {
				if r := a.resources[c.Resource]; r != nil && r.id == c.ID {
					a.changed(change{Transition: claim.Transition{Before: c, After: c}})
				}
			}
			for _, r := range a.resources {
				a.forget(r)
			}
			if a.doubtful {
				a.reconcile()
			}
		}
	})
}

// readClaims reads the live claims of the session, and those that it had and that have ended.
func (a *Attached) readClaims(ctx context.Context) (live, ended []*claim.Claim, err error) {
	select {
	case a.m.reading <- struct{}{}:
		defer func() { <-a.m.reading }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	a.mu.Lock()
	known := make(map[string]*resource, len(a.resources)) // by the claim's id
	for _, r := range a.resources {
		if r.id != "" {
			known[r.id] = &resource{name: r.name, mode: r.mode, version: r.version}
		}
	}
	a.mu.Unlock()
	claims, err := a.m.store.SessionClaims(ctx, a.ID)
	if err != nil {
		return nil, nil, err
	}
	for i := range claims {
		live = append(live, &claims[i])
		delete(known, claims[i].ID)
	}
	for id, r := range known {
		c, err := a.get(ctx, id)
		switch {
		case err != nil:
			return nil, nil, err
		case c == nil:
			c = &claim.Claim{ID: id, Resource: r.name, Mode: r.mode, Version: r.version + 1}
		}
		ended = append(ended, c)
	}
	return live, ended, nil
}

// findOut has the session end its stay here if it is not attached here any more.
func (a *Attached) findOut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.ask(false)
	}
}

// ask reads the session's row, since something says that it may not be attached here any more, and
// ends its stay here if that is so. surely says that it is not.
func (a *Attached) ask(surely bool) {
	if a.asking && !surely {
		return
	}
	a.asking = true
	a.background(func(ctx context.Context) func() {
		row, _, err := a.m.store.Session(ctx, a.ID)
		return func() {
			a.asking = false
			here := err == nil && row.Server == a.server
			_, closing := a.barrier.(Close)
			switch {
			case closing && !surely: // it is about to be answered
			case errors.Is(err, claim.ErrSessionEnded):
				a.stop(claim.ErrSessionEnded)
			case err == nil && (row.Server != "" && !here || here && surely): // by another stream
				a.stop(ErrMoved)
			case err == nil && row.Server == "" || surely:
				a.stop(ErrDetached)
			}
		}
	})
}
