//go:build soak

package keychain_test

import "testing"

// TestForeignAnswersSoak is TestForeignAnswers with each answer at every step.
func TestForeignAnswersSoak(t *testing.T) {
	foreignAnswers(t, len(lifeSteps))
}
