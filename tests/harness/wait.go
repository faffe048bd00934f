package harness

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Must ends the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// HangTimeout is how long a test waits for something before it fails. It is long, so that a test fails only if something hangs, and not
// because the machine is busy.
const HangTimeout = 2 * time.Minute

// Eventually waits until check returns nil.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	for begin := time.Now(); ; {
		err := check()
		if err == nil {
			return
		}
		waited := time.Since(begin) // real time: the time since the wait began
		if waited > HangTimeout {
			t.Fatalf("not within %v: %v", HangTimeout, err)
		}
		time.Sleep(5*time.Millisecond + waited/20) // real time: longer waits are checked less often
	}
}

// Until waits until a condition is true.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	Eventually(t, func() error {
		if !is() {
			return missing(what)
		}
		return nil
	})
}

// Answered repeats a request until it is carried out or refused for good. An overloaded server or database may answer
// Unavailable; the request may then be sent again. It is for tests of answers that need not come at once.
func Answered[T any](t testing.TB, ask func() (T, error)) (answer T, err error) {
	t.Helper()
	Eventually(t, func() error {
		answer, err = ask()
		if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
			return err
		}
		return nil
	})
	return answer, err
}

// Await returns the next value of a channel, or the zero value when it is closed.
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

// Think pauses for a random time, as clients of a load do between two requests, so that the order of requests varies.
func Think(longest time.Duration) {
	time.Sleep(rand.N(longest + 1)) // real time: nothing is waited for
}

// Repeat calls a function repeatedly until stop is closed.
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

// AtOnce runs subtests at the same time, however few processors there are. It is for subtests that mostly wait.
func AtOnce(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	var all sync.WaitGroup
	for name, test := range tests {
		all.Go(func() { t.Run(name, test) })
	}
	all.Wait()
}

// Later calls a function in another goroutine, and returns a channel for its error.
func Later(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}
