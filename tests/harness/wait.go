package harness

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Must ends the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// HangTimeout is after how long a test fails that waits for something. On a machine that is busy it
// may take long, so no verdict depends on it but that something hangs.
const HangTimeout = 2 * time.Minute

// Eventually waits until check returns nil.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	for begin := time.Now(); ; {
		err := check()
		if err == nil {
			return
		}
		waited := time.Since(begin) // real time: how long it has been waited for
		if waited > HangTimeout {
			t.Fatalf("not within %v: %v", HangTimeout, err)
		}
		time.Sleep(5*time.Millisecond + waited/20) // real time: what takes longer is checked less often
	}
}

// Until waits until something is so.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	Eventually(t, func() error {
		if !is() {
			return missing(what)
		}
		return nil
	})
}

// Await returns what comes on a channel, or the zero value when it is closed.
func Await[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(HangTimeout):
		t.Fatalf("no %s within %v", what, HangTimeout)
		panic("unreachable")
	}
}

// Think pauses for a random time, as clients of a load do between two requests: so they meet in ever new orders.
func Think(longest time.Duration) {
	time.Sleep(rand.N(longest + 1)) // real time: nothing is waited for
}

// Repeat does something again and again, until stop is closed.
func Repeat(stop <-chan struct{}, pause time.Duration, do func()) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		do()
		time.Sleep(pause) // real time: between two requests
	}
}

// AtOnce runs subtests that mostly wait, all at the same time, however few processors there are.
func AtOnce(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	var all sync.WaitGroup
	for name, test := range tests {
		all.Go(func() { t.Run(name, test) })
	}
	all.Wait()
}

// Later returns at once, and what do returns when that is done.
func Later(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}
