package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestWatchMoves: a watch moves between two servers under load, and one of them is killed. It gets each transition once, and a resource's
// transitions in order.
func TestWatchMoves(t *testing.T) {
	t.Parallel()
	dsn := harness.MySQL(t)
	watchMoves(t, 1_500, dsn, dsn)
}

// watchMoves makes a number of transitions at two servers.
func watchMoves(t *testing.T, transitions int64, first, second string) {
	t.Helper()
	servers := []*fixtures.Locket{
		fixtures.StartLocket(t, "mysql:"+first, "--history-limit", "1000000"), fixtures.StartLocket(t, "mysql:"+second, "--history-limit", "1000000"),
	}
	clients := []models.LocketClient{servers[0].Client(t), servers[1].Client(t)}
	saw := newSighting()
	watching, stop := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	began := make(chan struct{})
	watcher.Go(func() { saw.follow(watching, clients, sync.OnceFunc(func() { close(began) })) })
	<-began

	var made atomic.Int64
	var load sync.WaitGroup
	for i := range 48 {
		load.Go(func() {
			for made.Load() < transitions || !saw.moved(4) {
				made.Add(claimAndEnd(t.Context(), clients[i%2]))
			}
		})
	}
	harness.Until(t, "load", func() bool { return made.Load() >= transitions/2 })
	harness.Must(t, servers[0].Restart())
	load.Wait()

	claims := harness.ListAll(t, clients[1])
	harness.Eventually(t, func() error { return saw.all(claims) })
	stop()
	watcher.Wait()
	saw.mu.Lock()
	defer saw.mu.Unlock()
	if len(saw.faults) > 0 {
		t.Errorf("%d faults, such as %s", len(saw.faults), saw.faults[0])
	}
	if saw.count < int(transitions)*9/10 {
		t.Errorf("it saw %d transitions", saw.count)
	}
	t.Logf("%d transitions, %d moves, %d claims", saw.count, saw.moves, len(claims))
}

// claimAndEnd makes a claim of one of a few resources, and ends it. It returns the approximate number of transitions.
func claimAndEnd(ctx context.Context, client models.LocketClient) int64 {
	claim, err := client.CreateClaim(ctx, &models.CreateClaimRequest{Resource: fmt.Sprint("r", rand.N(40)), Ttl: proto.Float64(3600)})
	if err != nil {
		time.Sleep(10 * time.Millisecond) // real time: the server is down
		return 0
	}
	for range 200 {
		if _, err = client.EndClaim(ctx, &models.EndClaimRequest{Id: claim.GetId()}); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond) // real time: the server is down
	}
	return 2
}

// sighting is a message of a watch.
type sighting struct {
	mu      sync.Mutex
	status  map[string]models.Status // of each claim
	version map[string]uint64        // of each resource
	count   int
	moves   int
	faults  []string
}

func newSighting() *sighting {
	return &sighting{status: make(map[string]models.Status), version: make(map[string]uint64)}
}

// follow watches at one server after the other, always from the last cursor on.
func (s *sighting) follow(ctx context.Context, clients []models.LocketClient, began func()) {
	cursor := ""
	for i := 0; ctx.Err() == nil; i++ {
		part, cancel := context.WithCancel(ctx)
		leave := sync.OnceFunc(func() { time.AfterFunc(300*time.Millisecond, cancel) })
		stream, err := clients[i%2].Watch(part, &models.WatchRequest{Cursor: cursor})
		for err == nil {
			var response *models.WatchResponse
			if response, err = stream.Recv(); err == nil {
				cursor = response.GetCursor()
				s.see(response)
				began()
				leave()
			}
		}
		cancel()
		if reason := models.ReasonOf(err); reason == models.ReasonCursorTooOld || reason == models.ReasonWatchTooSlow {
			s.fault("%v", err)
			return
		}
		s.mu.Lock()
		s.moves++
		s.mu.Unlock()
	}
}

// moved reports whether the watch has moved a number of times.
func (s *sighting) moved(times int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moves >= times || len(s.faults) > 0
}

func (s *sighting) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

func (s *sighting) see(response *models.WatchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if response.GetCursor() == "" {
		s.faults = append(s.faults, "a response without a cursor")
	}
	for _, t := range response.GetTransitions() {
		c := t.GetClaim()
		s.count++
		if s.status[c.GetId()] != t.GetBefore() {
			s.faults = append(s.faults, fmt.Sprintf("claim %s went from %s to %s after %s", c.GetId(), t.GetBefore(), c.GetStatus(), s.status[c.GetId()]))
		}
		if c.GetVersion() <= s.version[c.GetResource()] {
			s.faults = append(s.faults, fmt.Sprintf("version %d of %s came after %d", c.GetVersion(), c.GetResource(), s.version[c.GetResource()]))
		}
		s.status[c.GetId()], s.version[c.GetResource()] = c.GetStatus(), c.GetVersion()
	}
}

// all returns an error unless the last transition of each claim was received.
func (s *sighting) all(claims []*models.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range claims {
		if s.status[c.GetId()] != c.GetStatus() {
			return fmt.Errorf("claim %s is %s, and was seen as %s", c.GetId(), c.GetStatus(), s.status[c.GetId()])
		}
	}
	if len(s.status) != len(claims) {
		return fmt.Errorf("%d claims, and %d were seen", len(claims), len(s.status))
	}
	return nil
}

// TestManyWatches: one of many watches does not read. It is cut, and continues from its last cursor; the others get all transitions.
func TestManyWatches(t *testing.T) {
	t.Parallel()
	manyWatches(t, 100)
}

func manyWatches(t *testing.T, watches int) {
	t.Helper()
	const changes, big = 20, 300
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	stalled, err := server.Client(t).Watch(t.Context(), &models.WatchRequest{Prefix: "big/"})
	harness.Must(t, err)
	first, err := stalled.Recv()
	harness.Must(t, err)

	var ready, done sync.WaitGroup
	faults := make(chan error, watches)
	ready.Add(watches - 1)
	for range 10 {
		client := server.Client(t)
		for range (watches - 1) / 10 {
			done.Go(func() { faults <- watchSome(t.Context(), client, changes, ready.Done) })
		}
	}
	for range (watches - 1) % 10 {
		done.Go(func() { faults <- watchSome(t.Context(), client, changes, ready.Done) })
	}
	ready.Wait()
	for i := range big { // one after the other: of few large commits, the watch that does not read might be sent all
		harness.Create(t, client, fmt.Sprint("big/", i, strings.Repeat("x", 1000)), fmt.Sprint("big", i), time.Hour)
	}
	for i := range changes {
		harness.Create(t, client, "small", fmt.Sprint("small", i), time.Hour)
	}
	done.Wait()
	for range watches - 1 {
		harness.Must(t, <-faults)
	}

	harness.Eventually(t, func() error { return harness.WantMetric(t, server, "locket_watchers 0") }) // it has been cut
	cursor, seen := first.GetCursor(), 0
	for {
		response, err := stalled.Recv()
		if err == nil {
			cursor, seen = response.GetCursor(), seen+len(response.GetTransitions())
			continue
		}
		if models.ReasonOf(err) != models.ReasonWatchTooSlow {
			t.Fatalf("after %d transitions: %v", seen, err)
		}
		break
	}
	again, err := client.Watch(t.Context(), &models.WatchRequest{Prefix: "big/", Cursor: cursor})
	harness.Must(t, err)
	for seen < big {
		response, err := again.Recv()
		harness.Must(t, err)
		seen += len(response.GetTransitions())
	}
	if seen != big {
		t.Errorf("%d transitions were seen, of %d", seen, big)
	}
}

// watchSome watches until a number of changes of the small resource have come.
func watchSome(ctx context.Context, client models.LocketClient, changes int, ready func()) error {
	ctx, cancel := context.WithTimeout(ctx, 5*harness.HangTimeout) // a busy machine takes long for all the claims
	defer cancel()
	stream, err := client.Watch(ctx, &models.WatchRequest{Resource: proto.String("small")})
	if err == nil {
		_, err = stream.Recv()
	}
	ready()
	for seen := 0; err == nil && seen < changes; {
		var response *models.WatchResponse
		if response, err = stream.Recv(); err == nil {
			seen += len(response.GetTransitions())
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("a watch was delayed")
	}
	return err
}
