//go:build soak

package robustness_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

const (
	soakTime    = 3 * time.Minute
	soakCallers = 64
)

// TestSoak loads a server for minutes, with many more claims than its history keeps. Goroutines, memory and finished claims must not grow.
func TestSoak(t *testing.T) {
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		server := fixtures.StartLocket(t, database, "--history-limit", "20000", "--history-minimum", "0s")
		ctx, cancel := context.WithTimeout(t.Context(), soakTime)
		defer cancel()
		var group sync.WaitGroup
		for n := range soakCallers {
			group.Go(func() { soakCaller(ctx, t, server.Client(t), n) })
		}
		early := time.AfterFunc(soakTime/5, func() { t.Logf("early: %v", usage(t, server)) })
		defer early.Stop()
		<-ctx.Done()
		group.Wait()
		harness.Eventually(t, func() error {
			if u := usage(t, server); u["locket_claims{status=\"finished\"}"] > 25_000 || u["go_goroutines"] > 1000 || u["process_resident_memory_bytes"] > 1<<30 {
				return fmt.Errorf("it grows: %v", u)
			}
			return nil
		})
		t.Logf("late: %v", usage(t, server))
	})
}

// soakCaller takes and releases locks of new names.
func soakCaller(ctx context.Context, t *testing.T, client models.LocketClient, n int) {
	for i := 0; ctx.Err() == nil; i++ {
		resource := &models.Resource{Key: fmt.Sprintf("soak/%d/%d", n, i), Owner: "o", TypeCode: models.TypeCode_LOCK}
		_, err := client.Lock(context.Background(), &models.LockRequest{Resource: resource, TtlInSeconds: 60})
		if err == nil {
			_, err = client.Release(context.Background(), &models.ReleaseRequest{Resource: resource})
		}
		if err != nil {
			t.Error(err)
		}
	}
}

var metric = regexp.MustCompile(`(?m)^(go_goroutines|process_resident_memory_bytes|locket_claims\{status="finished"\}) (\S+)$`)

// usage is read from the server's metrics.
func usage(t *testing.T, server *fixtures.Locket) map[string]float64 {
	found := make(map[string]float64)
	for _, m := range metric.FindAllStringSubmatch(harness.Scrape(t, server), -1) {
		value, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Error(err)
		}
		found[m[1]] = value
	}
	return found
}
