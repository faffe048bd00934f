package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"go.uber.org/goleak"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test with a committer, a manager and a fake clock.
func bubble(t *testing.T, config session.Config, test func(t *testing.T, w *committertest.World, m *session.Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		test(t, w, manageWith(t, w, w.Store, config))
	})
}

// manage starts the committer of a world, and a manager of the sessions in a store.
func manage(t *testing.T, w *committertest.World, store session.Store) *session.Manager {
	t.Helper()
	return manageWith(t, w, store, session.Config{})
}

func manageWith(t *testing.T, w *committertest.World, store session.Store, config session.Config) *session.Manager {
	t.Helper()
	m := session.New(w.Committer, w.Hub, store, config, w.Registry)
	committertest.Run(t, w.Committer)
	committertest.Run(t, m)
	return m
}

func open(t *testing.T, m *session.Manager, id string) *session.Attached {
	t.Helper()
	a, err := m.Open(t.Context(), session.Open{ID: id, Secret: "s", TTL: time.Minute, Sequence: 1})
	committertest.Check(t, err)
	t.Cleanup(a.Detach)
	return a
}

func lock(t *testing.T, a *session.Attached, resource string) {
	t.Helper()
	if a.Room(t.Context()) {
		a.Do(session.Lock{Sequence: 2, Resource: resource})
	}
}

// TestNoRoomAfterTheEnd: a session that has ended here takes no command, even if there is room: commands that guards
// let pass would be lost.
func TestNoRoomAfterTheEnd(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, _ *committertest.World, m *session.Manager) {
		a := open(t, m, "a")
		if !a.Room(t.Context()) {
			t.Error("there is no room")
		}
		a.End(session.ErrMoved)
		if a.Room(t.Context()) {
			t.Error("there is room after the end")
		}
	})
}

// TestTooSlow: a session whose client does not read its events ends here, and may be resumed.
func TestTooSlow(t *testing.T) {
	bubble(t, session.Config{Unread: 20}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a := open(t, m, "a")
		for i := range 15 {
			lock(t, a, fmt.Sprint(i))
		}
		synctest.Wait()
		claims, err := w.Store.Live(t.Context(), db.LiveOf{Session: "a"}, db.Page{})
		committertest.Check(t, err)
		for i := range 5 {
			if a.Err() != nil {
				t.Fatalf("it ended after %d events", i)
			}
			w.Must(t, claim.SetStatus{ID: claims[i].ID, Status: claim.Revoked})
		}
		<-a.Ended()
		if !errors.Is(a.Err(), session.ErrTooSlow) {
			t.Errorf("it ended with %v", a.Err())
		}
		again := open(t, m, "a")
		if events := again.Next(t.Context()); len(events) != 10+1 || !events[10].Resumed {
			t.Errorf("it had %v", events)
		}
	})
}

// TestTooSlowForAGap: a session that ends while it catches up on missed events is no longer counted, nor are its
// claims.
func TestTooSlowForAGap(t *testing.T) {
	bubble(t, session.Config{Unread: 20}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a, b := open(t, m, "a"), open(t, m, "b")
		for _, s := range []*session.Attached{b, a} {
			for i := range 30 {
				do(t, s, session.Lock{Sequence: 2, Resource: fmt.Sprint(i)})
			}
		}
		stop := w.Hub.Follow("a", inbox.New(1000, nil), nobody{})
		do(t, b, session.UnlockAll{Sequence: 3})
		stop()
		a.Missed()
		<-a.Ended()
		synctest.Wait()
		for _, state := range []string{"held", "waiting"} {
			if n := w.Metric(t, "locket_session_claims", state); n != 0 {
				t.Errorf("%v claims of sessions are %s", n, state)
			}
		}
	})
}

// TestSessionFull: a session with the maximum number of claims gets no more until some have ended, even while its
// claims are being read.
func TestSessionFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, reads := committertest.New(t, 0), &blocker{}
		m := manage(t, w, slowStore{w.Store, reads})
		a := open(t, m, "a")
		reads.set(true)
		defer reads.set(false)
		a.Missed()
		synctest.Wait()
		go func() {
			for i := range claim.MaxSessionClaims + 1 {
				lock(t, a, fmt.Sprint(i))
			}
		}()
		held, refused := 0, 0
		for held+refused <= claim.MaxSessionClaims {
			for _, e := range a.Next(t.Context()) {
				switch {
				case errors.Is(e.Err, claim.ErrSessionFull):
					refused++
				case e.Standing != nil && e.Standing.Current == session.Held:
					held++
				}
			}
		}
		if held != claim.MaxSessionClaims || refused != 1 {
			t.Errorf("%d held, %d refused", held, refused)
		}
		if n := w.Metric(t, "locket_session_claims", "held"); n != claim.MaxSessionClaims {
			t.Errorf("the metric says %v", n)
		}
		a.Room(t.Context())
		a.Do(session.UnlockAll{Sequence: 3})
		for held > 0 {
			for _, e := range a.Next(t.Context()) {
				if e.Standing != nil {
					held--
				}
			}
		}
		if n := w.Metric(t, "locket_session_claims", "held"); n != 0 {
			t.Errorf("the metric says %v", n)
		}
		synctest.Wait()
		heard(t, a)
		expect(t, do(t, a, session.Lock{Sequence: 4, Resource: "one more"}), "one more: 0 to 2 (active, )")
	})
}

// TestOpenedInVain: a stream takes a session over from another one, and cannot read the session's claims. The session
// is detached, although the other stream ends only afterwards.
func TestOpenedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, reads := committertest.New(t, 0), &blocker{}
		m := manage(t, w, slowStore{w.Store, reads})
		a := open(t, m, "a")
		reads.set(true)
		defer reads.set(false)
		if _, err := m.Open(t.Context(), session.Open{ID: "a", Secret: "s", TTL: time.Minute}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("open: %v", err)
		}
		synctest.Wait()
		if !errors.Is(a.Err(), session.ErrMoved) {
			t.Errorf("the older stream ended with %v", a.Err())
		}
		if got, _, err := w.Store.Session(t.Context(), "a"); err != nil || got.Server != "" {
			t.Errorf("never detached: %+v (%v)", got, err)
		}
	})
}

// TestEndBesideHangingDatabase: the manager ends while the database hangs, and leaves nothing behind when the committer has ended, too.
func TestEndBesideHangingDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		m := session.New(w.Committer, w.Hub, w.Store, session.Config{}, w.Registry)
		committertest.Run(t, w.Committer)
		process := ifrit.Invoke(m)
		a, err := m.Open(t.Context(), session.Open{ID: "a", Secret: "s", TTL: time.Minute})
		committertest.Check(t, err)
		goOn := w.Store.Hold()
		defer goOn()
		lock(t, a, "k")
		synctest.Wait()
		process.Signal(os.Interrupt)
		<-a.Ended()
		go a.Detach()
		committertest.Check(t, committertest.Receive(t, process.Wait()))
	})
}

// refusedName is a store that refuses to register names, and remembers the last one.
type refusedName struct {
	*committertest.Store
	refuses    bool
	registered string
}

func (s *refusedName) Register(ctx context.Context, name string) error {
	if s.registered = ""; s.refuses {
		return errors.Join(s.Store.Register(ctx, ""), db.ErrUnavailable)
	}
	s.registered = name
	return s.Store.Register(ctx, name)
}

// TestNameThatIsRefused: a server that was declared gone needs a new name, and the database refuses that for a while.
// Then no session stays attached under the older name, which no beat keeps alive any more.
func TestNameThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		store := &refusedName{Store: w.Store}
		c := committer.New(store, committer.Config{Timeout: committertest.Timeout, Log: w.Log, Metrics: committer.NewMetrics(prometheus.NewRegistry())})
		m := session.New(c, w.Hub, store, session.Config{}, w.Registry)
		committertest.Run(t, c)
		committertest.Run(t, m)
		a, err := m.Open(t.Context(), session.Open{ID: "a", Secret: "s", TTL: time.Minute})
		committertest.Check(t, err)
		a.Detach()
		c.SetLive(false, c.Grants()) // nothing needs beats
		time.Sleep(5 * time.Second)
		store.refuses = true
		gone := db.ErrServerGone
		w.Store.Set(func(s *committertest.Store) {
			s.OnBeat = func() (err error) { err, gone = gone, nil; return err }
		})
		if _, err := m.Open(t.Context(), session.Open{ID: "b", Secret: "s", TTL: time.Minute}); !errors.Is(err, db.ErrUnavailable) {
			t.Fatalf("open: %v", err)
		}
		store.refuses = false
		synctest.Wait()
		if row, _, err := w.Store.Session(t.Context(), "b"); err != nil || row.Server != "" {
			t.Errorf("it is attached to %q: %v", row.Server, err)
		}
		_, err = c.Do(t.Context(), committertest.Lock("l")) // needs beats
		committertest.Check(t, err)
		time.Sleep(time.Second)
		open(t, m, "b")
		row, _, err := w.Store.Session(t.Context(), "b")
		committertest.Check(t, err)
		if row.Server == "" || row.Server != store.registered {
			t.Errorf("it is attached to %q, and %q is registered", row.Server, store.registered)
		}
	})
}

// slowNames is a store that takes its time to register a name.
type slowNames struct{ *committertest.Store }

func (s slowNames) Register(ctx context.Context, name string) error {
	time.Sleep(1500 * time.Millisecond)
	return s.Store.Register(ctx, name)
}

// TestOpenTogether: the first sessions of a server are opened at once, and the database is slow. Each is attached.
func TestOpenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		store := slowNames{w.Store}
		c := committer.New(store, committer.Config{Timeout: committertest.Timeout, Log: w.Log, Metrics: committer.NewMetrics(prometheus.NewRegistry())})
		m := session.New(c, w.Hub, store, session.Config{}, w.Registry)
		committertest.Run(t, c)
		committertest.Run(t, m)
		w.Store.Set(func(s *committertest.Store) {
			s.OnBeat = func() error { time.Sleep(1500 * time.Millisecond); return nil }
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				time.Sleep(1500 * time.Millisecond)
				return s.Update(ctx, fn)
			}
		})
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				a, err := m.Open(t.Context(), session.Open{ID: fmt.Sprint(i), Secret: "s", TTL: time.Minute})
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				a.Detach()
			})
		}
		all.Wait()
		w.Store.Set(func(s *committertest.Store) { s.OnBeat, s.OnTransact = nil, nil })
	})
}

// TestDataUnderWay: a server keeps few commands with much data of a session, and runs the others later.
func TestDataUnderWay(t *testing.T) {
	const commands, size = 500, 64 << 10
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a := open(t, m, "a")
		heard(t, a)
		goOn := w.Store.Hold()
		defer goOn()
		var read atomic.Int64
		go func() {
			a.Room(t.Context())
			a.Do(session.UnlockAll{Sequence: 2}) // the others wait for it
			for i := range commands {
				if a.Room(t.Context()) {
					a.Do(session.Lock{Sequence: 3, Resource: fmt.Sprint(i % 2), Value: strings.Repeat("v", size), UserData: make([]byte, size)})
					read.Add(1)
				}
			}
		}()
		synctest.Wait()
		if n := read.Load() * 2 * size; n > 5<<20 {
			t.Errorf("%d bytes are kept", n)
		}
		goOn()
		for answered := 0; answered < 1+commands; {
			events := a.Next(t.Context())
			if events == nil {
				t.Fatalf("%d of %d commands were answered (%v)", answered, 1+commands, a.Err())
			}
			answered += len(events)
		}
	})
}

// lostStore has the server declared gone while the claims of a session are read.
type lostStore struct {
	*committertest.Store
	lose func()
}

func (s *lostStore) Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	claims, err := s.Store.Live(ctx, of, page)
	if s.lose != nil {
		s.lose()
	}
	return claims, err
}

// TestOpenedByServerThatIsGone: the server is declared gone while a session is opened. Nothing of the session is left there.
func TestOpenedByServerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		store := &lostStore{Store: w.Store}
		m := manage(t, w, store)
		a, b := open(t, m, "a"), open(t, m, "b")
		lock(t, a, "held")
		lock(t, b, "awaited")
		synctest.Wait()
		lock(t, a, "awaited")
		synctest.Wait()
		store.lose = func() {
			committertest.Check(t, w.Register(t.Context(), ""))
			m.Beaten(time.Now(), true)
		}
		if _, err := m.Open(t.Context(), session.Open{ID: "a", Secret: "s", TTL: time.Minute}); !errors.Is(err, session.ErrDetached) {
			t.Fatalf("open: %v", err)
		}
		synctest.Wait()
		for _, state := range []string{"held", "waiting"} {
			if n := w.Metric(t, "locket_session_claims", state); n != 0 {
				t.Errorf("%v claims are %s here without a session", n, state)
			}
		}
	})
}

// TestOpenedAfterRest: a server that had no sessions for long, and so made no beats, attaches the next one under the same name, unless it was declared gone.
func TestOpenedAfterRest(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprint("gone: ", gone), func(t *testing.T) {
			bubble(t, session.Config{Name: "here"}, func(t *testing.T, w *committertest.World, m *session.Manager) {
				a, err := m.Open(t.Context(), session.Open{ID: "a", Secret: "s", TTL: time.Minute, Sequence: 1})
				committertest.Check(t, err)
				a.End(session.ErrClosed)
				a.Detach()
				w.Must(t, claim.EndSession{ID: "a", Active: claim.Released, Waiting: claim.Withdrawn})
				synctest.Wait()
				w.SetLive(false, w.Grants())
				time.Sleep(time.Hour + db.BeatInterval/3) // between two beats
				var beats atomic.Int64
				want := "here-1"
				w.Store.Set(func(s *committertest.Store) {
					s.OnBeat = func() (err error) {
						if beats.Add(1) == 1 && gone {
							err = db.ErrServerGone
						}
						return err
					}
				})
				if gone {
					want = "here-2"
				}
				b := open(t, m, "b")
				if row, _, err := w.Store.Session(t.Context(), "b"); err != nil || row.Server != want || beats.Load() == 0 {
					t.Errorf("it is attached to %q after %d beats: %v", row.Server, beats.Load(), err)
				}
				time.Sleep(time.Minute)
				if b.Err() != nil {
					t.Errorf("it ended: %v", b.Err())
				}
			})
		})
	}
}

// TestGap: when changes may have been missed, a session reads its claims and tells what has changed.
func TestGap(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a, b := open(t, m, "a"), open(t, m, "b")
		lock(t, a, "k")
		lock(t, a, "l")
		synctest.Wait()
		lock(t, b, "k")
		synctest.Wait()
		a.Next(t.Context())
		b.Next(t.Context())
		// Changes by another server, which do not arrive here.
		claims, err := w.Store.Live(t.Context(), db.LiveOf{Session: "a"}, db.Page{})
		committertest.Check(t, err)
		stop := w.Hub.Follow("a", inbox.New(1000, nil), nobody{})
		stopB := w.Hub.Follow("b", inbox.New(1000, nil), nobody{})
		w.Must(t, claim.SetStatus{ID: claims[0].ID, Status: claim.Revoked, Reason: "why"})
		stop()
		stopB()
		a.Missed()
		b.Missed()
		synctest.Wait()
		if got := tell(a.Next(t.Context())); got != "k: 2 to 0 (revoked, why)" {
			t.Errorf("a heard %s", got)
		}
		if got := tell(b.Next(t.Context())); got != "k: 1 to 2 (active, )" {
			t.Errorf("b heard %s", got)
		}
	})
}

// slowGets is a store that takes a second to read a claim.
type slowGets struct{ *committertest.Store }

func (s slowGets) Get(ctx context.Context, id string, limit int) (claim.Claim, int, claim.Instant, error) {
	select {
	case <-time.After(time.Second):
		return s.Store.Get(ctx, id, limit)
	case <-ctx.Done():
		return claim.Claim{}, 0, claim.Instant{}, ctx.Err()
	}
}

// TestGapWithMuch: more claims have ended unheard than can be read in the time of one read. Each is reported to the
// session.
func TestGapWithMuch(t *testing.T) {
	const claims = 30
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		m := manage(t, w, slowGets{w.Store})
		a := open(t, m, "a")
		for i := range claims {
			lock(t, a, fmt.Sprint(i))
		}
		synctest.Wait()
		a.Next(t.Context())
		held, err := w.Store.Live(t.Context(), db.LiveOf{Session: "a"}, db.Page{})
		committertest.Check(t, err)
		stop := w.Hub.Follow("a", inbox.New(1000, nil), nobody{})
		for i := range held {
			w.Must(t, claim.SetStatus{ID: held[i].ID, Status: claim.Revoked})
		}
		stop()
		a.Missed()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		told := 0
		for told < claims {
			events := a.Next(ctx)
			if events == nil {
				t.Fatalf("it was told of %d of %d ends", told, claims)
			}
			for _, e := range events {
				if e.Standing != nil && e.Standing.Current == session.None {
					told++
				}
			}
		}
	})
}

type nobody struct{}

func (nobody) Changed(claim.Transition) {}
func (nobody) Missed()                  {}

func tell(events []session.Event) string {
	var all []string
	for _, e := range events {
		if s := e.Standing; s != nil {
			all = append(all, fmt.Sprintf("%s: %d to %d (%s, %s)", s.Resource, s.Previous, s.Current, s.Status, s.Reason))
		}
	}
	return strings.Join(all, "; ")
}

// TestChangeWhileOpened: a change that is made after the claims of a session were read, and before it has them, is told.
func TestChangeWhileOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, reads := committertest.New(t, 0), &blocker{}
		m := manage(t, w, slowStore{w.Store, reads})
		other := open(t, m, "other")
		do(t, other, session.Lock{Sequence: 2, Resource: "k"})
		do(t, open(t, m, "a"), session.Lock{Sequence: 2, Resource: "k"})
		reads.set(true)
		opened := make(chan *session.Attached, 1)
		go func() { opened <- open(t, m, "a") }()
		synctest.Wait()
		do(t, other, session.Unlock{Sequence: 3, Resource: "k"})
		reads.set(false)
		a := <-opened
		synctest.Wait()
		expect(t, heard(t, a), "k: 1 to 1 (waiting, ); k: 1 to 2 (active, )")
	})
}

// TestHeartbeatDuringBeat: a beat that began before a heartbeat came does not answer it: it may have renewed the session before.
func TestHeartbeatDuringBeat(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, _ *committertest.World, m *session.Manager) {
		a := open(t, m, "a")
		heard(t, a)
		began := time.Now()
		time.Sleep(time.Millisecond)
		if !a.Room(t.Context()) {
			t.Fatal("there is no room")
		}
		a.Heartbeat(2)
		m.Beaten(began, false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if events := a.Next(ctx); len(events) != 0 {
			t.Errorf("the beat under way was answered: %v", events)
		}
		time.Sleep(time.Millisecond)
		m.Beaten(time.Now(), false)
		if events := a.Next(ctx); len(events) != 1 || !events[0].Beat || events[0].Sequence != 2 {
			t.Errorf("the next beat: %v", events)
		}
	})
}

// answersToHeartbeat sends a heartbeat of a session, and returns the events that have come after the next beats.
func answersToHeartbeat(t *testing.T, a *session.Attached) []session.Event {
	t.Helper()
	if !a.Room(t.Context()) {
		t.Fatal("there is no room")
	}
	a.Heartbeat(2)
	time.Sleep(2 * db.BeatInterval)
	synctest.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return a.Next(ctx)
}

// TestHeartbeatOfMovedSession: the heartbeat of a session is not answered after another server has attached and left it, although its
// stream here stands: its TTL runs, and its client must not trust it for longer.
func TestHeartbeatOfMovedSession(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a := open(t, m, "a")
		heard(t, a)
		row, _, err := w.Store.Session(t.Context(), "a")
		committertest.Check(t, err)
		w.Must(t, claim.Attach{Session: row, Server: "other", Resume: true})
		w.Must(t, claim.Detach{ID: "a", Server: "other", Left: time.Minute})
		if events := answersToHeartbeat(t, a); len(events) != 0 {
			t.Errorf("a session that has moved was answered: %v", events)
		}
		if !errors.Is(a.Err(), session.ErrDetached) {
			t.Errorf("it ended with %v", a.Err())
		}
	})
}

// TestHeartbeatWithoutName: a server that was declared gone answers no heartbeat, even of a beat before that: its sessions are detached.
func TestHeartbeatWithoutName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		m := manage(t, w, everybodyDetached{w.Store})
		a := open(t, m, "a")
		heard(t, a)
		committertest.Check(t, w.Register(t.Context(), ""))
		if events := answersToHeartbeat(t, a); len(events) != 0 {
			t.Errorf("a server without a name has answered: %v", events)
		}
	})
}

// everybodyDetached says that the session is attached to the server "", as a store may that keeps this for detached sessions.
type everybodyDetached struct{ session.Store }

func (everybodyDetached) AttachedTo(_ context.Context, server string) ([]string, error) {
	if server == "" {
		return []string{"a"}, nil
	}
	return nil, nil
}

// TestHeartbeatWithoutAnswerOfTheStore: a heartbeat is answered after a later beat if the database could not say whether the session
// is still attached.
func TestHeartbeatWithoutAnswerOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		store := &silentStore{Store: w.Store}
		m := manage(t, w, store)
		a := open(t, m, "a")
		heard(t, a)
		store.silent.Store(true)
		if events := answersToHeartbeat(t, a); len(events) != 0 || a.Err() != nil {
			t.Errorf("without an answer of the database: %v (%v)", events, a.Err())
		}
		store.silent.Store(false)
		if events := a.Next(t.Context()); len(events) != 1 || !events[0].Beat || events[0].Sequence != 2 {
			t.Errorf("after it: %v", events)
		}
	})
}

// silentStore does not say which sessions are attached while it is silent.
type silentStore struct {
	session.Store
	silent atomic.Bool
}

func (s *silentStore) AttachedTo(ctx context.Context, server string) ([]string, error) {
	if s.silent.Load() {
		return nil, db.ErrUnavailable
	}
	return s.Store.AttachedTo(ctx, server)
}

// TestSilenceBeforeTheEnd: the TTL of a session whose stream has ended counts from when its client was last heard.
func TestSilenceBeforeTheEnd(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a, err := m.Open(t.Context(), session.Open{ID: "a", Secret: "s", TTL: time.Minute, Sequence: 1})
		committertest.Check(t, err)
		time.Sleep(20 * time.Second)
		a.Detach()
		synctest.Wait()
		row, now, err := w.Store.Session(t.Context(), "a")
		committertest.Check(t, err)
		if left := row.Deadline.Sub(now.Lease).Round(time.Second); left != 40*time.Second {
			t.Errorf("after 20 s of silence %s are left", left)
		}
	})
}

// TestSessionsAreCountedOnce: a session that is opened again, or closed, leaves no place of the limit taken.
func TestSessionsAreCountedOnce(t *testing.T) {
	bubble(t, session.Config{Sessions: 2}, func(t *testing.T, _ *committertest.World, m *session.Manager) {
		for range 3 {
			open(t, m, "a")
		}
		for i := range 3 {
			a, err := m.Open(t.Context(), session.Open{ID: fmt.Sprint(i), Secret: "s", TTL: time.Minute, Sequence: 1})
			committertest.Check(t, err)
			do(t, a, session.Close{Sequence: 2})
			a.Detach()
		}
	})
}

// TestOldStreamEndsWhileOpened: a stream that breaks while its client opens the session again does not detach that.
func TestOldStreamEndsWhileOpened(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		old, err := m.Open(t.Context(), session.Open{ID: "a", Secret: "s", TTL: time.Minute, Sequence: 1})
		committertest.Check(t, err)
		goOn := w.Store.Hold()
		opened := make(chan *session.Attached, 1)
		go func() { opened <- open(t, m, "a") }()
		synctest.Wait()
		old.Detach()
		goOn()
		a := <-opened
		synctest.Wait()
		if row, _, err := w.Store.Session(t.Context(), "a"); err != nil || row.Server == "" || a.Err() != nil {
			t.Errorf("it is attached to %q, and has ended with %v (%v)", row.Server, a.Err(), err)
		}
	})
}
