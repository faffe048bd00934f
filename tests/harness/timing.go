package harness

import (
	"testing"
	"time"
)

// LogTime logs how long something has taken since it began.
func LogTime(t testing.TB, what string, begin time.Time) {
	t.Helper()
	t.Logf("%s took %v", what, time.Since(begin).Round(time.Millisecond)) // real time: for readers of the log
}

// AtMost logs how long something took. With the build tag timing (make test-timing, on a machine that does
// nothing else) it fails the test if that is longer than it may be: without it, no verdict depends
// on how fast the machine is.
func AtMost(t testing.TB, what string, took, bound time.Duration) {
	t.Helper()
	if took > bound && timed {
		t.Errorf("%s took %v, more than %v", what, took, bound)
	} else {
		t.Logf("%s took %v; %v are allowed", what, took, bound)
	}
}
