//go:build soak

package lock_test

import "testing"

// TestSoakResignsBeforeOthersHold is TestResignsBeforeOthersHold with more seeds.
func TestSoakResignsBeforeOthersHold(t *testing.T) { resignsBeforeOthersHold(t, 20) }

// TestSoakRunnersSayFirst is TestRunnersSayFirst with more runners in the same time.
func TestSoakRunnersSayFirst(t *testing.T) { runnersSayFirst(t, 100) }
