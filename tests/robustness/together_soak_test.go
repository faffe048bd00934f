//go:build soak

package robustness_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// This is TestTogether for a longer time.
func TestSoakTogether(t *testing.T) {
	t.Run("two servers", func(t *testing.T) {
		a, b := pairOfServers(t)
		useTogether(t, 2*time.Minute, parties{}, a, b)
	})
	t.Run("two servers with access rules", func(t *testing.T) {
		database := "mysql:" + fixtures.MySQL(t)
		p := newParties(t)
		var changing sync.WaitGroup
		changing.Go(func() { p.keepChanging(t.Context()) })
		t.Cleanup(changing.Wait) // before the folder with the rules is removed
		useTogether(t, 2*time.Minute, p, fixtures.StartLocket(t, database, p.flags...), fixtures.StartLocket(t, database, p.flags...))
	})
	t.Run(harness.Raft, func(t *testing.T) {
		useTogether(t, 2*time.Minute, parties{}, fixtures.StartLocket(t, harness.Embedded(t)))
	})
}

// keepChanging replaces the file of rules until ctx is done, by rules that differ for nobody here.
func (p parties) keepChanging(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		other := fmt.Sprintf("rules:\n  - {identity: \"credential:other-%d\", may: [all], resource_prefix: \"key-\"}\n", n)
		text := strings.Replace(partiesRules, "rules:\n", other, 1)
		if os.WriteFile(p.rules+".new", []byte(text), 0o600) == nil {
			_ = os.Rename(p.rules+".new", p.rules)
		}
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second): // real time: the servers look once a second
		}
	}
}
