package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/tests/harness"
)

// TestRESTRequirements shows that every sentence of the REST requirements is true.
func TestRESTRequirements(t *testing.T) {
	t.Parallel()
	harness.OnEachEngine(t, testRequirements)
	t.Run("three nodes", func(t *testing.T) {
		t.Parallel()
		testRequirements(t, harness.ThreeNodes(t))
	})
}

func testRequirements(t *testing.T, database string) {
	t.Helper()
	runSections(t, database, []section{
		{"Contention", requiredContention},
		{"Claim Statuses", requiredStatuses},
		{"Performance", requiredPerformance},
		{"Authentication & Authorization", requiredAuthentication},
		{"Miscellaneous Details", requiredDetails},
		{"HTTP Requests", requiredRequests},
		{"POST", requiredPost},
		{"PATCH", requiredPatch},
		{"GET list", requiredList},
		{"GET", requiredGet},
	})
}

// cancelled are the states that the REST requirements call cancelled.
var cancelled = []string{"aborted", "revoked", "withdrawn"}

var requiredContention = []sentence{
	{"A queue of waiting claims should be kept for each resource", func(t *testing.T, s *restServer) {
		a, b := t.Name()+"/a", t.Name()+"/b"
		s.hold(t, a)
		s.hold(t, b)
		for place := range 3 {
			for _, resource := range []string{a, b} {
				if c := s.queue(t, resource); c.Status != "waiting" || !ptrEqual(c.Position, place+1) {
					t.Errorf("the claim is %s, at %s; want it to wait at %d", c.Status, show(c.Position), place+1)
				}
			}
		}
	}},
	{"When a claim loses its active status the next claim in the queue should be changed from waiting to active", func(t *testing.T, s *restServer) {
		for way, end := range waysToEnd {
			resource := t.Name() + "/" + way
			holder, next, last := s.hold(t, resource), s.queue(t, resource), s.queue(t, resource)
			end(t, s, holder.ID)
			if c := s.becomes(t, next.ID, "active"); !slices.Equal(c.statuses(), []string{"waiting", "active"}) {
				t.Errorf("%s: the next has been %v", way, c.statuses())
			}
			if c := s.stands(t, last.ID, "waiting"); !ptrEqual(c.Position, 1) {
				t.Errorf("%s: the one after the next is at %s", way, show(c.Position))
			}
		}
	}},
	{"Claim status should be updated by the server from active to expired after that claim's ttl is less than 0", func(t *testing.T, s *restServer) {
		alone := s.holdFor(t, t.Name(), 0.2)
		contended := s.hold(t, t.Name()+"/contended")
		waiter := s.post(t, object{"resource": t.Name() + "/contended", "ttl": 0.2}).is(t, http.StatusAccepted).claim(t)
		s.patch(t, contended.ID, object{"ttl": 0.2}).is(t, http.StatusOK)
		for _, id := range []string{alone.ID, contended.ID, waiter.ID} {
			c := s.becomes(t, id, "expired")
			if !slices.Equal(c.statuses(), []string{"waiting", "active", "expired"}) {
				t.Errorf("it has been %v", c.statuses())
			}
			if held := c.since(t, "expired").Sub(c.since(t, "active")); held < 200*time.Millisecond {
				t.Errorf("it expired after %v already", held)
			}
		}
	}},
}

// waysToEnd are the ways for an active claim to lose its status.
var waysToEnd = map[string]func(t *testing.T, s *restServer, id string){
	"released":  func(t *testing.T, s *restServer, id string) { s.end(t, id, "released") },
	"aborted":   func(t *testing.T, s *restServer, id string) { s.end(t, id, "aborted") },
	"withdrawn": func(t *testing.T, s *restServer, id string) { s.end(t, id, "withdrawn") },
	"revoked":   func(t *testing.T, s *restServer, id string) { s.end(t, id, "revoked") },
	"expired": func(t *testing.T, s *restServer, id string) {
		s.patch(t, id, object{"ttl": 0.1}).is(t, http.StatusOK)
	},
}

var requiredStatuses = []sentence{
	{"There are seven states a claim can be in at a particular time", func(t *testing.T, s *restServer) {
		for _, status := range []string{"aborted", "active", "expired", "released", "revoked", "waiting", "withdrawn"} {
			c := inStatus(t, s, status)
			if found := s.list(t, "status="+status+"&resource="+url.QueryEscape(c.Resource)); !slices.Contains(idsOf(found), c.ID) {
				t.Errorf("%s is not listed as %s", c.ID, status)
			}
			if last := c.statuses()[len(c.StatusHistory)-1]; last != status {
				t.Errorf("the history ends with %s, not %s", last, status)
			}
		}
		for _, status := range []string{"new", "Active", "", "done"} {
			s.do(t, "GET", "/v1/claims/?status="+status, nil).refuses(t, http.StatusBadRequest, "status")
		}
	}},
	{"aborted: the client needed to abandon its claim regardless of whether it was active or waiting", endsFromBoth("aborted")},
	{"active: this claim is the current owner of the specified resource", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		s.queue(t, t.Name())
		if holders := s.list(t, "status=active&resource="+url.QueryEscape(t.Name())); !slices.Equal(idsOf(holders), []string{c.ID}) {
			t.Errorf("active are %v, not %s alone", idsOf(holders), c.ID)
		}
	}},
	{"expired: the client did not update or release the claim before its ttl expired; ownership is likely to have been passed on", func(t *testing.T, s *restServer) {
		c, next := s.hold(t, t.Name()), s.queue(t, t.Name())
		s.patch(t, c.ID, object{"ttl": 0.1}).is(t, http.StatusOK)
		passed, expired := s.becomes(t, next.ID, "active"), s.stands(t, c.ID, "expired")
		if passed.since(t, "active").Before(expired.since(t, "expired")) {
			t.Errorf("passed on %v before %v", passed.StatusHistory, expired.StatusHistory)
		}
	}},
	{"released: the claim owned the resource for some time and gave up ownership under normal conditions", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		s.end(t, c.ID, "released")
		if c := s.stands(t, c.ID, "released"); !slices.Equal(c.statuses(), []string{"waiting", "active", "released"}) || c.ActiveDuration == nil {
			t.Errorf("it has been %v, active for %s", c.statuses(), show(c.ActiveDuration))
		}
	}},
	{"revoked: the claim was cancelled by an administrator or monitoring process", endsFromBoth("revoked")},
	{"waiting: this claim is in the queue to become the owner of its resource", func(t *testing.T, s *restServer) {
		holder := s.hold(t, t.Name())
		c := s.queue(t, t.Name())
		s.stands(t, c.ID, "waiting")
		s.end(t, holder.ID, "released")
		s.stands(t, c.ID, "active")
	}},
	{"withdrawn: the client decided to withdraw its claim for the resource", endsFromBoth("withdrawn")},
}

// endsFromBoth shows that active and waiting claims can get a status.
func endsFromBoth(status string) func(t *testing.T, s *restServer) {
	return func(t *testing.T, s *restServer) {
		holder, waiter := s.hold(t, t.Name()), s.queue(t, t.Name())
		s.end(t, waiter.ID, status)
		s.end(t, holder.ID, status)
		if c := s.stands(t, waiter.ID, status); !slices.Equal(c.statuses(), []string{"waiting", status}) {
			t.Errorf("the one that waited has been %v", c.statuses())
		}
		if c := s.stands(t, holder.ID, status); !slices.Equal(c.statuses(), []string{"waiting", "active", status}) {
			t.Errorf("the one that was active has been %v", c.statuses())
		}
	}
}

// inStatus makes a claim with a status, on a resource of its own.
func inStatus(t *testing.T, s *restServer, status string) restClaim {
	t.Helper()
	resource := fmt.Sprintf("%s/%s/%d", t.Name(), status, time.Now().UnixNano())
	switch status {
	case "waiting":
		s.hold(t, resource)
		return s.queue(t, resource)
	case "active":
		return s.hold(t, resource)
	case "expired":
		c := s.holdFor(t, resource, 0)
		s.post(t, object{"resource": resource, "ttl": 600}) // takes it over, or waits until it is due
		return s.becomes(t, c.ID, status)
	default:
		c := s.hold(t, resource)
		s.end(t, c.ID, status)
		return s.stands(t, c.ID, status)
	}
}

var requiredPerformance = []sentence{
	{"Should support N requests per second: ~100 PATCH requests for status from waiting to active, among others", func(t *testing.T, s *restServer) {
		activate(t, s, t.Name())
	}},
}

// activate has ten clients process a queue each: a client releases the first claim and activates the next.
func activate(t *testing.T, s *restServer, name string) {
	t.Helper()
	const clients, steps = 10, 10
	queues := make([][]restClaim, clients)
	for i := range queues {
		resource := fmt.Sprintf("%s/%d", name, i)
		queues[i] = append(queues[i], s.hold(t, resource))
		for range steps {
			queues[i] = append(queues[i], s.queue(t, resource))
		}
	}
	var group sync.WaitGroup
	start := time.Now()
	for _, claims := range queues {
		group.Go(func() {
			for i := range steps {
				released := s.try(t.Context(), "PATCH", claims[i].URL, object{"status": "released"})
				activated := s.try(t.Context(), "PATCH", claims[i+1].URL, object{"status": "active"})
				if released.code != http.StatusNoContent || activated.code != http.StatusOK {
					t.Errorf("released: %d, %v; activated: %d, %v", released.code, released.err, activated.code, activated.err)
				}
			}
		})
	}
	group.Wait()
	harness.AtMost(t, "100 activations, and as many releases,", time.Since(start), time.Second)
}

var requiredAuthentication = []sentence{
	{"Should require minimal effort to integrate with standard auth systems like OAuth and Shibboleth", func(t *testing.T, s *restServer) {
		guard := httptest.NewServer(guarded(t, s))
		t.Cleanup(guard.Close)
		address, body := guard.URL+"/v1/claims/", object{"resource": t.Name(), "ttl": 60}
		s.do(t, "POST", address, body).is(t, http.StatusUnauthorized)
		created := s.do(t, "POST", address, body, "Authorization", "Bearer secret").is(t, http.StatusCreated)
		location := created.header.Get("Location")
		if !strings.HasPrefix(location, address) {
			t.Errorf("Location %q leads past the guard at %q", location, address)
		}
		s.do(t, "GET", location, nil).is(t, http.StatusUnauthorized)
		s.do(t, "GET", location, nil, "Authorization", "Bearer secret").is(t, http.StatusOK)
	}},
}

// guarded is an authenticating proxy: it refuses requests without a token.
func guarded(t *testing.T, s *restServer) http.Handler {
	t.Helper()
	target, err := url.Parse(s.url)
	harness.Must(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
		r.SetXForwarded()
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// float is how a number of seconds is written: never as a whole number.
var float = regexp.MustCompile(`^-?\d+\.\d+$`)

var requiredDetails = []sentence{
	{"times should be in seconds as floats (ttl, active_duration, waiting_duration)", func(t *testing.T, s *restServer) {
		holder := s.post(t, object{"resource": t.Name(), "ttl": 60}).is(t, http.StatusCreated)
		waiter := s.queue(t, t.Name())
		long := s.post(t, object{"resource": t.Name() + "/long", "ttl": 3_000_000_000}).is(t, http.StatusCreated)
		for _, a := range []reply{
			holder, long, s.patch(t, holder.claim(t).ID, object{"ttl": 60}),
			s.do(t, "GET", claimPath(holder.claim(t).ID), nil), s.do(t, "GET", claimPath(waiter.ID), nil),
		} {
			members := a.members(t)
			for _, name := range []string{"ttl", "active_duration", "waiting_duration"} {
				text := string(members[name])
				if waits := string(members["status"]) == `"waiting"`; !float.MatchString(text) && (!waits || text != "null") {
					t.Errorf("%s: %s is %s", a.request, name, text)
				}
			}
		}
		s.holdFor(t, t.Name()+"/fraction", 0.25)
		about(t, "ttl", s.holdFor(t, t.Name()+"/fraction of much", 5000.75).TTL, 5000.75)
	}},
}

var requiredRequests = []sentence{
	{"Should specify the headers Content-Type: application/json, Accepts: application/json", func(t *testing.T, s *restServer) {
		headers := []string{"Content-Type", "application/json", "Accepts", "application/json", "Accept", "application/json"}
		created := s.post(t, object{"resource": t.Name(), "ttl": 60}, headers...).is(t, http.StatusCreated)
		got := s.do(t, "GET", claimPath(created.claim(t).ID), nil, headers...).is(t, http.StatusOK)
		listed := s.do(t, "GET", "/v1/claims/", nil, headers...).is(t, http.StatusOK)
		missing := s.do(t, "GET", claimPath("nosuch"), nil, headers...).is(t, http.StatusNotFound)
		for _, a := range []reply{created, got, listed, missing} {
			if contentType := a.header.Get("Content-Type"); contentType != "application/json" || !json.Valid(a.body) {
				t.Errorf("%s: Content-Type %q, %s", a.request, contentType, cut(a.body))
			}
		}
	}},
}
