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

	"github.com/locket-service/locket/tests/harness"
)

// This is TestTogether for a longer time, with rules that change meanwhile.
func TestSoakTogether(t *testing.T) {
	p := newParties(t)
	var changing sync.WaitGroup
	changing.Go(func() { p.keepChanging(t.Context()) })
	t.Cleanup(changing.Wait)                                          // before the folder with the rules is removed
	withParties(t, p).use(t, func() { time.Sleep(30 * time.Second) }) // real time: of load
}

// This is TestTogetherDisturbed for a longer time.
func TestSoakTogetherDisturbed(t *testing.T) {
	t.Run("two servers", func(t *testing.T) { disturbPair(t, 40) })
	t.Run(harness.EngineEmbedded, func(t *testing.T) { disturbEmbedded(t, 40) })
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
