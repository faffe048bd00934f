package handlers_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/grpcserver"
	whole "github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/watch"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// watcher is a call of Watch with its responses.
type watcher struct {
	t      testing.TB
	stream grpc.ServerStreamingClient[models.WatchResponse]
	stop   context.CancelFunc
	cursor string
	rest   []string          // received and not checked yet
	last   map[string]uint64 // the version of the last transition of each resource
}

func (s *server) watch(t testing.TB, req *models.WatchRequest) *watcher {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	stream, err := s.Watch(ctx, req)
	must(t, err)
	return &watcher{t: t, stream: stream, stop: stop, last: make(map[string]uint64)}
}

// receive reads one response: "claim status" of the snapshot, "synced", "claim before>after". The versions of a
// resource must rise.
func (w *watcher) receive() error {
	resp, err := w.stream.Recv()
	if err != nil {
		return err
	}
	for _, c := range resp.GetSnapshot() {
		w.rest = append(w.rest, c.GetId()+" "+short(c.GetStatus()))
	}
	if resp.GetSynced() {
		w.rest = append(w.rest, "synced")
	}
	for _, t := range resp.GetTransitions() {
		c := t.GetClaim()
		if c.GetVersion() <= w.last[c.GetResource()] {
			w.t.Errorf("%s: version %d after %d", c.GetId(), c.GetVersion(), w.last[c.GetResource()])
		}
		w.last[c.GetResource()] = c.GetVersion()
		w.rest = append(w.rest, fmt.Sprintf("%s %s>%s", t.GetClaim().GetId(), short(t.GetBefore()), short(t.GetClaim().GetStatus())))
	}
	if resp.GetCursor() != "" {
		w.cursor = resp.GetCursor()
	}
	return nil
}

// short is "waiting" for STATUS_WAITING, and "" for none.
func short(s models.Status) string {
	if s == models.Status_STATUS_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATUS_"))
}

// sees waits for the next responses of the watch, and checks that there are no others.
func (w *watcher) sees(want ...string) {
	w.t.Helper()
	for len(w.rest) < len(want) {
		if err := w.receive(); err != nil {
			w.t.Fatalf("got %q, then %v; want %q", w.rest, err, want)
		}
	}
	if fmt.Sprintf("%q", w.rest) != fmt.Sprintf("%q", want) {
		w.t.Fatalf("got %q, want %q", w.rest, want)
	}
	w.rest = nil
}

// ends waits for the end of the watch.
func (w *watcher) ends(code codes.Code, reason string) {
	w.t.Helper()
	for {
		err := w.receive()
		if err == nil {
			continue
		}
		if status.Code(err) != code {
			w.t.Errorf("ended with %v, want %s", err, code)
		}
		if reason != "" {
			wantReason(w.t, err, reason)
		}
		return
	}
}

func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.create(t, "r", "a", 60)
		s.create(t, "r", "b", 60)
		w := s.watch(t, &models.WatchRequest{})
		w.sees("a active", "b waiting", "synced")
		s.end(t, "a", models.Status_STATUS_RELEASED)
		w.sees("a active>released", "b waiting>active")
		s.create(t, "other", "c", 60)
		w.sees("c >active")
		_, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: "c", Ttl: ptr(1.0)})
		must(t, err) // a renewal is not a transition
		time.Sleep(time.Minute)
		synctest.Wait()
		w.sees("c active>expired", "b active>expired")
		cursor := w.cursor
		w.stop()
		s.lock(t, "lock", "o", 60)
		s.end(t, s.list(t, &models.ListClaimsRequest{Resource: ptr("lock")}).GetClaims()[0].GetId(), models.Status_STATUS_REVOKED)
		again := s.watch(t, &models.WatchRequest{Cursor: cursor, Resource: ptr("lock")})
		must(t, again.receive())
		if again.cursor == "" {
			t.Error("no cursor at first")
		}
		must(t, again.receive())
		if got := strings.Join(again.rest, ","); !strings.HasSuffix(got, " >active") && strings.Count(got, ">") != 2 {
			t.Errorf("got %q", got)
		}
	})
}

// handOff is a store that calls a function before it reads each page of live claims.
type handOff struct {
	db.Store
	before func(after string)
}

func (s *handOff) Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	if s.before != nil {
		s.before(page.After)
	}
	return s.Store.Live(ctx, of, page)
}

// TestWatchDuringHandOff: changes while the snapshot is read come before it is complete, in order for each resource:
// the claim that has ended first, then the next holder.
func TestWatchDuringHandOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &handOff{}
		s := startWith(t, t.TempDir(), func(real db.Store) db.Store { store.Store = real; return store })
		s.create(t, "r", "first", 60)
		s.create(t, "r", "next", 60)
		s.create(t, "other", "unchanged", 60)
		store.before = func(after string) {
			switch after {
			case "":
				s.end(t, "first", models.Status_STATUS_RELEASED)
			case "unchanged":
				s.create(t, "late", "zzz", 60) // would be on a page that is empty
			}
		}
		w := s.watch(t, &models.WatchRequest{})
		w.sees("unchanged active", "first active>released", "next waiting>active", "zzz >active", "synced")
		store.before = nil
		s.end(t, "next", models.Status_STATUS_RELEASED)
		w.sees("next active>released")
	})
}

// TestWatchDuringClockStep: a change while the snapshot is read is reported once, even if the clock has stepped back, or if the clock
// of the server that labels it is behind.
func TestWatchDuringClockStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		stepping, err := replica.OpenWith(filepath.Join(t.TempDir(), "stepping"), replica.Options{
			Log: slog.New(slog.DiscardHandler), Wall: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		})
		must(t, err)
		store := &handOff{Store: stepping}
		s := startWith(t, t.TempDir(), func(real db.Store) db.Store { must(t, real.Close()); return store })
		s.create(t, "r", "first", 60)
		s.create(t, "r", "next", 60)
		ahead.Store(int64(time.Hour))
		store.before = func(after string) {
			if after == "" {
				ahead.Store(0)
				s.end(t, "first", models.Status_STATUS_RELEASED)
			}
		}
		s.watch(t, &models.WatchRequest{}).sees("first active>released", "next waiting>active", "synced")
	})
}

// TestWatchSlowSnapshot: a snapshot that takes longer than changes are kept is still complete. Changes in the
// meantime come once, and no claim comes in an older state than the watch has reported.
func TestWatchSlowSnapshot(t *testing.T) {
	const claims, day = 300, 24 * 60 * 60
	synctest.Test(t, func(t *testing.T) {
		store := &handOff{}
		s := startWith(t, t.TempDir(), func(real db.Store) db.Store { store.Store = real; return store })
		for i := range claims {
			s.create(t, number("r", i), number("claim", i), day, func(req *models.CreateClaimRequest) { req.Value = strings.Repeat("v", 4000) })
		}
		pages := 0
		want := make(map[string]int)
		store.before = func(string) {
			time.Sleep(db.FeedAge / 3)
			pages++
			added := number("added", pages)
			s.create(t, added, added, day)
			want[added+" >active"]++
			switch pages {
			case 2: // one of the last page
				s.end(t, "claim-299", models.Status_STATUS_RELEASED)
				want["claim-299 active>released"]++
			case 3: // a claim of the first page, and one of a later page that stays live
				s.end(t, "claim-000", models.Status_STATUS_RELEASED)
				want["claim-000 active>released"]++
				s.create(t, number("r", 298), "waiter", day)
				want["waiter >waiting"]++
			}
		}
		for i := range claims - 1 {
			want[number("claim", i)+" active"]++
		}
		want["synced"]++
		w := s.watch(t, &models.WatchRequest{})
		for !slices.Contains(w.rest, "synced") {
			must(t, w.receive())
		}
		got := make(map[string]int)
		for _, line := range w.rest {
			got[line]++
		}
		if !maps.Equal(got, want) {
			for line, n := range want {
				if got[line] != n {
					t.Errorf("%q came %d times, want %d", line, got[line], n)
				}
			}
			for line, n := range got {
				if want[line] == 0 {
					t.Errorf("%q came %d times", line, n)
				}
			}
		}
		if pages < 4 {
			t.Errorf("only %d pages: nothing is shown", pages)
		}
	})
}

// TestWatchSees: a claim is the same as in other answers, without fields that depend on the time of the answer.
func TestWatchSees(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		w := s.watch(t, &models.WatchRequest{})
		w.sees("synced")
		s.create(t, "r", "a", 60, func(req *models.CreateClaimRequest) {
			req.Owner, req.Value, req.UserData, req.TypeCode = "o", "v", ptr("{}"), models.TypeCode_PRESENCE
		})
		resp, err := w.stream.Recv()
		must(t, err)
		got, want := resp.GetTransitions()[0], s.get(t, "a")
		want.StatusHistory, want.Ttl, want.GrantedTtl, want.ActiveDuration, want.WaitingDuration, want.UserData = nil, nil, nil, nil, 0, nil
		if fmt.Sprint(got.GetClaim()) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got.GetClaim(), want)
		}
		if !got.GetTime().AsTime().Equal(want.GetCreated().AsTime()) || got.GetBefore() != 0 {
			t.Errorf("got %v", got)
		}
	})
}

func TestWatchFilters(t *testing.T) {
	for name, test := range map[string]struct {
		req  *models.WatchRequest
		want []string
	}{
		"none":     {&models.WatchRequest{}, []string{"1", "2", "3", "4"}},
		"resource": {&models.WatchRequest{Resource: ptr("a/1")}, []string{"1"}},
		"prefix":   {&models.WatchRequest{Prefix: "a/"}, []string{"1", "2"}},
		"owner":    {&models.WatchRequest{Owner: ptr("o2")}, []string{"2", "3"}},
		"no owner": {&models.WatchRequest{Owner: ptr("")}, []string{"4"}},
		"type":     {&models.WatchRequest{TypeCode: models.TypeCode_PRESENCE}, []string{"3"}},
		"session":  {&models.WatchRequest{Session: ptr("s")}, nil},
		"two":      {&models.WatchRequest{Prefix: "a/", Owner: ptr("o2")}, []string{"2"}},
		"nothing":  {&models.WatchRequest{Resource: ptr("A/1")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				live := s.watch(t, test.req)
				live.sees("synced")
				for id, c := range map[string]struct {
					resource, owner string
					kind            models.TypeCode
				}{
					"1": {"a/1", "o1", models.TypeCode_LOCK}, "2": {"a/2", "o2", models.TypeCode_LOCK},
					"3": {"b", "o2", models.TypeCode_PRESENCE}, "4": {"c", "", models.TypeCode_LOCK},
				} {
					s.create(t, c.resource, id, 60, func(req *models.CreateClaimRequest) { req.Owner, req.TypeCode = c.owner, c.kind })
					synctest.Wait()
				}
				snapshot := s.watch(t, test.req)
				var claims []string
				for _, id := range test.want {
					claims = append(claims, id+" active")
				}
				snapshot.sees(append(claims, "synced")...)
				seen := map[string]bool{}
				for len(seen) < len(test.want) {
					must(t, live.receive())
					for _, line := range live.rest {
						seen[line] = true
					}
				}
				for _, id := range test.want {
					if !seen[id+" >active"] {
						t.Errorf("saw %v, not %s", seen, id)
					}
				}
				if len(seen) != len(test.want) {
					t.Errorf("saw %v", seen)
				}
			})
		})
	}
}

// TestWatchOfOneType: an owner makes its lock a presence. The watches of locks report this change and nothing after it, and the
// watches of presences begin with it.
func TestWatchOfOneType(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		lock := func(kind models.TypeCode) {
			_, err := s.Lock(t.Context(), &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "o", TypeCode: kind}, TtlInSeconds: 60})
			must(t, err)
			synctest.Wait()
		}
		lock(models.TypeCode_LOCK)
		id := s.list(t, &models.ListClaimsRequest{Resource: ptr("k")}).GetClaims()[0].GetId()
		locks, presences := s.watch(t, &models.WatchRequest{TypeCode: models.TypeCode_LOCK}), s.watch(t, &models.WatchRequest{TypeCode: models.TypeCode_PRESENCE})
		locks.sees(id+" active", "synced")
		presences.sees("synced")
		lock(models.TypeCode_PRESENCE)
		locks.sees(id + " active>active")
		presences.sees(id + " active>active")
		s.end(t, id, models.Status_STATUS_RELEASED)
		presences.sees(id + " active>released")
		lock(models.TypeCode_LOCK)
		id = s.list(t, &models.ListClaimsRequest{Resource: ptr("k"), Status: []models.Status{models.Status_STATUS_ACTIVE}}).GetClaims()[0].GetId()
		locks.sees(id + " >active")
	})
}

func TestWatchIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		for field, req := range map[string]*models.WatchRequest{
			"resource":  {Resource: ptr("")},
			"prefix":    {Prefix: strings.Repeat("p", 1025)},
			"owner":     {Owner: ptr("a\x00")},
			"session":   {Session: ptr(strings.Repeat("s", 1025))},
			"type_code": {TypeCode: 7},
			"cursor":    {Cursor: "no cursor"},
		} {
			stream, err := s.Watch(t.Context(), req)
			must(t, err)
			_, err = stream.Recv()
			if status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(status.Convert(err).Message(), field+": ") {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}

// TestWatchCursor: a cursor of another process, and one that is ten minutes old, are too old; a cursor of a watch
// without changes is not.
func TestWatchCursor(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		quiet := s.watch(t, &models.WatchRequest{Resource: ptr("none")})
		quiet.sees("synced")
		old := quiet.cursor
		for range 30 {
			s.create(t, "r", fmt.Sprint(time.Now().UnixMicro()), 1)
			time.Sleep(30 * time.Second)
		}
		synctest.Wait()
		for quiet.cursor == old {
			must(t, quiet.receive())
		}
		s.watch(t, &models.WatchRequest{Cursor: old}).ends(codes.OutOfRange, models.ReasonCursorTooOld)
		for range 25 {
			must(t, quiet.receive())
		}
		fresh := s.watch(t, &models.WatchRequest{Cursor: quiet.cursor, Resource: ptr("r")})
		must(t, fresh.receive())
		foreign := watch.Cursor{Position: map[string]uint64{"somebody": 5}}
		foreign.At = 1 << 60
		s.watch(t, &models.WatchRequest{Cursor: foreign.String()}).ends(codes.OutOfRange, models.ReasonCursorTooOld)
	})
}

// TestWatchEndsWithTheServer: even while its snapshot is read, which may take long.
func TestWatchEndsWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &handOff{}
		s := startWith(t, t.TempDir(), func(real db.Store) db.Store { store.Store = real; return store })
		w := s.watch(t, &models.WatchRequest{})
		w.sees("synced")
		release := make(chan struct{})
		store.before = func(string) { <-release }
		reading := s.watch(t, &models.WatchRequest{})
		time.Sleep(time.Second) // until the log has been read, and the snapshot is
		synctest.Wait()
		go s.stop()
		w.ends(codes.Unavailable, models.ReasonShuttingDown)
		reading.ends(codes.Unavailable, models.ReasonShuttingDown)
		close(release)
		synctest.Wait()
	})
}

// TestStalledWatch: a watch whose caller does not read ends, and resumes after its last cursor.
func TestStalledWatch(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		stalled := s.watch(t, &models.WatchRequest{})
		stalled.sees("synced")
		begin := time.Now()
		n := 0
		for ; time.Since(begin) < time.Minute; n++ {
			s.create(t, "r"+strings.Repeat("x", 1000), fmt.Sprint(n), 60)
			time.Sleep(100 * time.Millisecond)
		}
		for {
			if err := stalled.receive(); err != nil {
				if models.ReasonOf(err) != models.ReasonWatchTooSlow || status.Code(err) != codes.ResourceExhausted {
					t.Fatal(err)
				}
				break
			}
		}
		seen := map[string]int{}
		for again := s.watch(t, &models.WatchRequest{Cursor: stalled.cursor}); len(stalled.rest)+len(again.rest) < n; {
			must(t, again.receive())
			if len(stalled.rest)+len(again.rest) >= n {
				for _, line := range append(stalled.rest, again.rest...) {
					if seen[line]++; seen[line] > 1 {
						t.Errorf("%s came again", line)
					}
				}
			}
		}
	})
}

func TestTooManyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startWith(t, t.TempDir(), func(s db.Store) db.Store { return s }, func(c *whole.Config) { c.MaxWaiting = 30 })
		for range 3 {
			s.watch(t, &models.WatchRequest{}).sees("synced")
		}
		s.watch(t, &models.WatchRequest{}).ends(codes.ResourceExhausted, models.ReasonTooManyWaiting)
	})
}

// gated is a store that passes transactions through a gate one at a time.
type gated struct {
	db.Store
	gate chan struct{}
}

func (g gated) Transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	g.gate <- struct{}{}
	defer func() { <-g.gate }()
	outcome, err := db.Transact(ctx, g.Store, batch)
	return outcome, nil, err
}

// TestWatchOfOneCommit: the changes of one transaction come in order, even if it changed claims in turns.
func TestWatchOfOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{}, 1)
		s := startWith(t, t.TempDir(), func(s db.Store) db.Store { return gated{s, gate} })
		s.create(t, "printer", "first", 60)
		w := s.watch(t, &models.WatchRequest{})
		w.sees("first active", "synced")

		gate <- struct{}{}
		var calls sync.WaitGroup
		for _, call := range []func(){
			func() { s.create(t, "scanner", "beside", 60) }, // alone in a transaction that the others wait for
			func() { s.create(t, "printer", "second", 60) },
			func() { s.create(t, "printer", "third", 60) },
			func() { s.end(t, "first", models.Status_STATUS_RELEASED) },
			func() { s.end(t, "third", models.Status_STATUS_WITHDRAWN) },
		} {
			calls.Go(call)
			synctest.Wait()
		}
		<-gate
		calls.Wait()
		w.sees("beside >active", "second >waiting", "third >waiting", "first active>released", "second waiting>active", "third waiting>withdrawn")
	})
}

// TestWatchRefusals: a watch can ask for the number of refused requests for its resources.
func TestWatchRefusals(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.lock(t, "jobs/1", "holder", 3600)
		s.create(t, "x", "a-x", 3600)
		session := s.open(t, "session")
		all := s.watch(t, &models.WatchRequest{NoSnapshot: true, Refusals: true})
		some := s.watch(t, &models.WatchRequest{NoSnapshot: true, Refusals: true, Prefix: "jobs/"})
		unasked := s.watch(t, &models.WatchRequest{NoSnapshot: true})
		counted := func(w *watcher, want uint64) {
			t.Helper()
			resp, err := w.stream.Recv()
			must(t, err)
			if resp.GetRefusals() != want || len(resp.GetTransitions()) > 0 || resp.GetCursor() == "" {
				t.Errorf("got %v, want %d refusals", resp, want)
			}
		}
		for _, w := range []*watcher{all, some, unasked} {
			must(t, w.receive())
			w.rest = nil
		}
		for range 3 {
			_, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource("jobs/1", "other"), TtlInSeconds: 60})
			isError(t, err, models.ErrLockCollision, models.ReasonLockCollision)
		}
		_, err := s.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: "x", Ttl: ptr(1.0), NoWait: true})
		isError(t, err, models.ErrLockCollision, models.ReasonLockCollision)
		session.Lock("x", none, harness.Try)
		_, err = s.Lock(t.Context(), &models.LockRequest{Resource: resource("", "other"), TtlInSeconds: 60})
		if err == nil {
			t.Error("a lock without a name")
		}
		counted(all, 5)
		counted(some, 3)
		s.create(t, "jobs/2", "c", 60) // nothing came between
		for _, w := range []*watcher{all, some, unasked} {
			w.sees("c >active")
		}
		for _, wrong := range []*models.WatchRequest{{Owner: ptr("o")}, {Session: ptr("s")}, {TypeCode: models.TypeCode_LOCK}} {
			wrong.Refusals = true
			s.watch(t, wrong).ends(codes.InvalidArgument, models.ReasonInvalidField)
		}
	})
}

// TestWatchAndRulesForAMoment: rules let a watch's caller see less for a moment, for example by a mistake that is soon
// fixed. If anything has changed in that moment the watch ends: otherwise it would miss that silently.
func TestWatchAndRulesForAMoment(t *testing.T) {
	all, nothing := "", "nothing"
	reading := func(prefix *string) *access.Rules {
		return access.NewRules([]*access.Rule{{Everybody: true, May: access.Read, ResourcePrefix: prefix}})
	}
	for _, missed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var rules atomic.Pointer[access.Rules]
			rules.Store(reading(&all))
			who := func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
				if !call.Stream {
					return next(ctx)
				}
				return next(access.WithCaller(ctx, func() access.Caller {
					return access.Caller{Identity: access.Identity{Name: "credential:reader"}, Rules: rules.Load()}
				}))
			}
			s := startGuarded(t, t.TempDir(), asIs, slog.LevelDebug, whole.Guards{Who: []grpcserver.Guard{who}})
			w := s.watch(t, &models.WatchRequest{})
			w.sees("synced")
			s.create(t, "r", "a", 600)
			w.sees("a >active")
			rules.Store(reading(&nothing))
			if missed {
				s.create(t, "r", "b", 600)
			}
			time.Sleep(2 * time.Second)
			rules.Store(reading(&all))
			s.create(t, "r", "c", 600)
			if missed {
				w.ends(codes.OutOfRange, models.ReasonCursorTooOld)
			} else {
				w.sees("c >waiting")
			}
			w.stop()
		})
	}
}
