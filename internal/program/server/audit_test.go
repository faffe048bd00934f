package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
)

// metric returns the value of a counter or a gauge.
func metricOf(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// Lines are bounded while they cannot be written; lines beyond the bound are counted, at the end too.
func TestAuditIsBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	f, err := openAudit("/dev/full", slog.New(slog.DiscardHandler), registry)
	must(t, err)
	process := ifrit.Invoke(f)
	lost := 0
	for range auditLines + 100 {
		if _, err := f.Write([]byte("line\n")); err != nil {
			lost++
		}
	}
	if n := metricOf(t, registry, "locket_audit_lost_total"); lost != 100 || n != 100 {
		t.Errorf("%d are lost, %v are counted", lost, n)
	}
	if err := f.promise(); err == nil {
		t.Error("a line is promised for which there is no room")
	}
	process.Signal(os.Interrupt)
	must(t, <-process.Wait())
	if n := metricOf(t, registry, "locket_audit_lost_total"); n != auditLines+100 {
		t.Errorf("%v are counted at the end", n)
	}
}

// A promised line has room whatever else is written; reneging frees it. At the end all lines are in the file, each of
// them whole. By the fake clock no write hangs, and the end has time for all lines.
func TestAuditPromises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, registry := filepath.Join(t.TempDir(), "audit.log"), prometheus.NewRegistry()
		f, err := openAudit(path, slog.New(slog.DiscardHandler), registry)
		must(t, err)
		end, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			f.write(nil, end)
		}()
		long := strings.Repeat("x", 500) + "\n"
		var writers sync.WaitGroup
		for range 8 {
			writers.Go(func() {
				for i := range 1000 {
					if err := f.promise(); err != nil {
						t.Error(err)
						return
					}
					if i%10 == 0 {
						f.renege()
						continue
					}
					if _, err := f.promised([]byte(long)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		close(end)
		<-ended
		text, err := os.ReadFile(path)
		must(t, err)
		if n := strings.Count(string(text), long); n != 8*900 || len(text) != n*len(long) {
			t.Errorf("%d lines in %d bytes", n, len(text))
		}
		if left := metricOf(t, registry, "locket_audit_waiting_lines"); left != 0 {
			t.Errorf("the room of %v lines is not given back", left)
		}
	})
}

// The end sleeps while it waits for a line that was promised: a loop without a pause would stop the fake clock for ever.
func TestAuditEndPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := openAudit(filepath.Join(t.TempDir(), "audit.log"), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		must(t, err)
		must(t, f.promise())
		end := make(chan struct{})
		close(end)
		f.write(nil, end)
	})
}
