package server

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/sqlite"
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

func TestClocksOfAStore(t *testing.T) {
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "locket.db"))
	must(t, err)
	defer func() { must(t, store.Close()) }()
	registry := prometheus.NewRegistry()
	watchClocks(store, slog.New(slog.DiscardHandler), registry)
	before := value(t, registry, "locket_outage_seconds")
	time.Sleep(db.MaxSilence / 2)
	must(t, store.Resume(t.Context()))
	outage := value(t, registry, "locket_outage_seconds") - before
	if outage < (db.MaxSilence/4).Seconds() || outage > 10 {
		t.Errorf("an outage of %v s", outage)
	}
	lease := value(t, registry, "locket_lease_time_seconds")
	if now := float64(time.Now().Unix()); lease+value(t, registry, "locket_outage_seconds") < now-5 || lease > now+5 {
		t.Errorf("lease time %v s", lease)
	}
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
