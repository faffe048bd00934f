package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/service/upkeep"
)

// sweeps is the store of the sweeper. It notes when the store last answered.
type sweeps struct {
	upkeep.Leases
	last atomic.Pointer[time.Time]
}

// watchSweeps returns a store for the sweeper, and registers the metric of its age.
func watchSweeps(store upkeep.Leases, registry prometheus.Registerer) *sweeps {
	s := &sweeps{Leases: store}
	s.looked() // at the start
	registry.MustRegister(metric.GaugeFunc("locket_last_sweep_age_seconds", "Time since this server last looked for leases that have run out, with an answer.", func() float64 { return time.Since(*s.last.Load()).Seconds() }))
	return s
}

func (s *sweeps) looked() {
	now := time.Now()
	s.last.Store(&now)
}

// Due implements db.Due.
func (s *sweeps) Due(ctx context.Context, query db.DueQuery) (db.Overdue, error) {
	overdue, err := s.Leases.Due(ctx, query)
	if err == nil && query.Sessions == 0 { // sessions are swept beside the leases
		s.looked()
	}
	return overdue, err
}
