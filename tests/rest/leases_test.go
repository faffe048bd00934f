package rest_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/locket-service/locket/tests/harness"
)

// overdue is when a claim with a TTL of shortLease has long run out, but not been swept.
const (
	shortLease = 0.1 // seconds
	overdue    = 150 * time.Millisecond
)

var contractLeases = []sentence{
	{"An active claim past its TTL that nobody has taken may be renewed by PATCH", renewsOverdue("PATCH", object{"ttl": 60})},
	{"An active claim past its TTL that nobody has taken may be renewed by PUT", renewsOverdue("PUT", object{"ttl": 60, "status": "active"})},
	{"A claim that is due is taken over at once by the next POST", func(t *testing.T, s *restServer) {
		first := dueClaim(t, s)
		next := s.post(t, object{"resource": first.Resource, "ttl": 60}).is(t, http.StatusCreated).claim(t)
		if s.stands(t, first.ID, "expired"); *next.Token <= *first.Token {
			t.Errorf("token %d after %d", *next.Token, *first.Token)
		}
		s.patch(t, first.ID, object{"ttl": 60}).refuses(t, http.StatusBadRequest, "message", "status")
	}},
	{"A claim that is due is taken over at once by one that waits", func(t *testing.T, s *restServer) {
		late, answered := takeOver(t, s, t.Name())
		harness.AtMost(t, "from the deadline to the next claim", late, 100*time.Millisecond)
		harness.AtMost(t, "from the deadline to the answer", answered, 200*time.Millisecond)
	}},
	{"The ttl counts from the moment that the claim is active", func(t *testing.T, s *restServer) {
		holder := s.hold(t, t.Name())
		c := s.post(t, object{"resource": t.Name(), "ttl": 600}).is(t, http.StatusAccepted).claim(t)
		time.Sleep(overdue)
		s.end(t, holder.ID, "released")
		if is := s.stands(t, c.ID, "active"); *is.TTL+*is.ActiveDuration < 600-0.001 {
			t.Errorf("active for %v, %v are left of 600", *is.ActiveDuration, *is.TTL)
		}
	}},
	{"A claim that waits does not expire", func(t *testing.T, s *restServer) {
		s.hold(t, t.Name())
		c := s.post(t, object{"resource": t.Name(), "ttl": 0.01}).is(t, http.StatusAccepted).claim(t)
		time.Sleep(overdue)
		s.stands(t, c.ID, "waiting")
	}},
	{"Renewals keep a claim for longer than its first ttl", func(t *testing.T, s *restServer) {
		const ttl = 15 // seconds: a renewal comes in time on a busy machine too
		c, other := s.holdFor(t, t.Name(), ttl), s.holdFor(t, t.Name()+"/other", ttl)
		harness.Eventually(t, func() error {
			s.patch(t, c.ID, object{"ttl": ttl}).is(t, http.StatusOK)
			if is := s.get(t, other.ID); is.Status != "expired" {
				return fmt.Errorf("the claim that is not renewed is %s", is.Status)
			}
			return nil
		})
		if is := s.stands(t, c.ID, "active"); *is.Token != *c.Token || *is.ActiveDuration < ttl {
			t.Errorf("got %v", is)
		}
	}},
}

// takeOver has a claim wait for a holder that is not renewed, and returns how long after the holder's deadline it
// became active, and its client knew.
func takeOver(t *testing.T, s *restServer, resource string) (late, answered time.Duration) {
	t.Helper()
	const lease = 300 * time.Millisecond
	first := s.holdFor(t, resource, lease.Seconds())
	waiter := s.post(t, object{"resource": resource, "ttl": 60}, "Prefer", "wait=60")
	next := waiter.is(t, http.StatusCreated).claim(t)
	late = next.since(t, "active").Sub(first.since(t, "active").Add(lease))
	if late < 0 {
		t.Errorf("taken over %v before the deadline", -late)
	}
	expired := s.stands(t, first.ID, "expired")
	if !slices.Equal(expired.statuses(), []string{"waiting", "active", "expired"}) || *next.Token <= *first.Token {
		t.Errorf("the first has been %v; token %d after %d", expired.statuses(), *next.Token, *first.Token)
	}
	return late, waiter.took - lease
}

// dueClaim makes a claim that is past its TTL, and that nobody has taken away yet.
func dueClaim(t *testing.T, s *restServer) (c restClaim) {
	t.Helper()
	harness.Eventually(t, func() error {
		c = s.holdFor(t, fmt.Sprint(t.Name(), time.Now().UnixNano()), shortLease)
		time.Sleep(overdue) // real time: it is due then, and not swept most often
		if seen := s.get(t, c.ID); seen.Status != "active" || *seen.TTL > 0 {
			return fmt.Errorf("it is %s", seen.Status)
		}
		return nil
	})
	return c
}

// renewsOverdue renews a claim that is due. If the sweep has expired the claim before, it tries
// again with another one.
func renewsOverdue(method string, body object) func(t *testing.T, s *restServer) {
	return func(t *testing.T, s *restServer) {
		harness.Eventually(t, func() error {
			c := dueClaim(t, s)
			renewed := s.do(t, method, claimPath(c.ID), body)
			if renewed.code != http.StatusOK && s.get(t, c.ID).Status == "expired" {
				return errors.New("it was swept before it was renewed")
			}
			is := renewed.is(t, http.StatusOK).claim(t)
			if about(t, "ttl", is.TTL, 60); *is.Token != *c.Token {
				t.Errorf("first token %d, then %d", *c.Token, *is.Token)
			}
			return nil
		})
	}
}

var contractPutDelete = []sentence{
	{"PUT is PATCH that also takes ttl together with status=active", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		both := s.put(t, c.ID, object{"ttl": 1234.5, "status": "active"}).is(t, http.StatusOK).claim(t)
		about(t, "ttl", both.TTL, 1234.5)
		if *both.Token != *c.Token {
			t.Error("the token has changed")
		}
		about(t, "ttl", s.put(t, c.ID, object{"ttl": 100}).is(t, http.StatusOK).claim(t).TTL, 100)
		s.put(t, c.ID, object{"status": "active"}).is(t, http.StatusOK)
		s.put(t, c.ID, object{"status": "released"}).is(t, http.StatusNoContent)
		s.stands(t, c.ID, "released")
	}},
	{"PUT refuses what PATCH does, and a ttl with a final status", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		s.put(t, c.ID, object{}).is(t, http.StatusBadRequest)
		s.put(t, c.ID, object{"ttl": 1, "status": "released"}).refuses(t, http.StatusBadRequest, "ttl")
		s.put(t, c.ID, object{"ttl": 1, "status": "expired"}).refuses(t, http.StatusBadRequest, "status")
		s.put(t, c.ID, object{"ttl": -1, "status": "active"}).refuses(t, http.StatusBadRequest, "ttl")
		s.put(t, c.ID, object{"ttl": 1, "status": "active", "resource": t.Name()}).refuses(t, http.StatusBadRequest, "resource")
		about(t, "ttl", s.stands(t, c.ID, "active").TTL, 600)
	}},
	{"DELETE gives a claim up: an active one is released, a waiting one withdrawn", func(t *testing.T, s *restServer) {
		holder, next, last := s.hold(t, t.Name()), s.queue(t, t.Name()), s.queue(t, t.Name())
		s.do(t, "DELETE", claimPath(next.ID), nil).is(t, http.StatusNoContent)
		s.stands(t, next.ID, "withdrawn")
		s.do(t, "DELETE", claimPath(holder.ID), nil).is(t, http.StatusNoContent)
		s.stands(t, holder.ID, "released")
		s.stands(t, last.ID, "active")
	}},
	{"DELETE leaves a claim that has ended as it is, however often", func(t *testing.T, s *restServer) {
		for _, status := range []string{"aborted", "expired", "released", "revoked", "withdrawn"} {
			c := inStatus(t, s, status)
			for range 2 {
				s.do(t, "DELETE", claimPath(c.ID), nil).is(t, http.StatusNoContent)
			}
			if is := s.stands(t, c.ID, status); is.Version != c.Version {
				t.Errorf("the version of a claim that is %s has changed", status)
			}
		}
	}},
	{"A final status may come with a reason, which the claim keeps", func(t *testing.T, s *restServer) {
		a, b := s.hold(t, t.Name()), s.queue(t, t.Name())
		s.patch(t, b.ID, object{"status": "aborted", "reason": "no disk ☃"}).is(t, http.StatusNoContent)
		s.do(t, "DELETE", claimPath(a.ID)+"?reason=all+is+done", nil).is(t, http.StatusNoContent)
		for id, want := range map[string]string{a.ID: "all is done", b.ID: "no disk ☃"} {
			if reason := s.get(t, id).Reason; !ptrEqual(reason, want) {
				t.Errorf("the reason is %s, want %s", show(reason), want)
			}
		}
		s.do(t, "DELETE", claimPath(a.ID)+"?colour=red", nil).refuses(t, http.StatusBadRequest, "colour")
	}},
}
