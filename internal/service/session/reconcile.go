package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// background runs a read outside of the session's mutex, and then calls the function that the read returned, with the
// mutex held. The end of the session here cancels the read; then nothing is called.
func (a *Attached) background(read func(context.Context) (then func())) {
	a.m.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(a.life, readTimeout)
		defer cancel()
		then := read(ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.err == nil {
			then()
		}
	})
}

// look reads the ended claim of a resource, reports its end to the client, and calls then.
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
			case c == nil && r.id == id:
				a.learn(r, r.gone())
			case r.id == id:
				a.learn(r, c)
			}
			then()
		}
	})
}

// get returns a claim, nil if it no longer exists: it has ended, and it is unknown how.
func (a *Attached) get(ctx context.Context, id string) (*claim.Claim, error) {
	c, _, _, err := a.m.store.Get(ctx, id, 0)
	if errors.Is(err, claim.ErrNotFound) {
		return nil, nil
	}
	return &c, err
}

// gone returns the claim of a resource as ended, without a status: its row no longer exists, so it is unknown how it
// ended.
func (r *resource) gone() *claim.Claim {
	return &claim.Claim{ID: r.id, Resource: r.name, Units: r.units, Version: r.version + 1}
}

// Missed implements watch.SessionListener.
func (a *Attached) Missed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.reconcile()
	}
}

// reconcile reads the session's claims again, because changes may have been missed.
func (a *Attached) reconcile() {
	if a.doubtful = a.reads > 0; a.doubtful { // once more, after the read that runs
		return
	}
	a.reads++
	a.background(func(ctx context.Context) func() {
		claims, ended, err := a.readClaims(ctx)
		return func() {
			a.reads--
			a.reading = false
			for _, c := range ended { // even after an error: the next read need not ask for these again
				if r := a.resources[c.Resource]; r.knows(c.ID) {
					a.learn(r, c)
				}
			}
			if err != nil {
				a.doubtful = true
				time.AfterFunc(retryPause, a.Missed)
				return
			}
			for i := range claims {
				a.learn(a.resource(claims[i].Resource), &claims[i])
			}
			for _, r := range a.resources {
				a.forget(r)
			}
			if a.doubtful {
				a.reconcile()
				return
			}
			a.unknown = false
			if then := a.known; then != nil {
				a.known = nil
				then()
			}
		}
	})
}

// whenKnown calls then once the client knows all changes by its commands: at once, or, if the outcome of a command was
// unknown, after the claims were read. Only one function may wait at a time.
func (a *Attached) whenKnown(then func()) {
	if a.unknown && (a.reads > 0 || a.doubtful) {
		a.known = then
		return
	}
	then()
}

// readClaims reads the live claims of the session, and claims that it knew and that have ended. After an error, ended
// may be incomplete.
func (a *Attached) readClaims(ctx context.Context) (live []claim.Claim, ended []*claim.Claim, err error) {
	select {
	case a.m.reading <- struct{}{}:
		defer func() { <-a.m.reading }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	a.mu.Lock()
	a.reading = true
	known := make(map[string]*claim.Claim, len(a.resources)) // by id; the value describes the end of a claim whose row no longer exists
	for _, r := range a.resources {
		if r.id != "" {
			known[r.id] = r.gone()
		} else if r.work != nil && r.work.about != "" {
			known[r.work.about] = nil
		}
	}
	a.mu.Unlock()
	if live, err = a.m.store.Live(ctx, db.LiveOf{Session: a.ID}, db.Page{}); err != nil {
		return nil, nil, err
	}
	for i := range live {
		delete(known, live[i].ID)
	}
	for id, gone := range known {
		c, err := a.get(ctx, id)
		if err != nil {
			return nil, ended, err
		}
		if c = cmp.Or(c, gone); c != nil {
			ended = append(ended, c)
		}
	}
	return live, ended, nil
}

// findOut ends the session's service here if the session is no longer attached here.
func (a *Attached) findOut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.ask(false)
	}
}

// ask reads the session's row, and ends its service here if the session is no longer attached here. surely means that
// a commit has found that.
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
			case closing && !surely: // the answer to Close comes soon
			case err == nil && row.Ends() && !surely: // in steps, each with changes of its claims
				a.asking = true
				a.askLater()
			case errors.Is(err, claim.ErrSessionEnded), err == nil && row.Ends():
				a.asking = true // no more
				a.endBehind(endTries)
			case err == nil && (row.Server != "" && !here || here && surely): // by another stream
				a.stop(ErrMoved)
			case err == nil && row.Server == "" || surely:
				a.stop(ErrDetached)
			}
		}
	})
}

// askLater asks again after a pause.
func (a *Attached) askLater() {
	time.AfterFunc(retryPause, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.asking = false; a.err == nil {
			a.ask(false)
		}
	})
}

// endTries is how often the feed is read to learn how the claims of an ended session ended.
const endTries = 10

// endBehind ends the service of a session that has ended, after the changes of its claims: a read may see the end
// before the hub has reported them. It does not wait for ever: the client has lost its claims anyway.
func (a *Attached) endBehind(tries int) {
	if a.err != nil || a.holding+a.waiting == 0 || tries == 0 {
		a.stop(claim.ErrSessionEnded)
		return
	}
	time.AfterFunc(retryPause, func() {
		a.inbox.Put(func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.endBehind(tries - 1)
		})
	})
}
