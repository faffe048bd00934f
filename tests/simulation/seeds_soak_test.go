//go:build soak

package simulation_test

import "testing"

// TestSoakSimulation is TestSimulation with 5,000 seeds, which must reach all conditions.
func TestSoakSimulation(t *testing.T) {
	r := &reached{times: make(map[string]int)}
	simulateMany(t, seeds, seeds+5000, r)
	t.Logf("what happened, and how often:\n%s", r)
	for _, what := range r.never() {
		t.Errorf("this has never happened: %s", what)
	}
}
