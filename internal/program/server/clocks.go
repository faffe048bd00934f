package server

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/metric"
)

// watchClocks registers the metrics of the clocks, and returns a function that logs the steps of the database's clock
// since its last call.
func watchClocks(clocks db.Clocks, log *slog.Logger, registry prometheus.Registerer) (logSteps func()) {
	gauge := func(name, help string, value func(db.ClockState) float64) prometheus.Collector {
		return metric.GaugeFunc(name, help, func() float64 { return value(clocks.ClockState()) })
	}
	registry.MustRegister(
		gauge("locket_clock_offset_seconds", "How much later this server's time is than its database's clock: that has stepped back, or lags behind others of a cluster.",
			func(s db.ClockState) float64 { return s.Offset.Seconds() }),
		gauge("locket_clock_skew_seconds", "How much later than its deadline a lease is due, because the clocks of a cluster differ, or the database's has stepped.",
			func(s db.ClockState) float64 { return s.Skew.Seconds() }),
		gauge("locket_outage_seconds", "The sum of all time that counts against no lease: outages, and time without leases.",
			func(s db.ClockState) float64 { return s.Outage.Seconds() }),
		gauge("locket_lease_time_seconds", "Lease time: the database's time less outages, since the Unix epoch.",
			func(s db.ClockState) float64 { return float64(s.Lease) / 1e6 }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "locket_clock_steps_total", Help: "Steps of the database's clock that this server has seen."},
			func() float64 { return float64(clocks.ClockState().Steps) }),
	)
	seen := 0
	return func() {
		if state := clocks.ClockState(); state.Steps != seen {
			seen = state.Steps
			log.Warn("the clock of the database has stepped; leases do not end early by it", "steps", state.Steps, "offset", state.Offset)
		}
	}
}
