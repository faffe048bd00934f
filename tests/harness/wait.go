package harness

import (
	"testing"
	"time"
)

// Must ends the test on an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until check returns nil.
func Eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", within, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Later returns at once, and what do returns when that is done.
func Later(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}
