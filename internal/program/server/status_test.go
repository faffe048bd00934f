package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/models"
)

// silentStore is a store whose database does not answer while silent is set.
type silentStore struct {
	db.Store
	silent bool
}

func (s *silentStore) Now(ctx context.Context) (claim.Instant, error) {
	if s.silent {
		return claim.Instant{}, db.ErrUnavailable
	}
	return s.Store.Now(ctx)
}

func (s *silentStore) Members(ctx context.Context) ([]db.Member, claim.Instant, error) {
	if s.silent {
		return nil, claim.Instant{}, db.ErrUnavailable
	}
	return s.Store.Members(ctx)
}

// TestStatusProblems: each fault is among the problems, and there is an answer whatever the fault.
func TestStatusProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		real, err := replica.Open(filepath.Join(t.TempDir(), "data"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = real.Close() }()
		store := &silentStore{Store: real}
		var health committer.Health
		ready := newReadiness(store, func() committer.Health { return health }, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		deadlocks := int64(0)
		status := &serviceStatus{store: store, readiness: ready, self: newMember(), deadlocks: func() int64 { return deadlocks }, census: func() *db.Census { return &db.Census{Active: 3, Waiting: 2, Sessions: 1} }, stood: func() (idle, unavailable time.Duration) { return 0, 0 }}
		get := func(servers int, problems ...string) *models.ServiceStatus {
			t.Helper()
			got, err := status.get(t.Context())
			if err != nil || len(got.GetServers()) != servers || got.GetServers()[0].GetName() != status.self.Name {
				t.Fatalf("got %v, %v", got, err)
			}
			if len(got.GetProblems()) != len(problems) {
				t.Fatalf("the problems %q, want %q", got.GetProblems(), problems)
			}
			for i, problem := range problems {
				if !strings.Contains(got.GetProblems()[i], problem) {
					t.Errorf("the problem %q, want %q", got.GetProblems()[i], problem)
				}
			}
			return got
		}
		announcing := ifrit.Invoke(announcer(store, status.self, slog.New(slog.DiscardHandler)))
		synctest.Wait()
		deadlocks = 2
		get(1, "2 deadlocks last, because their claims allow them: see")
		deadlocks = 0
		if n := get(1).GetCounts(); n.GetHeld() != 3 || n.GetWaiting() != 2 || n.GetSessions() != 1 {
			t.Errorf("the counts: %s", n)
		}
		other := db.Member{Name: "other", Host: "elsewhere", Version: status.self.Version, Started: 1}
		if err := store.Announce(t.Context(), other, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if got := get(2); got.GetServers()[1].GetHost() != "elsewhere" || got.GetServers()[1].GetSilent() != 30 {
			t.Errorf("the other server: %s", got.GetServers()[1])
		}
		time.Sleep(time.Second)
		get(2, `the server other on "elsewhere" has not announced itself for 31s`)
		time.Sleep(db.MemberAge)
		get(1)
		other.Version = "v0.0.1"
		if err := store.Announce(t.Context(), other, false); err != nil {
			t.Fatal(err)
		}
		get(2, "has version v0.0.1")
		health = committer.Health{FailingSince: time.Now(), Err: errors.New("the disk is full")}
		time.Sleep(time.Second)
		if got := get(2, "takes no commits", "v0.0.1"); got.GetClock().GetLeaseTimeRuns() || !strings.Contains(got.GetClock().GetReason(), "takes no commits") {
			t.Errorf("the clock: %s", got.GetClock())
		}
		store.silent = true
		if got := get(1, "takes no commits", "does not answer"); got.GetDatabase().GetEngine() != "embedded" || got.GetClock().GetTime() != nil || got.GetClock().GetReason() == "" {
			t.Errorf("without an answer: %s", got)
		}
		store.silent = false
		announcing.Signal(os.Interrupt)
		<-announcing.Wait()
		if left, _, err := store.Members(t.Context()); err != nil || len(left) != 1 || left[0].Name != "other" {
			t.Errorf("after its end: %v, %v", left, err)
		}
	})
}
