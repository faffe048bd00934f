package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// tx is a db.Tx.
type tx struct {
	s     *Store
	now   claim.Instant
	saved *claim.Queues
	// unread are claims that the history must be asked about first.
	unread []string
}

// Transact implements db.Transactor.
func (s *Store) Transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	if s.cluster != nil {
		return s.cluster.transact(ctx, batch)
	}
	w := &waiting{batch: batch}
	if err := s.carryOut(ctx, w); err != nil {
		return db.Outcome{}, nil, err
	}
	return w.part.Outcome, under{s, w.p}, nil
}

// under is the db.Completion of a proposal, or of none if that is nil.
type under struct {
	s *Store
	p *proposal
}

// Done implements db.Completion.
func (u under) Done() <-chan struct{} {
	if u.p == nil {
		return nothing
	}
	return u.p.done
}

// Wait implements db.Completion.
func (u under) Wait(ctx context.Context) error {
	if u.p == nil {
		return nil
	}
	return u.s.outcome(ctx, u.p)
}

// nothing is closed.
var nothing = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Update implements db.Updater, for the transactions of tests, which are no batches. fn runs again when the history had
// to be read first, which is done while others commit.
func (s *Store) Update(ctx context.Context, fn func(db.Tx) error) error {
	p, err := s.begin(ctx, func(d decision) (*record.Record, error) {
		t := &tx{s: s, now: d.now}
		if err := fn(t); err != nil {
			return nil, err
		}
		var claims []claim.Transition
		if t.saved != nil {
			claims = record.Merge(t.saved.Transitions())
		}
		return t.record(claims, nil), nil
	})
	var unread *unreadError
	if errors.As(err, &unread) {
		s.ahead.keep(unread.ids)
		defer s.ahead.release(unread.ids)
		if err := s.lookUp(ctx, unread.ids); err != nil {
			return err
		}
		return s.Update(ctx, fn)
	}
	if err != nil {
		return err
	}
	if p == nil { // fn depends on earlier proposals
		p = s.lastDecided()
	}
	return under{s, p}.Wait(ctx)
}

// unreadError is returned by Load for claims that the history must be asked about first.
type unreadError struct{ ids []string }

func (e *unreadError) Error() string {
	return fmt.Sprintf("%d claims are not looked up yet", len(e.ids))
}

// record returns the record to commit, nil for none: with changes of claims, and the batches of other servers that have made
// them.
func (t *tx) record(claims []claim.Transition, batches []record.Batch) *record.Record {
	r := &record.Record{Header: record.Header{Wall: t.now.Wall}, Claims: claims, Batches: batches}
	if t.saved != nil {
		r.Wall, r.Sessions = t.saved.Now.Wall, t.saved.ChangedSessions()
	}
	if t.saved != nil && len(t.saved.Ahead()) > 0 && t.s.cluster == nil {
		r.Floor, r.Quarantine = t.s.rollbackOf(t.saved.Ahead())
	}
	if len(r.Claims)+len(r.Sessions)+len(r.Batches) == 0 && r.Floor == 0 {
		return nil
	}
	return r
}

// Load implements db.Tx. The state does not change meanwhile.
func (t *tx) Load(wanted db.Wanted) (*claim.Queues, error) {
	queues := t.s.state.Load(t.now, wanted, t.finished)
	if len(t.unread) > 0 {
		return nil, &unreadError{t.unread}
	}
	return queues, nil
}

// finished returns a claim that is live no longer, nil if there is none with this id or that is not known yet.
func (t *tx) finished(id string) *claim.Claim {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	c, known := t.s.ended(id)
	if !known {
		t.unread = append(t.unread, id)
	}
	return c
}

// Save implements db.Tx.
func (t *tx) Save(queues *claim.Queues) error {
	t.saved = queues
	return nil
}

// maxBeatInterval is how often a record of lease time is written at least while there are leases, or a quarantine.
const maxBeatInterval = 5 * time.Second

// Beat implements db.Pulse. Lease time goes on in memory. A record of it is written when there was no other one for a
// quarter of the shortest TTL, or for maxBeatInterval: so much later leases, and a quarantine, may end when the server
// is started again. Something is written when the disk was full. Lease time goes on only when nothing is on its way to
// the log.
//
// In a cluster the decider first shows that the log takes commits, and another server finds the decider alive.
func (s *Store) Beat(ctx context.Context, resumes bool) error {
	if s.cluster != nil {
		if decides, err := s.cluster.beat(ctx); err != nil || !decides {
			return err
		}
	}
	lost, err := s.beat(ctx, resumes)
	if err == nil && lost != nil && s.registeredAs.CompareAndSwap(lost, nil) { // it may have another name by now
		return db.ErrServerGone
	}
	return err
}

// beat lets lease time go on, and records it if that is due. It returns the name of this server if that was declared gone.
func (s *Store) beat(ctx context.Context, resumes bool) (lost *string, err error) {
	pass := s.clock.tick
	if resumes {
		pass = s.clock.skip
	}
	err = s.write(ctx, func(d decision) (*record.Record, error) {
		if s.last != nil {
			if err := s.outcome(ctx, s.last); err != nil {
				return nil, fmt.Errorf("%w: the transaction before this beat: %v", db.ErrUnavailable, err) //nolint:errorlint // of the beat nothing has happened
			}
		}
		if err := s.folder.stays(); err != nil {
			s.fail(err)
			return nil, fmt.Errorf("%w: %w", db.ErrUnavailable, err)
		}
		at := time.Now()
		pass(at)
		registered := s.registeredAs.Load()
		if registered != nil && !s.state.Registered(*registered) {
			lost, registered = registered, nil
		}
		if !s.beatDue(at) {
			return nil, nil
		}
		r := &record.Record{Header: record.Header{Wall: d.now.Wall, Lease: s.clock.last()}}
		if registered != nil {
			r.Servers = []record.Server{{Name: *registered, Seen: r.Lease}}
		}
		if s.cluster != nil {
			r.Servers = append(r.Servers, s.cluster.others()...)
		}
		return r, nil
	})
	return lost, err
}

// beatDue reports whether a record must be written before the time for the next beat.
func (s *Store) beatDue(at time.Time) bool {
	most, ends := maxBeatInterval, s.state.Lease < s.state.Quarantine
	if shortest := s.state.ShortestTTL(); shortest > 0 {
		most, ends = min(most, shortest/4), true
	}
	if s.cluster != nil && s.cluster.hasOthers() {
		most, ends = min(most, db.ServerTimeout/2), true
	}
	return s.refused.Load() || ends && s.clock.sinceRecord(at)+db.BeatInterval > most
}

// registeredName is the name that this server keeps sessions alive under, "" for none.
func (s *Store) registeredName() string {
	if name := s.registeredAs.Load(); name != nil {
		return *name
	}
	return ""
}

// Register implements db.Pulse.
func (s *Store) Register(ctx context.Context, name string) error {
	s.registeredAs.Store(nil)
	if name == "" {
		return nil
	}
	register := s.register
	if s.cluster != nil {
		register = s.cluster.register
	}
	err := register(ctx, name)
	if err == nil {
		s.registeredAs.Store(&name)
	}
	return err
}

// register stores the name of a server: of this one, or of another one of the cluster.
func (s *Store) register(ctx context.Context, name string) error {
	return s.write(ctx, func(d decision) (*record.Record, error) {
		return &record.Record{Header: record.Header{Wall: d.now.Wall}, Servers: []record.Server{{Name: name, Seen: d.now.Lease}}}, nil
	})
}

// DetachSilent implements db.Sessions. The silent ones are this server's earlier names, from before it restarted.
func (s *Store) DetachSilent(ctx context.Context, silence time.Duration) (detached int, err error) {
	if s.cluster != nil {
		done, err := s.cluster.ask(ctx, record.Job{Detach: true, Silence: silence})
		return done.Detached, err
	}
	return s.detachSilent(ctx, silence, s.registeredName())
}

// detachSilent is DetachSilent for the server with a name.
func (s *Store) detachSilent(ctx context.Context, silence time.Duration, self string) (detached int, err error) {
	s.mu.RLock()
	since := s.now(s.state).DueBefore().Add(-silence)
	silent := s.state.Silent(since, self)
	s.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	for name, seen := range silent {
		if name == s.registeredName() { // this server asked, or decides for the server that asked
			continue
		}
		last := max(seen, s.clock.beginning()) // it was there until the last record that this process has found
		if s.cluster != nil && seen > 0 {
			last = max(last, s.clock.beginning().Add(unasked))
			var gone bool
			if last, gone = s.cluster.declareGone(name, last, since); !gone {
				continue
			}
		}
		n, err := s.detach(ctx, name, last)
		if detached += n; err != nil {
			return detached, err
		}
	}
	return detached, nil
}

// detachAtOnce is how many sessions one record detaches.
const detachAtOnce = 256

// detach detaches the sessions of a server that was there last at a time, in steps. The last one says that it is gone.
func (s *Store) detach(ctx context.Context, server string, seen claim.Time) (detached int, err error) {
	for more := true; more; {
		n := 0
		err := s.write(ctx, func(d decision) (*record.Record, error) {
			if s.cluster != nil && s.cluster.takesBeats(server) { // a new epoch has begun since, and the server may be alive
				return nil, nil
			}
			r := &record.Record{Header: record.Header{Wall: d.now.Wall}, Sessions: s.state.Detached(server, seen, detachAtOnce)}
			if n = len(r.Sessions); n < detachAtOnce {
				r.Servers = []record.Server{{Name: server, Gone: true}}
			}
			return r, nil
		})
		if err != nil {
			return detached, err
		}
		detached += n
		more = n == detachAtOnce
	}
	return detached, nil
}
