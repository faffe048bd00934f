package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// serviceStatus answers GetStatus.
type serviceStatus struct {
	store     db.Store
	readiness *readiness
	self      db.Member
	// deadlocks returns how many deadlocks last, because claims allow them.
	deadlocks func() int64
	// census returns the last count of claims and sessions, nil before the first.
	census func() *db.Census
	// stood is for how long lease time has stood still since this server started.
	stood func() (idle, unavailable time.Duration)
}

// newMember returns the announcement of a server that starts now.
func newMember() db.Member {
	host, _ := os.Hostname() // empty if there is none
	return db.Member{Name: ids.NewClaim(), Host: host, Version: buildVersion(), Started: claim.Time(time.Now().UnixMicro())}
}

func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// get answers GetStatus. If the database does not answer, its data is left out, and the problems say so.
func (s *serviceStatus) get(ctx context.Context) (*models.ServiceStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	answer := &models.ServiceStatus{Clock: &models.ClockInfo{}}
	if err := s.readiness.Check(ctx); err != nil {
		answer.Problems = append(answer.Problems, err.Error())
	}
	answer.Problems = append(answer.Problems, s.readiness.warnings()...)
	if state := s.store.ClockState(); state.Lease < state.Quarantine {
		answer.Problems = append(answer.Problems, fmt.Sprintf("the database was restored from a backup, or rolled back: nothing is granted for another %v", state.Quarantine.Sub(state.Lease).Round(time.Second)))
	}
	if n := s.deadlocks(); n > 0 {
		last := fmt.Sprintf("%d deadlocks last, because their claims allow them", n)
		if n == 1 {
			last = "1 deadlock lasts, because its claims allow it"
		}
		answer.Problems = append(answer.Problems, last+": see locket resources and locket explain NAME")
	}
	if n := s.census(); n != nil {
		answer.Counts = &models.CountsInfo{Held: uint64(n.Active), Waiting: uint64(n.Waiting), Sessions: uint64(n.Sessions)}
	}
	about := s.store.About()
	answer.Database = &models.DatabaseInfo{Engine: about.Engine, Version: about.Version}
	if errors.Join(s.readClock(ctx, answer.GetClock()), s.readMembers(ctx, answer)) != nil {
		answer.Problems = append(answer.Problems, "the database does not answer a question")
	}
	return answer, nil
}

// readMembers adds the servers, this one first, and their problems.
func (s *serviceStatus) readMembers(ctx context.Context, answer *models.ServiceStatus) error {
	answer.Servers = []*models.ServerInfo{memberInfo(&s.self)}
	members, now, err := s.store.Members(ctx)
	for i := range members {
		m := &members[i]
		if m.Name == s.self.Name {
			continue
		}
		info, silent := memberInfo(m), max(0, now.Wall.Sub(m.Seen))
		info.Silent = silent.Seconds()
		answer.Servers = append(answer.Servers, info)
		if silent > 3*db.AnnounceInterval {
			answer.Problems = append(answer.Problems, fmt.Sprintf("the server %s on %q has not announced itself for %v, and did not withdraw", m.Name, m.Host, silent.Round(time.Second)))
		}
		if m.Version != s.self.Version {
			answer.Problems = append(answer.Problems, fmt.Sprintf("the server %s on %q has version %s, and this one %s", m.Name, m.Host, m.Version, s.self.Version))
		}
	}
	return err
}

func memberInfo(m *db.Member) *models.ServerInfo {
	return &models.ServerInfo{Name: m.Name, Host: m.Host, Version: m.Version, Started: timestamppb.New(m.Started.Std())}
}

// announcer announces a server while it runs, and withdraws it at the end.
func announcer(store db.Members, self db.Member, log *slog.Logger) ifrit.Runner {
	pause := time.Duration(0)
	next := func() time.Duration { defer func() { pause = db.AnnounceInterval }(); return pause }
	announce := func(ctx context.Context, leaves bool) {
		ctx, cancel := context.WithTimeout(ctx, clockTimeout)
		defer cancel()
		if err := store.Announce(ctx, self, leaves); err != nil {
			log.Debug("the server cannot announce or withdraw itself", "error", err)
		}
	}
	runner := periodic.Paced(next, nil, func(ctx context.Context) { announce(ctx, false) })
	return ifrit.RunFunc(func(signals <-chan os.Signal, ready chan<- struct{}) error {
		defer announce(context.Background(), true)
		return runner.Run(signals, ready)
	})
}

func (s *serviceStatus) readClock(ctx context.Context, clock *models.ClockInfo) error {
	sent := time.Now()
	now, err := s.store.Now(ctx)
	if err != nil {
		clock.Reason = "the database does not say its time"
		return err
	}
	own := sent.Add(time.Since(sent) / 2)
	state := s.store.ClockState()
	clock.Time, clock.Ahead = timestamppb.New(now.Wall.Std()), own.Sub(now.Wall.Std()).Seconds()
	clock.Skew, clock.Outage = state.Skew.Seconds(), state.Outage.Seconds()
	idle, unavailable := s.stood()
	clock.Idle, clock.Unavailable = idle.Seconds(), unavailable.Seconds()
	switch {
	case now.Lease.Sub(state.Beaten) < db.MaxSilence:
		clock.LeaseTimeRuns = true
	case !s.readiness.committer().FailingSince.IsZero():
		clock.Reason = "the database takes no commits of this server, and no other server beats"
	default:
		clock.Reason = "there are no leases"
	}
	return nil
}
