package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/discovery"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
)

// live is an active claim of "a", as in Watch's events.
func live(id, value string, version uint64) *models.Claim {
	return &models.Claim{Id: id, Resource: "a", Owner: "o", Value: value, Token: 5, Version: version, Status: models.Status_STATUS_ACTIVE, TypeCode: models.TypeCode_PRESENCE}
}

func over(id string, version uint64) *models.Claim {
	c := live(id, "", version)
	c.Status = models.Status_STATUS_RELEASED
	return c
}

func changes(cursor string, claims ...*models.Claim) *models.WatchResponse {
	m := &models.WatchResponse{Cursor: cursor}
	for _, c := range claims {
		m.Transitions = append(m.Transitions, &models.Transition{Claim: c})
	}
	return m
}

// following starts everything that follows claims (Presences, the resolver, Observe), and notes what each of them reports.
func following(ctx context.Context, c *lock.Client) map[string]*diary {
	heard := map[string]*diary{"presences": {}, "resolver": {}, "election": {}}
	go func() {
		set, err := lock.Presences(ctx, c, "")
		for err == nil {
			var changes []lock.PresenceChange
			changes, err = set.Next(ctx)
			for _, c := range changes {
				heard["presences"].note("%s %s", c.Kind, c.Presence.Value)
			}
		}
	}()
	go func() {
		for leader, err := range lock.NewElection(c, "a").Observe(ctx) {
			if err == nil {
				heard["election"].note("%d %s", leader.Token, leader.Value)
			}
		}
	}()
	var states states
	r, err := discovery.NewResolver(c).Build(resolver.Target{}, &states, resolver.BuildOptions{})
	orPanic(err)
	go func() {
		<-ctx.Done()
		r.Close()
	}()
	heard["resolver"] = &states.diary
	return heard
}

// allSay fails the test unless each of them has reported exactly this, when everything has settled.
func allSay(t *testing.T, heard map[string]*diary, presences, addresses, leaders string) {
	t.Helper()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	for name, want := range map[string]string{"presences": presences, "resolver": addresses, "election": leaders} {
		if got := heard[name].String(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestFollowersAreMonotonic: changes that come again after a break are reported once, and a claim that has ended does not come back.
func TestFollowersAreMonotonic(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		c := s.client()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		heard := following(ctx, c)
		every := func(cursor string, messages ...any) {
			t.Helper()
			for range heard {
				watch := s.NextWatch(cursor)
				go func() {
					for _, m := range messages {
						select {
						case watch.Out <- m:
							time.Sleep(time.Second)
						case <-ctx.Done():
						}
					}
				}()
			}
		}
		broken := status.Error(codes.Unavailable, "broken")
		every("", &models.WatchResponse{Snapshot: []*models.Claim{live("1", "v1", 5)}}, &models.WatchResponse{Cursor: "c1", Synced: true},
			changes("", live("1", "v2", 6)), changes("", over("1", 7)), broken)
		allSay(t, heard, "joined v1", "v1", "5 v1")
		every("c1", changes("", live("1", "v2", 6)), changes("", over("1", 7)), changes("", live("2", "v3", 8)), changes("c2", live("2", "v4", 9)), broken)
		allSay(t, heard, "joined v1, changed v4", "v1, v4", "5 v1, 5 v4")
		every("c2", status.Error(codes.OutOfRange, "too old"))
		every("c2", reason(codes.OutOfRange, models.ReasonCursorTooOld))
		stale := live("2", "v3", 8)
		every("", &models.WatchResponse{Snapshot: []*models.Claim{stale}}, &models.WatchResponse{Cursor: "c3", Synced: true},
			changes("c4", live("2", "v4", 9)), changes("c5", over("2", 10)))
		allSay(t, heard, "joined v1, changed v4, left v4", "v1, v4, ", "5 v1, 5 v4, 0 ")
		cancel()
		synctest.Wait()
	})
}

// TestFollowersFetch: a follower fetches a value that Watch has left out, and tries again if that fails. The value may
// be newer than the one in Watch's event. A claim is reported when its value is known.
func TestFollowersFetch(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		c := s.client()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answer := func(c *models.Claim, err error) {
			s.claims.Store("1", func() (*models.Claim, error) { return c, err })
		}
		answer(nil, status.Error(codes.Unavailable, "not now"))
		heard := following(ctx, c)
		var watches []*locktest.Watch
		begin := func() {
			for range heard {
				watch := s.NextWatch("")
				watches = append(watches, watch)
				go func() {
					watch.Out <- &models.WatchResponse{Snapshot: []*models.Claim{live("1", "", 5)}, Cursor: "c1", Synced: true}
				}()
			}
		}
		begin()
		time.Sleep(time.Second)
		answer(live("1", "stale", 4), nil)
		begin()
		time.Sleep(time.Second)
		answer(live("1", "long", 7), nil) // Watch reports 6 and 7 later
		watches = nil
		begin()
		allSay(t, heard, "joined long", "long", "5 long")
		tell := func(m *models.WatchResponse) {
			for _, watch := range watches {
				watch.Out <- m
			}
		}
		tell(changes("c2", live("1", "older", 6)))
		tell(changes("c3", live("1", "", 7)))
		allSay(t, heard, "joined long", "long", "5 long")
		answer(live("1", "", 8), nil)
		tell(changes("c4", live("1", "", 8)))
		allSay(t, heard, "joined long, changed ", "long, ", "5 long, 5 ")
		answer(over("1", 10), nil) // before Watch reports it
		tell(changes("c5", live("1", "", 9)))
		allSay(t, heard, "joined long, changed , left ", "long, ", "5 long, 5 , 0 ")
		tell(changes("c6", over("1", 10)))
		allSay(t, heard, "joined long, changed , left ", "long, ", "5 long, 5 , 0 ")
		cancel()
		synctest.Wait()
	})
}

// TestLongValues: Presences reports values of any length, when a presence joins and when its value changes.
func TestLongValues(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		long := func(text string) string { return strings.Repeat(text, 10_000) }
		before := w.announce("web/before", long("b"))
		set, err := lock.Presences(t.Context(), w.client(), "web/")
		must(t, err)
		after := w.announce("web/later", long("a"))
		for _, value := range []string{"short", long("x"), long("y"), ""} {
			changing := &models.Resource{Key: "web/x", Owner: "x", Value: value, TypeCode: models.TypeCode_PRESENCE}
			must(t, second(w.own().Lock(t.Context(), &models.LockRequest{Resource: changing, TtlInSeconds: 100})))
			time.Sleep(3 * time.Second)
			synctest.Wait()
			want := fmt.Sprintf("web/before=%s web/later=%s web/x=%s", long("b"), long("a"), value)
			if got := keys(set); got != want {
				t.Errorf("the set has %d bytes, not %d", len(got), len(want))
			}
		}
		must(t, errors.Join(end(before), end(after)))
	})
}
