package server

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/ids"
	"github.com/locket-service/locket/models"
)

// serviceStatus knows how the service is.
type serviceStatus struct {
	store     db.Store
	readiness *readiness
	self      *models.ServerInfo
}

func newStatus(store db.Store, r *readiness) *serviceStatus {
	host, _ := os.Hostname() // without a name it has none
	return &serviceStatus{store: store, readiness: r, self: &models.ServerInfo{
		Name: ids.NewRequest(), Host: host, Version: buildVersion(), Started: timestamppb.Now(),
	}}
}

// buildVersion is that of the program.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// get answers GetStatus. What the database does not say is left out: that it does not is among the problems.
func (s *serviceStatus) get(ctx context.Context) (*models.ServiceStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	answer := &models.ServiceStatus{Servers: []*models.ServerInfo{s.self}, Clock: &models.ClockInfo{}}
	if err := s.readiness.Check(ctx); err != nil {
		answer.Problems = append(answer.Problems, err.Error())
	}
	answer.Problems = append(answer.Problems, s.readiness.warnings()...)
	if durable, ok := s.store.(interface{ Warnings() []string }); ok {
		answer.Problems = append(answer.Problems, durable.Warnings()...)
	}
	about, err := s.store.About(ctx)
	answer.Database = &models.DatabaseInfo{Engine: about.Engine, Version: about.Version}
	if err == nil {
		err = s.readClock(ctx, answer.GetClock())
	}
	if err != nil {
		answer.Problems = append(answer.Problems, "the database does not answer a question")
	}
	return answer, nil
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
	switch {
	case now.Lease.Sub(state.Beaten) < db.MaxSilence:
		clock.LeaseTimeRuns = true
	case !s.readiness.committer().FailingSince.IsZero():
		clock.Reason = "the database takes no commits of this server, and no other server beats"
	default:
		clock.Reason = "there is no lease that could end"
	}
	return nil
}
