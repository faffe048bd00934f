//go:build soak

package robustness_test

import (
	"testing"
	"time"
)

// TestSoakPair is TestPair with more clients, for longer.
func TestSoakPair(t *testing.T) { pairUnderLoad(t, 24, 10*time.Second) }

// TestSoakThirdServerKilled is TestThirdServerKilled with more clients and more kills.
func TestSoakThirdServerKilled(t *testing.T) { killThird(t, 8, 10) }
