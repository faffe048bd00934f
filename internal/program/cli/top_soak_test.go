//go:build soak && linux

package cli

import "testing"

// The same with ten times as many claims as any page has.
func TestTopOfTwoServersSoak(t *testing.T) { topOfTwoServers(t, 10_000) }
