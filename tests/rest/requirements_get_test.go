package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"
)

var requiredList = []sentence{
	{"Filters should be specified using query strings", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		s.hold(t, t.Name()+"/other")
		query := "resource=" + url.QueryEscape(t.Name())
		if found := s.list(t, query+"&status=active&minimum_ttl=10"); !slices.Equal(idsOf(found), []string{c.ID}) {
			t.Errorf("found %v", idsOf(found))
		}
		if found := s.list(t, query+"&status=waiting&minimum_ttl=10"); len(found) > 0 {
			t.Errorf("found %v, which pass one filter of three", idsOf(found))
		}
		for _, name := range []string{"colour", "Resource", "min_ttl", "user_data", "id"} {
			s.do(t, "GET", "/v1/claims/?"+name+"=1", nil).refuses(t, http.StatusBadRequest, name)
		}
	}},
	{"Allowed filters: minimum_ and maximum_ of active_duration and waiting_duration", func(t *testing.T, s *restServer) {
		ended := endedClaims(t, s)
		for _, bound := range ended {
			for _, off := range []float64{-1e-6, 0, 1e-6} {
				checkDurations(t, s, ended, "active_duration", bound, off, func(c restClaim) *float64 { return c.ActiveDuration })
				checkDurations(t, s, ended, "waiting_duration", bound, off, func(c restClaim) *float64 { return &c.WaitingDuration })
			}
		}
	}},
	{"Allowed filters: durations of claims that have not ended", func(t *testing.T, s *restServer) {
		holder, waiter := s.hold(t, t.Name()), s.queue(t, t.Name())
		time.Sleep(20 * time.Millisecond)
		for _, test := range []filtered{
			{"minimum_active_duration=0.01", []string{holder.ID}},
			{"minimum_active_duration=3600", nil},
			{"maximum_active_duration=3600", []string{holder.ID}},
			{"minimum_waiting_duration=0.01", []string{waiter.ID}},
			{"minimum_waiting_duration=3600", nil},
			{"maximum_waiting_duration=3600", []string{holder.ID, waiter.ID}},
		} {
			found := s.list(t, test.query+"&resource="+url.QueryEscape(t.Name()))
			if !slices.Equal(idsOf(found), append([]string{}, test.want...)) {
				t.Errorf("%s: %v, want %v", test.query, idsOf(found), test.want)
			}
		}
	}},
	{"Allowed filters: minimum_ttl, maximum_ttl", func(t *testing.T, s *restServer) {
		near, far := s.own(t, "near", 1000), s.own(t, "far", 10_000)
		s.own(t, "far", 5000) // waits
		s.end(t, s.own(t, "ended", 5000).ID, "released")
		checkFilters(t, s, t.Name(), []filtered{
			{"minimum_ttl=5000", []string{far.ID}},
			{"maximum_ttl=5000", []string{near.ID}},
			{"minimum_ttl=0", []string{near.ID, far.ID}},
			{"maximum_ttl=1e6", []string{near.ID, far.ID}},
			{"minimum_ttl=500&maximum_ttl=10000.5", []string{near.ID, far.ID}},
			{"minimum_ttl=10001", nil},
			{"maximum_ttl=0", nil},
		})
	}},
	{"Allowed filters: minimum_created, maximum_created", func(t *testing.T, s *restServer) {
		var made []restClaim
		for i := range 3 {
			made = append(made, s.own(t, strconv.Itoa(i), 60))
			time.Sleep(2 * time.Millisecond)
		}
		a, b, c := made[0].ID, made[1].ID, made[2].ID
		at := func(d time.Duration) string {
			return url.QueryEscape(made[1].Created.Add(d).In(time.FixedZone("", 2*60*60)).Format(time.RFC3339Nano))
		}
		checkFilters(t, s, t.Name(), []filtered{
			{"minimum_created=" + at(0), []string{b, c}},
			{"minimum_created=" + at(time.Microsecond), []string{c}},
			{"maximum_created=" + at(0), []string{a, b}},
			{"maximum_created=" + at(-time.Microsecond), []string{a}},
			{"minimum_created=" + at(0) + "&maximum_created=" + at(0), []string{b}},
			{"minimum_created=" + at(time.Hour), nil},
			{"maximum_created=" + at(-time.Hour), nil},
			{"minimum_created=1970-01-01T00:00:00Z", []string{a, b, c}},
		})
	}},
	{"Allowed filters: resource", func(t *testing.T, s *restServer) {
		names := []string{"a", "A", "a ", "á", "a%", "a_", "a+b", "a/b", "a&b=c", "a?b#c", `a"b'`}
		for _, name := range names {
			c := s.hold(t, t.Name()+name)
			if found := s.list(t, "resource="+url.QueryEscape(t.Name()+name)); !slices.Equal(idsOf(found), []string{c.ID}) {
				t.Errorf("%q: found %v, want %s alone", name, idsOf(found), c.ID)
			}
		}
		if found := s.list(t, "resource="+url.QueryEscape(t.Name())); len(found) > 0 {
			t.Errorf("found %v by the beginning of their name", idsOf(found))
		}
	}},
	{"Allowed filters: status", func(t *testing.T, s *restServer) {
		holder := s.own(t, "one", 60)
		waiter, gone := s.own(t, "one", 60), s.own(t, "one", 60)
		s.end(t, gone.ID, "withdrawn")
		checkFilters(t, s, t.Name(), []filtered{
			{"status=active", []string{holder.ID}},
			{"status=waiting", []string{waiter.ID}},
			{"status=withdrawn", []string{gone.ID}},
			{"status=released", nil},
			{"status=aborted", nil},
			{"status=revoked", nil},
			{"status=expired", nil},
		})
	}},
}

// own claims a resource of the test for the owner that has the test's name.
func (s *restServer) own(t *testing.T, resource string, ttl float64) (c restClaim) {
	t.Helper()
	s.post(t, object{"resource": t.Name() + "/" + resource, "ttl": ttl, "owner": t.Name()}).decode(t, &c)
	return c
}

// endedClaims makes ended claims of one owner, oldest first: one that was active briefly, one that was active long,
// one that waited briefly and was never active, and one that waited long.
func endedClaims(t *testing.T, s *restServer) (ended []restClaim) {
	t.Helper()
	brief := s.own(t, "brief", 60)
	s.end(t, brief.ID, "released")
	long, gone, lasting := s.own(t, "long", 60), s.own(t, "long", 60), s.own(t, "long", 60)
	s.end(t, gone.ID, "withdrawn")
	time.Sleep(50 * time.Millisecond) // real time: longer than nothing, on any machine
	s.end(t, long.ID, "released")
	s.end(t, lasting.ID, "released")
	for _, c := range []restClaim{brief, long, gone, lasting} {
		ended = append(ended, s.get(t, c.ID))
	}
	return ended
}

// checkDurations filters by the duration of one claim, or a bit off.
func checkDurations(t *testing.T, s *restServer, all []restClaim, name string, bound restClaim, off float64, duration func(restClaim) *float64) {
	t.Helper()
	if duration(bound) == nil {
		return
	}
	at := *duration(bound) + off
	var least, most, same []string
	for _, c := range all {
		d := duration(c)
		if d == nil {
			continue
		}
		// Microseconds, which floats do not hold exactly.
		if *d > at-1e-7 {
			least = append(least, c.ID)
		}
		if *d < at+1e-7 {
			most = append(most, c.ID)
		}
		if *d > at-1e-7 && *d < at+1e-7 {
			same = append(same, c.ID)
		}
	}
	minimum, maximum := "minimum_"+name+"="+number(at), "maximum_"+name+"="+number(at)
	checkFilters(t, s, t.Name(), []filtered{{minimum, least}, {maximum, most}, {minimum + "&" + maximum, same}})
}

// filtered is a query and the ids of the claims that it finds.
type filtered struct {
	query string
	want  []string
}

// checkFilters looks for the claims of one owner.
func checkFilters(t *testing.T, s *restServer, owner string, tests []filtered) {
	t.Helper()
	for _, test := range tests {
		found := idsOf(s.list(t, "owner="+url.QueryEscape(owner)+"&"+test.query))
		if !slices.Equal(found, append([]string{}, test.want...)) {
			t.Errorf("%s: %v, want %v", test.query, found, test.want)
		}
	}
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', 6, 64) }

var requiredGet = []sentence{
	{"All successful get requests should return HTTP 200, created, user_data, resource, status, status_history", func(t *testing.T, s *restServer) {
		for _, status := range []string{"active", "waiting", "released", "aborted", "expired", "revoked", "withdrawn"} {
			c := inStatus(t, s, status)
			a := s.do(t, "GET", claimPath(c.ID), nil).is(t, http.StatusOK)
			for _, name := range []string{"created", "user_data", "resource", "status", "status_history"} {
				if _, ok := a.members(t)[name]; !ok {
					t.Errorf("%s: there is no %s", status, name)
				}
			}
			found := a.claim(t)
			if found.Resource != c.Resource || found.Status != status || !found.Created.Equal(c.Created) || string(found.UserData) != "null" {
				t.Errorf("got %s, want %v", a.body, c)
			}
		}
	}},
	{"Requests for active claims should return active_duration, ttl", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		time.Sleep(20 * time.Millisecond)
		first := s.get(t, c.ID)
		about(t, "ttl", first.TTL, 600)
		if first.ActiveDuration == nil || *first.ActiveDuration < 0.02 || *first.ActiveDuration > prompt.Seconds() {
			t.Errorf("active_duration is %s", show(first.ActiveDuration))
		}
		time.Sleep(20 * time.Millisecond)
		if later := s.get(t, c.ID); *later.ActiveDuration < *first.ActiveDuration+0.02 || *later.TTL > *first.TTL {
			t.Errorf("20 ms later: active_duration %v after %v, ttl %v after %v",
				*later.ActiveDuration, *first.ActiveDuration, *later.TTL, *first.TTL)
		}
	}},
	{"Requests for waiting claims should return waiting_duration", func(t *testing.T, s *restServer) {
		s.hold(t, t.Name())
		c := s.queue(t, t.Name())
		time.Sleep(20 * time.Millisecond)
		first := s.get(t, c.ID)
		time.Sleep(20 * time.Millisecond)
		later := s.get(t, c.ID)
		if first.WaitingDuration < 0.02 || later.WaitingDuration < first.WaitingDuration+0.02 || later.WaitingDuration > prompt.Seconds() {
			t.Errorf("waiting_duration: %v, and 20 ms later %v", first.WaitingDuration, later.WaitingDuration)
		}
	}},
	{"Errors: HTTP 404 for a non-existent claim", func(t *testing.T, s *restServer) {
		s.do(t, "GET", claimPath("nosuch"), nil).refuses(t, http.StatusNotFound, "message")
		s.do(t, "GET", claimPath(fmt.Sprint(time.Now().UnixNano())), nil).refuses(t, http.StatusNotFound, "message")
	}},
}
