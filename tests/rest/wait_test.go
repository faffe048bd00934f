package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/tests/harness"
)

// waitingCall is a request that can wait until its claim does not, and the status codes
// that it then gets.
type waitingCall struct {
	name   string
	send   func(ctx context.Context, s *restServer, id string, header ...string) <-chan reply
	active int // the claim has become active
	timeUp int // it still waits
	ended  int // it has ended
}

var waitingCalls = []waitingCall{
	{"POST", func(ctx context.Context, s *restServer, id string, header ...string) <-chan reply {
		body := object{"resource": "of " + id, "ttl": 60, "id": id} // the claim exists, this repeats its request
		return s.send(ctx, "POST", "/v1/claims/", body, header...)
	}, http.StatusCreated, http.StatusAccepted, http.StatusOK},
	{"PATCH", func(ctx context.Context, s *restServer, id string, header ...string) <-chan reply {
		return s.send(ctx, "PATCH", claimPath(id), object{"status": "active"}, header...)
	}, http.StatusOK, http.StatusConflict, http.StatusBadRequest},
	{"PUT", func(ctx context.Context, s *restServer, id string, header ...string) <-chan reply {
		return s.send(ctx, "PUT", claimPath(id), object{"status": "active"}, header...)
	}, http.StatusOK, http.StatusConflict, http.StatusBadRequest},
	{"PUT with ttl", func(ctx context.Context, s *restServer, id string, header ...string) <-chan reply {
		return s.send(ctx, "PUT", claimPath(id), object{"status": "active", "ttl": 60}, header...)
	}, http.StatusOK, http.StatusConflict, http.StatusBadRequest},
	{"GET", func(ctx context.Context, s *restServer, id string, header ...string) <-chan reply {
		return s.send(ctx, "GET", claimPath(id), nil, header...)
	}, http.StatusOK, http.StatusOK, http.StatusOK},
}

// line makes a holder and a claim that waits for it, and returns their ids.
func (s *restServer) line(t *testing.T, name string) (holder, waiter string) {
	t.Helper()
	waiter = strings.NewReplacer("/", ".", " ", "_").Replace(t.Name() + "-" + name)
	holder = s.hold(t, "of "+waiter).ID
	body := object{"resource": "of " + waiter, "ttl": 60, "id": waiter}
	s.post(t, body).is(t, http.StatusAccepted)
	return holder, waiter
}

// prompt bounds the time until an answer that need not wait any longer. It is long because the machine
// may be busy.
const prompt = harness.HangTimeout

// TestRESTWait shows what Prefer: wait does to the requests that can wait.
func TestRESTWait(t *testing.T) {
	t.Parallel()
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		s := startREST(t, database)
		for name, test := range map[string]func(*testing.T, *restServer, waitingCall){
			"active": waitUntilActive, "final": waitUntilFinal, "no need to wait": noWait, "without the preference": withoutPreference,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, call := range waitingCalls {
					t.Run(call.name, func(t *testing.T) { test(t, s, call) })
				}
			})
		}
		t.Run("time is up", func(t *testing.T) {
			t.Parallel()
			waitUntilTimeIsUp(t, s)
		})
		t.Run("preferences", func(t *testing.T) { preferences(t, s) })
		t.Run("requests that cannot wait", func(t *testing.T) { cannotWait(t, s) })
	})
}

// The answer comes as soon as the claim is active.
func waitUntilActive(t *testing.T, s *restServer, call waitingCall) {
	holder, waiter := s.line(t, call.name)
	awaited := call.send(t.Context(), s, waiter, "Prefer", "wait=60")
	stillWaits(t, awaited)
	released := time.Now()
	s.end(t, holder, "released")
	a := <-awaited
	answered(t, a, call.active, "active", "wait=60")
	harness.LogTime(t, "from the release to the answer", released)
}

// The answer comes as soon as the claim has ended.
func waitUntilFinal(t *testing.T, s *restServer, call waitingCall) {
	_, waiter := s.line(t, call.name)
	awaited := call.send(t.Context(), s, waiter, "Prefer", "wait=60")
	stillWaits(t, awaited)
	s.end(t, waiter, "revoked")
	a := <-awaited
	if a.took > prompt {
		t.Errorf("answered after %v", a.took)
	}
	answered(t, a, call.ended, "revoked", "wait=60")
}

// When the time is up the answer equals the answer without a wait.
func waitUntilTimeIsUp(t *testing.T, s *restServer) {
	var waiters []string
	var awaited []<-chan reply
	for _, call := range waitingCalls {
		_, waiter := s.line(t, call.name)
		waiters, awaited = append(waiters, waiter), append(awaited, call.send(t.Context(), s, waiter, "Prefer", "wait=1"))
	}
	for i, call := range waitingCalls {
		a := <-awaited[i]
		t.Run(call.name, func(t *testing.T) {
			if a.took < time.Second || a.took > time.Second+prompt {
				t.Errorf("answered after %v", a.took)
			}
			answered(t, a, call.timeUp, "waiting", "wait=1")
			if c := s.stands(t, waiters[i], "waiting"); !ptrEqual(c.Position, 1) {
				t.Errorf("afterwards it is at %s", show(c.Position))
			}
		})
	}
}

// A claim that does not wait is answered at once, and the preference counts as applied.
func noWait(t *testing.T, s *restServer, call waitingCall) {
	holder, waiter := s.line(t, call.name)
	s.end(t, holder, "released")
	a := <-call.send(t.Context(), s, waiter, "Prefer", "wait=60")
	if a.took > prompt {
		t.Errorf("answered after %v", a.took)
	}
	answered(t, a, call.active, "active", "wait=60")
}

// Without a valid preference nothing waits, and no header says so.
func withoutPreference(t *testing.T, s *restServer, call waitingCall) {
	_, waiter := s.line(t, call.name)
	for _, header := range [][]string{
		nil,
		{"Prefer", ""},
		{"Prefer", "wait"},
		{"Prefer", "wait="},
		{"Prefer", "wait=soon"},
		{"Prefer", "wait=-1"},
		{"Prefer", "wait=1.5"},
		{"Prefer", "respond-async"},
		{"Prefer", "await=5"},
		{"Prefer", "wait:5"},
		{"Preferred", "wait=5"},
	} {
		a := <-call.send(t.Context(), s, waiter, header...)
		if a.took > prompt {
			t.Errorf("%q: answered after %v", header, a.took)
		}
		answered(t, a, call.timeUp, "waiting", "")
	}
}

// stillWaits fails the test if there is an answer already.
func stillWaits(t *testing.T, awaited <-chan reply) {
	t.Helper()
	select {
	case a := <-awaited:
		t.Fatalf("%s was answered: %d %s, %v", a.request, a.code, a.body, a.err)
	case <-time.After(100 * time.Millisecond): // real time: it waits, at any speed
	}
}

// answered checks the answer of a call about a claim that has a status.
func answered(t *testing.T, a reply, code int, status, applied string) {
	t.Helper()
	members := a.is(t, code).members(t)
	if text := string(members["status"]); text != `"`+status+`"` && code != http.StatusConflict {
		t.Errorf("%s: the status is %s, want %s", a.request, text, status)
	}
	if got := a.header.Get("Preference-Applied"); got != applied {
		t.Errorf("%s: %d with Preference-Applied %q, want %q", a.request, a.code, got, applied)
	}
}

// preferences shows which forms of the preference are understood.
func preferences(t *testing.T, s *restServer) {
	c := s.hold(t, t.Name())
	for preference, applied := range map[string]string{
		"wait=10": "wait=10", "WAIT=10": "wait=10", "wait = 10": "wait=10", `wait="10"`: "wait=10",
		"respond-async, wait=10": "wait=10", "wait=10, return=minimal": "wait=10", "wait=10; a=b": "wait=10",
		"wait=3600": "wait=3600", "wait=3601": "wait=3600", "wait=1000000": "wait=3600",
	} {
		a := s.do(t, "GET", claimPath(c.ID), nil, "Prefer", preference).is(t, http.StatusOK)
		if got := a.header.Get("Preference-Applied"); got != applied {
			t.Errorf("%q: %q, want %q", preference, got, applied)
		}
	}
}

// cannotWait shows that the preference means nothing to other requests.
func cannotWait(t *testing.T, s *restServer) {
	_, waiter := s.line(t, "w")
	active := s.hold(t, t.Name())
	wait := []string{"Prefer", "wait=60"}
	for _, a := range []reply{
		s.do(t, "GET", "/v1/claims/?limit=1", nil, wait...),
		s.do(t, "GET", "/v1/resources/of%20"+waiter, nil, wait...),
		s.do(t, "GET", "/v1/locks/", nil, wait...),
		s.patch(t, active.ID, object{"ttl": 60}, wait...),
		s.patch(t, waiter, object{"ttl": 60}, wait...),
		s.do(t, "GET", claimPath("nosuch"), nil, wait...),
		s.do(t, "DELETE", claimPath(waiter), nil, wait...),
	} {
		if applied := a.header.Get("Preference-Applied"); applied != "" || a.took > prompt {
			t.Errorf("%s: Preference-Applied %q after %v", a.request, applied, a.took)
		}
	}
}

// A client that closes its connection ends its wait at once, and its claim stays in the queue. A server
// that stops sends the ordinary answer to waiting clients, and ends in time.
func TestRESTWaitEnds(t *testing.T) {
	t.Parallel()
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		s := startREST(t, database, "--shutdown-timeout", "1m") // a busy machine may take more than ten seconds for the answers
		_, waiter := s.line(t, "w")
		hungUp, hangUp := context.WithCancel(t.Context())
		waitInAllWays(t, s, hungUp, waiter)
		hangUp()
		harness.Eventually(t, func() error { return harness.WantMetric(t, s.Locket, "locket_waiters 0") })
		s.stands(t, waiter, "waiting")

		awaited := waitInAllWays(t, s, t.Context(), waiter)
		code, took := s.Terminate()
		if code != 0 || took > prompt {
			t.Errorf("exit code %d after %v", code, took)
		}
		t.Logf("ended after %v", took)
		for i, call := range waitingCalls {
			a := <-awaited[i]
			if a.is(t, call.timeUp); a.header.Get("Preference-Applied") != "" {
				t.Errorf("%s: Preference-Applied %q", a.request, a.header.Get("Preference-Applied"))
			}
		}
	})
}

// waitInAllWays sends requests that wait for one claim, and returns when all do.
func waitInAllWays(t *testing.T, s *restServer, ctx context.Context, waiter string) (awaited []<-chan reply) {
	t.Helper()
	for _, call := range waitingCalls {
		awaited = append(awaited, call.send(ctx, s, waiter, "Prefer", "wait=300"))
	}
	harness.Eventually(t, func() error {
		return harness.WantMetric(t, s.Locket, fmt.Sprintf("locket_waiters %d", len(waitingCalls)))
	})
	return awaited
}

// A wait may be longer than any other request, and than the server waits for one to be read
// or answered.
func TestRESTLongWait(t *testing.T) {
	t.Parallel()
	const long = 33 * time.Second // the server reads a request for 30 s
	var group sync.WaitGroup
	for name, database := range harness.Engines() {
		s := startREST(t, database(t))
		var holders []string
		for _, call := range waitingCalls {
			holder, waiter := s.line(t, call.name+name)
			holders = append(holders, holder)
			group.Go(func() {
				a := <-call.send(t.Context(), s, waiter, "Prefer", "wait=3600")
				longAnswered(t, name, a, call.active, long)
			})
		}
		harness.Eventually(t, func() error {
			return harness.WantMetric(t, s.Locket, fmt.Sprintf("locket_waiters %d", len(waitingCalls)))
		})
		for _, call := range waitingCalls {
			_, other := s.line(t, call.name+name+"other")
			group.Go(func() {
				a := <-call.send(t.Context(), s, other, "Prefer", fmt.Sprintf("wait=%d", int(long.Seconds())))
				longAnswered(t, name, a, call.timeUp, long)
			})
		}
		group.Go(func() {
			time.Sleep(long) // real time: how long the others wait
			for _, holder := range holders {
				if a := s.try(t.Context(), "PATCH", claimPath(holder), object{"status": "released"}); a.code != http.StatusNoContent {
					t.Errorf("%s: %d %s, %v", name, a.code, a.body, a.err)
				}
			}
		})
	}
	group.Wait()
}

func longAnswered(t *testing.T, engine string, a reply, code int, long time.Duration) {
	t.Helper()
	if a.err != nil || a.code != code || a.took < long || a.took > long+2*prompt {
		t.Errorf("%s, %s: %d %s, %v after %v; want %d after %v", engine, a.request, a.code, a.body, a.err, a.took, code, long)
	}
}
