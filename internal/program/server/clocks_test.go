package server

import (
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/fixtures"
)

// stepped is a store whose database's clock has stepped.
type stepped struct {
	db.Store
	state db.ClockState
}

func (s *stepped) ClockState() db.ClockState { return s.state }

// value returns a metric without labels.
func value(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue() + family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// near compares seconds.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-5 {
		t.Errorf("%s: %v s, want %v s", what, got, want)
	}
}

func TestClocksOfAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := replica.Open(filepath.Join(t.TempDir(), "data"))
		must(t, err)
		defer func() { must(t, store.Close()) }()
		registry := prometheus.NewRegistry()
		watchClocks(store, slog.New(slog.DiscardHandler), registry)
		before := value(t, registry, "locket_outage_seconds")
		time.Sleep(db.MaxSilence / 2)
		must(t, store.Beat(t.Context(), true))
		after := value(t, registry, "locket_outage_seconds")
		near(t, "the outage", after-before, (db.MaxSilence / 2).Seconds())
		near(t, "lease time and outages", value(t, registry, "locket_lease_time_seconds")+after, float64(time.Now().UnixMicro())/1e6)
	})
}

// Each step is logged once.
func TestStepsAreLogged(t *testing.T) {
	var logs fixtures.Buffer
	registry := prometheus.NewRegistry()
	store := &stepped{}
	logSteps := watchClocks(store, slog.New(slog.NewTextHandler(&logs, nil)), registry)
	logSteps()
	store.state = db.ClockState{Steps: 1, Offset: 90 * time.Second, Skew: 300 * time.Millisecond}
	logSteps()
	logSteps()
	if n := strings.Count(logs.String(), "offset=1m30s"); n != 1 {
		t.Errorf("%d lines: %s", n, logs.String())
	}
	for name, want := range map[string]float64{"locket_clock_steps_total": 1, "locket_clock_offset_seconds": 90, "locket_clock_skew_seconds": 0.3} {
		if got := value(t, registry, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
