package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/lock/discovery"
	"github.com/locket-service/locket/models"
)

// watched is a server of watches that does what a test says.
type watched struct {
	models.UnimplementedLocketServer
	watches chan watching
	dial    conn.Option
	mu      sync.Mutex
	claims  map[string]func() (*models.Claim, error) // answers to GetClaim
	asked   int
}

// watching is one watch: what is put into out is sent, and an error ends it.
type watching struct {
	cursor string
	out    chan any
}

// Watch implements models.LocketServer.
func (w *watched) Watch(req *models.WatchRequest, stream grpc.ServerStreamingServer[models.WatchResponse]) error {
	watch := watching{req.GetCursor(), make(chan any)}
	w.watches <- watch
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case m := <-watch.out:
			if err, failed := m.(error); failed {
				return err
			}
			if err := stream.Send(m.(*models.WatchResponse)); err != nil {
				return err
			}
		}
	}
}

// GetClaim implements models.LocketServer.
func (w *watched) GetClaim(_ context.Context, req *models.GetClaimRequest) (*models.Claim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if answer := w.claims[req.GetId()]; answer != nil {
		return answer()
	}
	return nil, status.Error(codes.NotFound, "no such claim")
}

// onWatched runs a test in a bubble, with a client of such a server.
func onWatched(t *testing.T, test func(t *testing.T, w *watched, c *lock.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{watches: make(chan watching, 16), claims: make(map[string]func() (*models.Claim, error))}
		listener, server, served := bufconn.Listen(1<<20), grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second})), make(chan error)
		models.RegisterLocketServer(server, w)
		go func() { served <- server.Serve(listener) }()
		w.dial = conn.WithDialOptions(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		c, err := lock.NewClient([]string{"127.0.0.1:1"}, lock.WithDial(w.dial))
		must(t, err)
		test(t, w, c)
		must(t, c.Close())
		server.Stop()
		must(t, <-served)
		time.Sleep(time.Minute)
	})
}

// live is an active claim of "a", as Watch tells of it.
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

// following are those who follow claims: presences, and the leader of an election. What they are told is noted.
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

// says fails the test unless each has been told exactly this, when everything has settled.
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

// TestFollowersAreMonotonic: what was told before its cursor, and comes again after a break, is told once, and nothing that has
// ended comes back.
func TestFollowersAreMonotonic(t *testing.T) {
	onWatched(t, func(t *testing.T, w *watched, c *lock.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		heard := following(ctx, c)
		every := func(cursor string, messages ...any) {
			t.Helper()
			for range heard {
				watch := <-w.watches
				if watch.cursor != cursor {
					t.Errorf("it goes on at %q, not %q", watch.cursor, cursor)
				}
				go func() {
					for _, m := range messages {
						select {
						case watch.out <- m:
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

// TestFollowersFetch: a value that Watch has left out is fetched, again if that fails, and it may be newer than what Watch tells; a
// claim is told of when its value is known.
func TestFollowersFetch(t *testing.T) {
	onWatched(t, func(t *testing.T, w *watched, c *lock.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		set := func(id string, answer func() (*models.Claim, error)) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.claims[id] = answer
		}
		answer := func(c *models.Claim) func() (*models.Claim, error) {
			return func() (*models.Claim, error) { return c, nil }
		}
		set("1", func() (*models.Claim, error) { return nil, status.Error(codes.Unavailable, "not now") })
		heard := following(ctx, c)
		var watches []watching
		begin := func() {
			for range heard {
				watch := <-w.watches
				if watch.cursor != "" {
					t.Errorf("it goes on at %q", watch.cursor)
				}
				watches = append(watches, watch)
				go func() {
					watch.out <- &models.WatchResponse{Snapshot: []*models.Claim{live("1", "", 5)}, Cursor: "c1", Synced: true}
				}()
			}
		}
		begin()
		time.Sleep(time.Second)
		set("1", answer(live("1", "stale", 4)))
		begin()
		time.Sleep(time.Second)
		set("1", answer(live("1", "long", 7))) // Watch tells of 6 and 7 later
		watches = nil
		begin()
		allSay(t, heard, "joined long", "long", "5 long")
		tell := func(m *models.WatchResponse) {
			for _, watch := range watches {
				watch.out <- m
			}
		}
		tell(changes("c2", live("1", "older", 6)))
		tell(changes("c3", live("1", "", 7)))
		allSay(t, heard, "joined long", "long", "5 long")
		set("1", answer(live("1", "", 8)))
		tell(changes("c4", live("1", "", 8)))
		allSay(t, heard, "joined long, changed ", "long, ", "5 long, 5 ")
		set("1", answer(over("1", 10))) // before Watch tells
		tell(changes("c5", live("1", "", 9)))
		allSay(t, heard, "joined long, changed , left ", "long, ", "5 long, 5 , 0 ")
		tell(changes("c6", over("1", 10)))
		allSay(t, heard, "joined long, changed , left ", "long, ", "5 long, 5 , 0 ")
		cancel()
		synctest.Wait()
	})
}

// TestLongValues: the values of presences are told whole, whatever their length, when they come and when they change.
func TestLongValues(t *testing.T) {
	inWorld(t, func(t *testing.T, h *world) {
		announce := announcer(h)
		server := h.own()
		client := h.client()
		long := func(text string) string { return strings.Repeat(text, 10_000) }
		before := announce("web/before", long("b"))
		set, err := lock.Presences(t.Context(), client, "web/")
		must(t, err)
		after := announce("web/later", long("a"))
		_, err = server.Lock(t.Context(), &models.LockRequest{Resource: &models.Resource{Key: "web/x", Owner: "x", Value: "short", TypeCode: models.TypeCode_PRESENCE}, TtlInSeconds: 100})
		must(t, err)
		for _, value := range []string{"short", long("x"), long("y"), ""} {
			_, err := server.Lock(t.Context(), &models.LockRequest{Resource: &models.Resource{Key: "web/x", Owner: "x", Value: value, TypeCode: models.TypeCode_PRESENCE}, TtlInSeconds: 100})
			must(t, err)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			want := fmt.Sprintf("web/before=%s web/later=%s web/x=%s", long("b"), long("a"), value)
			if got := keys(set); got != want {
				t.Errorf("the set has %d bytes, not %d", len(got), len(want))
			}
		}
		must(t, errors.Join(end(before), end(after), client.Close()))
	})
}
