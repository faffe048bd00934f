package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"
)

var requiredPost = []sentence{
	{"Parameters should be specified in the JSON body", func(t *testing.T, s *restServer) {
		s.do(t, "POST", "/v1/claims/?ttl=60&resource=r", nil).is(t, http.StatusBadRequest)
		s.do(t, "POST", "/v1/claims/", "ttl=60&resource=r", "Content-Type", "application/x-www-form-urlencoded").is(t, http.StatusUnsupportedMediaType)
		s.post(t, object{"resource": t.Name(), "ttl": 60}).is(t, http.StatusCreated)
	}},
	{"resource: string, length > 0, mandatory", func(t *testing.T, s *restServer) {
		for _, body := range []string{
			`{"ttl": 60}`, `{"ttl": 60, "resource": null}`, `{"ttl": 60, "resource": ""}`, `{"ttl": 60, "resource": 1}`,
			`{"ttl": 60, "resource": true}`, `{"ttl": 60, "resource": ["a"]}`, `{"ttl": 60, "resource": {"a": "b"}}`,
		} {
			s.post(t, body).refuses(t, http.StatusBadRequest, "resource")
		}
		if c := s.hold(t, "x"); c.Resource != "x" {
			t.Errorf("the resource is %q", c.Resource)
		}
	}},
	{"ttl: float, seconds, value >= 0, mandatory", func(t *testing.T, s *restServer) {
		for _, body := range []string{
			`{"resource": "r"}`, `{"resource": "r", "ttl": null}`, `{"resource": "r", "ttl": -1}`, `{"resource": "r", "ttl": -0.000001}`,
			`{"resource": "r", "ttl": "60"}`, `{"resource": "r", "ttl": ""}`, `{"resource": "r", "ttl": true}`,
			`{"resource": "r", "ttl": [60]}`, `{"resource": "r", "ttl": {}}`,
		} {
			s.post(t, body).refuses(t, http.StatusBadRequest, "ttl")
		}
		for i, ttl := range []string{"0", "0.0", "-0", "0.5", "60", "60.25", "1e2", "1E+2", "0.000001"} {
			s.post(t, fmt.Sprintf(`{"resource": "%s/%d", "ttl": %s}`, t.Name(), i, ttl)).is(t, http.StatusCreated)
		}
	}},
	{"user_data: JSON-compatible blob, optional", func(t *testing.T, s *restServer) {
		s.post(t, object{"resource": t.Name(), "ttl": 60, "user_data": object{"a": []int{1}}}).is(t, http.StatusCreated)
		s.post(t, object{"resource": t.Name(), "ttl": 60}).is(t, http.StatusAccepted)
		s.post(t, `{"resource": "r", "ttl": 60, "user_data": {a: 1}}`).refuses(t, http.StatusBadRequest, "message")
	}},
	{"All successful posts should set Location header", func(t *testing.T, s *restServer) {
		for _, code := range []int{http.StatusCreated, http.StatusAccepted} {
			a := s.post(t, object{"resource": t.Name(), "ttl": 60}).is(t, code)
			location := a.header.Get("Location")
			if location != a.claim(t).URL || location != s.url+claimPath(a.claim(t).ID) {
				t.Errorf("Location %q of the claim %s", location, a.body)
			}
			if c := s.do(t, "GET", location, nil).is(t, http.StatusOK).claim(t); c.ID != a.claim(t).ID {
				t.Errorf("at %s is %s", location, c.ID)
			}
		}
	}},
	{"All successful posts should save user-provided data: user_data, resource, initial ttl", func(t *testing.T, s *restServer) {
		body := object{"resource": t.Name(), "ttl": 4321.5, "user_data": "mine"}
		holder, waiter := s.post(t, body).is(t, http.StatusCreated).claim(t), s.post(t, body).is(t, http.StatusAccepted).claim(t)
		about(t, "the holder's ttl", s.get(t, holder.ID).TTL, 4321.5)
		s.end(t, holder.ID, "released")
		about(t, "the next one's ttl", s.get(t, waiter.ID).TTL, 4321.5)
		for _, id := range []string{holder.ID, waiter.ID} {
			if c := s.get(t, id); c.Resource != t.Name() || string(c.UserData) != `"mine"` {
				t.Errorf("saved: %q, %s", c.Resource, c.UserData)
			}
		}
	}},
	{"All successful posts should set automatic fields: created, status", func(t *testing.T, s *restServer) {
		before := time.Now()
		for _, status := range []string{"active", "waiting"} {
			c := s.post(t, object{"resource": t.Name(), "ttl": 60}).claim(t)
			if c.Status != status || c.Created.Before(before.Add(-5*time.Second)) || c.Created.After(time.Now().Add(5*time.Second)) {
				t.Errorf("%s, created %v; want it %s and new at %v", c.Status, c.Created, status, before)
			}
		}
		s.post(t, object{"resource": "r", "ttl": 60, "status": "active"}).refuses(t, http.StatusBadRequest, "status")
		s.post(t, object{"resource": "r", "ttl": 60, "created": before}).refuses(t, http.StatusBadRequest, "created")
	}},
	{"Successful posts without contention should return HTTP 201, set status to active, initialize ttl", func(t *testing.T, s *restServer) {
		c := s.post(t, object{"resource": t.Name(), "ttl": 60}).is(t, http.StatusCreated).claim(t)
		if c.Status != "active" {
			t.Errorf("it is %s", c.Status)
		}
		about(t, "ttl", c.TTL, 60)
	}},
	{"Successful posts with contention should return HTTP 202, set status to waiting", func(t *testing.T, s *restServer) {
		s.hold(t, t.Name())
		if c := s.post(t, object{"resource": t.Name(), "ttl": 60}).is(t, http.StatusAccepted).claim(t); c.Status != "waiting" || c.TTL != nil {
			t.Errorf("it is %s, ttl %s", c.Status, show(c.TTL))
		}
	}},
	{"Errors: HTTP 400 for missing mandatory parameters", func(t *testing.T, s *restServer) {
		s.post(t, `{}`).refuses(t, http.StatusBadRequest, "resource", "ttl")
		s.post(t, `{"user_data": 1}`).refuses(t, http.StatusBadRequest, "resource", "ttl")
	}},
	{"Errors: HTTP 400 for invalid values for parameters", func(t *testing.T, s *restServer) {
		s.post(t, `{"resource": 5, "ttl": "x"}`).refuses(t, http.StatusBadRequest, "resource", "ttl")
		s.post(t, `{"resource": "", "ttl": -1}`).refuses(t, http.StatusBadRequest, "resource", "ttl")
		if left := s.list(t, "resource=r"); len(left) > 0 {
			t.Errorf("what was refused left %v", idsOf(left))
		}
	}},
	{"Errors: HTTP 400 for unknown parameters", func(t *testing.T, s *restServer) {
		s.post(t, object{"resource": t.Name(), "ttl": 60, "colour": "red"}).refuses(t, http.StatusBadRequest, "colour")
		s.post(t, object{"resource": t.Name(), "ttl": 60, "a": nil, "b": 1, "c": 2}).refuses(t, http.StatusBadRequest, "a", "b", "c")
		if left := s.list(t, "resource="+url.QueryEscape(t.Name())); len(left) > 0 {
			t.Errorf("what was refused left %v", idsOf(left))
		}
	}},
}
