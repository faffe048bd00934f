package handlers_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// faulty is a store with injected faults in its writes.
type faulty struct {
	db.Store
	mu       sync.Mutex
	transact func(transact func() error) error
	beat     func() error
	unread   bool // the claims of sessions cannot be read
}

func (s *faulty) setUnread(unread bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = unread
}

func (s *faulty) Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread && of.Session != "" {
		return nil, db.ErrUnavailable
	}
	return s.Store.Live(ctx, of, page)
}

func (s *faulty) wrap(real db.Store) db.Store {
	s.Store = real
	return s
}

// set sets the faults of transactions and beats; nil removes them.
func (s *faulty) set(transact func(transact func() error) error, beat func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transact, s.beat = transact, beat
}

// hold blocks transactions until release is called.
func (s *faulty) hold() (release func()) {
	gate := make(chan struct{})
	s.set(func(transact func() error) error { <-gate; return transact() }, nil)
	return func() { s.set(nil, nil); close(gate) }
}

func (s *faulty) Transact(ctx context.Context, batch db.Batch) (outcome db.Outcome, _ db.Completion, err error) {
	s.mu.Lock()
	around := s.transact
	s.mu.Unlock()
	if around == nil {
		return s.Store.Transact(ctx, batch)
	}
	err = around(func() (err error) { outcome, err = db.Transact(ctx, s.Store, batch); return err })
	return outcome, nil, err
}

func (s *faulty) beaten() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beat == nil {
		return nil
	}
	return s.beat()
}

func (s *faulty) Beat(ctx context.Context, resumes bool) error {
	if err := s.beaten(); err != nil {
		return err
	}
	return s.Store.Beat(ctx, resumes)
}

// TestOutcomeUnknown: after a commit with an unknown outcome the session knows exactly its claims: its commands take
// effect once.
func TestOutcomeUnknown(t *testing.T) {
	for how, outcome := range map[string]func(transact func() error) error{
		"committed":     func(transact func() error) error { _ = transact(); return db.ErrOutcomeUnknown },
		"not committed": func(func() error) error { return db.ErrOutcomeUnknown },
	} {
		for name, test := range map[string]func(t *testing.T, server *server, lose func(), a, b *harness.Session){
			"lock": func(t *testing.T, server *server, lose func(), a, b *harness.Session) {
				lose()
				a.Lock("l", holding)
				a.Lock("l", holding)
				a.Quiet()
			},
			"lock that waits": func(t *testing.T, server *server, lose func(), a, b *harness.Session) {
				lose()
				b.Lock("k", inLine)
			},
			"try": func(t *testing.T, server *server, lose func(), a, b *harness.Session) {
				lose()
				b.Lock("k", none, harness.Try)
			},
			"unlock": func(t *testing.T, server *server, lose func(), a, b *harness.Session) {
				b.Lock("k", inLine)
				lose()
				a.Unlock("k")
				b.Hears("k", inLine, holding) // even if its server does not know
			},
			"unlock-all": func(t *testing.T, server *server, lose func(), a, b *harness.Session) {
				a.Lock("l", holding)
				b.Lock("k", inLine)
				lose()
				a.UnlockAll()
				b.Hears("k", inLine, holding)
				a.Lock("k", inLine)
				a.Lock("l", holding)
			},
			"close": func(t *testing.T, server *server, lose func(), a, b *harness.Session) {
				b.Lock("k", inLine)
				lose()
				a.Close()
				b.Hears("k", inLine, holding)
			},
			"open": func(t *testing.T, server *server, lose func(), a, b *harness.Session) {
				lose()
				c := server.dial(t)
				c.Ask(harness.OpenRequest("c"))
				c.Ends(codes.Unavailable, "OUTCOME_UNKNOWN")
				time.Sleep(time.Second)
				for _, s := range server.sessions(t) {
					if s.GetId() == c.ID && s.GetServer() != "" {
						t.Errorf("nobody will ever detach %v", s)
					}
				}
			},
		} {
			t.Run(how+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &faulty{}
					server := startWith(t, t.TempDir(), store.wrap)
					a, b := server.open(t, "a"), server.open(t, "b")
					a.KeepAlive()
					b.KeepAlive()
					a.Lock("k", holding)
					lost := 0
					test(t, server, func() {
						store.set(func(transact func() error) error {
							if lost++; lost > 2 {
								return transact()
							}
							return outcome(transact)
						}, nil)
					}, a, b)
					claims := server.list(t, &models.ListClaimsRequest{Limit: ptr(uint32(100))}).GetClaims()
					live := make(map[string]int)
					for _, c := range claims {
						if c.GetStatus() == active || c.GetStatus() == waiting {
							live[c.GetSession()+c.GetResource()+c.GetOwner()]++
						}
					}
					for of, n := range live {
						if n > 1 {
							t.Errorf("%d live claims of %s", n, of)
						}
					}
				})
			})
		}
	}
}

// TestSessionWithoutDatabase: while the database is unavailable commands are refused and change nothing, and no
// heartbeat is answered. No lease expires.
func TestSessionWithoutDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{}
		server := startWith(t, t.TempDir(), store.wrap)
		a := server.open(t, "a", harness.SessionTTL(60))
		a.Lock("k", holding)
		away := func() error { return fmt.Errorf("%w: it is away", db.ErrUnavailable) }
		store.set(func(func() error) error { return away() }, away)
		for _, request := range []*models.SessionRequest{harness.LockCommand("l"), harness.LockCommand("k"), harness.UnlockCommand("k"), {Command: &models.SessionRequest_Close{}}} {
			got := a.Answer(a.Ask(request)).GetError()
			if codes.Code(got.GetCode()) != codes.Unavailable || got.GetReason() != "DATABASE_UNAVAILABLE" {
				t.Errorf("got %v", got)
			}
		}
		heartbeat := a.Ask(harness.HeartbeatCommand())
		time.Sleep(20 * time.Second)
		a.Quiet()
		store.set(nil, nil)
		a.Answer(heartbeat)
		if got := a.Lock("k", holding); got.GetPrevious() != holding {
			t.Errorf("got %v", got)
		}
		a.Lock("l", holding)
	})
}

// TestServerGone: a server that was declared gone ends its sessions. They may be resumed there, and it keeps them alive
// under a new name.
func TestServerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{}
		server := startWith(t, t.TempDir(), store.wrap)
		a := server.open(t, "a")
		a.Lock("k", holding)
		name := server.sessions(t)[0].GetServer()
		heartbeat := a.Ask(harness.HeartbeatCommand())
		store.set(nil, func() error { return db.ErrServerGone })
		a.Ends(codes.Unavailable, "SESSION_DETACHED")
		if len(a.Rest) > 0 {
			t.Errorf("heartbeat %d was answered", heartbeat)
		}
		store.set(nil, nil)
		again := server.dial(t)
		again.Open("a", harness.Resume)
		again.Heartbeat()
		if got := server.sessions(t)[0].GetServer(); got == name || got == "" {
			t.Errorf("it is attached to %q, and was to %q", got, name)
		}
	})
}

// TestDetachLater: a session whose stream breaks while the database is unavailable is detached when the database is
// back, and its TTL counts from its last message. Time when no renewal could be committed does not count.
func TestDetachLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{}
		server := startWith(t, t.TempDir(), store.wrap)
		a, b := server.open(t, "a"), server.open(t, "b")
		b.KeepAlive()
		a.Lock("k", holding)
		b.Lock("k", inLine)
		heard := time.Now()
		store.set(func(func() error) error { return db.ErrUnavailable }, nil)
		a.BreakOff()
		time.Sleep(3 * time.Second)
		if list := server.sessions(t); list[0].GetServer() == "" {
			t.Errorf("got %v", list)
		}
		store.set(nil, nil)
		b.Hears("k", inLine, holding)
		if took := time.Since(heard); took < 12*time.Second || took > 14*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestOpenWithoutClaims: a session whose claims cannot be read is not opened. Its older stream ends too, because it
// would get no more events.
func TestOpenWithoutClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{}
		server := startWith(t, t.TempDir(), store.wrap)
		a := server.open(t, "a")
		a.Lock("k", holding)
		store.setUnread(true)
		again := server.dial(t)
		again.Ask(harness.OpenRequest("a", harness.Resume))
		begin := time.Now()
		again.Ends(codes.Unavailable, "DATABASE_UNAVAILABLE")
		a.Ends(codes.Aborted, "SESSION_MOVED")
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the older stream went on for %s", took)
		}
		time.Sleep(time.Second)
		if got := server.sessions(t)[0]; got.GetServer() != "" {
			t.Errorf("nobody will ever detach %v", got)
		}
		store.setUnread(false)
		if had := server.dial(t).Open("a", harness.Resume); len(had) != 1 {
			t.Errorf("it had %v", had)
		}
	})
}
