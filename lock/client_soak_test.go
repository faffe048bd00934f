//go:build soak

package lock_test

import "testing"

// TestSoakResignsBeforeOthersHold is TestResignsBeforeOthersHold with more seeds.
func TestSoakResignsBeforeOthersHold(t *testing.T) { resignsBeforeOthersHold(t, 20) }
