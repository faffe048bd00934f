package stream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

// keepEnded is how long the record of a resource is kept after the session no longer holds it or waits for it.
const keepEnded = time.Minute

// apply takes a server's report about a resource, and returns the session's status for it. Reports that are not newer
// than the record change nothing. An answer to a resume is the exception: if the server knows only an older state, its
// database was rolled back, and everything that the session got since is lost. The caller has the lock.
func (s *Session) apply(m *models.SessionStatus, resumed bool) Status {
	now := statusOf(m)
	r := s.records[now.Resource]
	if m.GetVersion() == 0 { // the session neither holds it nor waits for it
		return now
	}
	if r == nil {
		r = &record{Status: Status{Resource: now.Resource}}
		s.records[now.Resource] = r
	}
	r.stream = s.streams
	if m.GetVersion() == r.version { // it was known, or nothing has changed
		return now
	}
	older := m.GetVersion() < r.version
	if older && !resumed {
		return r.Status
	}
	r.version = m.GetVersion()
	if older && r.Current != None {
		s.change(r, Status{Resource: now.Resource, Claim: r.Claim, Shared: r.Shared, Cause: models.ErrRolledBack})
	}
	if r.Current == Holding && now.Current == Holding && r.Token == now.Token {
		r.Claim, r.Shared = now.Claim, now.Shared // something else about it has changed
		return r.Status
	}
	if r.Current != None && now.Current != None && r.Claim != now.Claim {
		s.change(r, Status{Resource: now.Resource, Claim: r.Claim, Shared: r.Shared, Cause: fmt.Errorf("%w, and another one was made", base.ErrTokenChanged)})
	}
	if r.Current != now.Current {
		s.change(r, now)
	}
	return r.Status
}

// causeOf returns why the claim on a resource ended, when an answer says that the session does not hold the resource.
// An earlier event may have had the reason. The caller has the lock.
func (s *Session) causeOf(answer *Status) error {
	if r := s.records[answer.Resource]; answer.Cause == nil && r != nil {
		return r.Cause
	}
	return answer.Cause
}

// change stores a status and notifies everybody. The caller has the lock.
func (s *Session) change(r *record, to Status) {
	to.Previous = r.Current
	switch {
	case to.Current != None:
	case s.givingUp[to.Resource]+s.givingUp[""] > 0 && isGivenUp(to.Cause):
		to.Cause = nil
	case to.Cause == nil:
		to.Cause = models.ClaimEndedError{} // the servers did not say how
	}
	if to.Previous == Holding && to.Cause != nil {
		to.Cause = base.Lost(to.Resource, to.Cause)
	}
	r.Status, r.why = to, nil
	if to.Current == None {
		r.ended = time.Now()
	}
	q := s.queues[to.Resource]
	s.held(r, q != nil && q.phase != idle)
	if q != nil {
		q.changed(to)
	}
	for l := range s.listeners {
		l.calls.Put(func() {
			if s.listens(l) {
				l.f(to)
			}
		})
	}
}

func (s *Session) listens(l *listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listeners[l]
}

// reconcile ends the claims that the resumed stream did not report: they ended while the session was detached. The
// caller has the lock.
func (s *Session) reconcile() {
	for _, r := range s.unsaid() {
		s.change(r, Status{Resource: r.Resource, Claim: r.Claim, Shared: r.Shared, Cause: r.why})
	}
}

// unsaid returns the records of claims that the stream has not reported. The caller has the lock.
func (s *Session) unsaid() (all []*record) {
	for _, r := range s.records {
		if r.Current != None && r.stream != s.streams {
			all = append(all, r)
		}
	}
	return all
}

// askers is how many claims are requested at once.
const askers = 8

// askWhy asks the server how the unreported claims have ended. It takes at most MaxWhy, because their holders are
// notified afterwards.
func (s *Session) askWhy(ctx context.Context, rpc models.LocketClient) {
	ctx, cancel := context.WithTimeout(ctx, base.MaxWhy)
	defer cancel()
	s.mu.Lock()
	unsaid := s.unsaid()
	ids := make([]string, len(unsaid))
	for i, r := range unsaid {
		ids[i] = r.Claim
	}
	s.mu.Unlock()
	var all sync.WaitGroup
	for asker := range min(askers, len(ids)) {
		all.Go(func() {
			for i := asker; i < len(ids) && ctx.Err() == nil; i += askers {
				c, err := rpc.GetClaim(ctx, &models.GetClaimRequest{Id: ids[i]})
				if err != nil || c.GetStatus() == models.Status_STATUS_WAITING || c.GetStatus() == models.Status_STATUS_ACTIVE {
					continue
				}
				s.mu.Lock()
				if unsaid[i].Claim == ids[i] {
					unsaid[i].why = models.ClaimEnded(c)
				}
				s.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// loseAll ends everything, because the session is over. The caller has the lock.
func (s *Session) loseAll(cause error) {
	for _, r := range s.records {
		if r.Current != None {
			s.change(r, Status{Resource: r.Resource, Claim: r.Claim, Shared: r.Shared, Cause: cause})
		}
	}
}

// forgetEnded deletes records so old that no late event can arrive for them. The caller has the lock.
func (s *Session) forgetEnded() {
	for name, r := range s.records {
		if r.Current == None && time.Since(r.ended) > keepEnded {
			delete(s.records, name)
		}
	}
}
