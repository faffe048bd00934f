package rest_test

import (
	"net/http"
	"testing"
	"time"
)

var requiredPatch = []sentence{
	{"Parameters should be specified in the JSON body; only one update parameter in a single request", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		s.do(t, "PATCH", claimPath(c.ID)+"?ttl=60", nil).is(t, http.StatusBadRequest)
		s.patch(t, c.ID, object{"ttl": 60, "status": "active"}).refuses(t, http.StatusBadRequest, "ttl", "status")
		s.patch(t, c.ID, object{"ttl": 60, "status": "released"}).refuses(t, http.StatusBadRequest, "ttl", "status")
		about(t, "ttl", s.stands(t, c.ID, "active").TTL, 600)
	}},
	{"ttl: float, value >= 0", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		for _, ttl := range []string{"-1", "-0.000001", `"60"`, "true", "[]", "{}"} {
			s.patch(t, c.ID, `{"ttl": `+ttl+`}`).refuses(t, http.StatusBadRequest, "ttl")
		}
		for _, ttl := range []string{"0.5", "60", "1e3", "60.25"} {
			s.patch(t, c.ID, `{"ttl": `+ttl+`}`).is(t, http.StatusOK)
		}
		s.patch(t, c.ID, `{"ttl": 0}`).is(t, http.StatusOK)
		s.becomes(t, c.ID, "expired")
	}},
	{"status: string; valid values for update: aborted, active, released, revoked, withdrawn", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		for _, status := range []string{`"waiting"`, `"expired"`, `"nonsense"`, `"Active"`, `"active "`, `""`, "1", "true", `["active"]`, `{}`} {
			s.patch(t, c.ID, `{"status": `+status+`}`).refuses(t, http.StatusBadRequest, "status")
		}
		s.patch(t, c.ID, object{"status": "active"}).is(t, http.StatusOK)
		for _, status := range []string{"aborted", "released", "revoked", "withdrawn"} {
			s.end(t, s.hold(t, t.Name()+status).ID, status)
		}
	}},
	{"Updating status from waiting to active without contention should return HTTP 200, set status to active, initialize ttl", func(t *testing.T, s *restServer) {
		holder := s.hold(t, t.Name())
		c := s.post(t, object{"resource": t.Name(), "ttl": 4321}).is(t, http.StatusAccepted).claim(t)
		time.Sleep(10 * time.Millisecond)
		s.end(t, holder.ID, "released")
		activated := s.patch(t, c.ID, object{"status": "active"}).is(t, http.StatusOK).claim(t)
		if activated.Status != "active" {
			t.Errorf("it is %s", activated.Status)
		}
		about(t, "ttl", activated.TTL, 4321)
	}},
	{"Updating status from active to active should return HTTP 200", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		for range 2 {
			again := s.patch(t, c.ID, object{"status": "active"}).is(t, http.StatusOK).claim(t)
			if again.Status != "active" || *again.Token != *c.Token || len(again.StatusHistory) != 2 {
				t.Errorf("it is %s, token %d, %v; want %v", again.Status, *again.Token, again.statuses(), c)
			}
		}
	}},
	{"Updating ttl while status is active should return HTTP 200, set ttl to requested value", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		for _, ttl := range []float64{5000, 100, 300.5} {
			renewed := s.patch(t, c.ID, object{"ttl": ttl}).is(t, http.StatusOK).claim(t)
			about(t, "ttl in the answer", renewed.TTL, ttl)
			about(t, "ttl afterwards", s.get(t, c.ID).TTL, ttl)
			if *renewed.Token != *c.Token {
				t.Error("the renewal has changed the token")
			}
		}
	}},
	{"Updating status from active to released should return HTTP 204, set status to released", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		s.patch(t, c.ID, object{"status": "released"}).is(t, http.StatusNoContent)
		s.stands(t, c.ID, "released")
	}},
	{"Updating status from active or waiting to a cancelled state should return HTTP 204, set status to the requested value", func(t *testing.T, s *restServer) {
		for _, status := range cancelled {
			holder, waiter := s.hold(t, t.Name()+status), s.queue(t, t.Name()+status)
			for _, id := range []string{waiter.ID, holder.ID} {
				s.patch(t, id, object{"status": status}).is(t, http.StatusNoContent)
				s.stands(t, id, status)
			}
		}
	}},
	{"Errors: HTTP 400 for given unknown parameters", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		s.patch(t, c.ID, object{"colour": "red"}).is(t, http.StatusBadRequest)
		s.patch(t, c.ID, object{"ttl": 1, "colour": "red"}).refuses(t, http.StatusBadRequest, "colour")
		s.patch(t, c.ID, object{"status": "released", "timeout": 5}).refuses(t, http.StatusBadRequest, "timeout")
		s.patch(t, c.ID, object{"user_data": 1}).is(t, http.StatusBadRequest)
		about(t, "ttl", s.stands(t, c.ID, "active").TTL, 600)
	}},
	{"Errors: HTTP 400 for invalid values for given parameters", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		s.patch(t, c.ID, object{"ttl": "x"}).refuses(t, http.StatusBadRequest, "ttl")
		s.patch(t, c.ID, object{"status": "x"}).refuses(t, http.StatusBadRequest, "status")
		s.patch(t, c.ID, object{"ttl": "x", "status": "x"}).refuses(t, http.StatusBadRequest, "ttl", "status")
	}},
	{"Errors: HTTP 400 for updating from final states", func(t *testing.T, s *restServer) {
		for _, status := range []string{"aborted", "expired", "released", "revoked", "withdrawn"} {
			c := inStatus(t, s, status)
			for _, to := range []string{"aborted", "active", "released", "revoked", "withdrawn"} {
				if to != status { // which is repeated, and no update
					problems := s.patch(t, c.ID, object{"status": to}).refuses(t, http.StatusBadRequest, "message", "status")
					if problems["status"] != status {
						t.Errorf("from %s to %s: the status is said to be %s", status, to, problems["status"])
					}
				}
			}
			s.stands(t, c.ID, status)
		}
	}},
	{"Errors: HTTP 400 for updating from waiting to released", func(t *testing.T, s *restServer) {
		c := inStatus(t, s, "waiting")
		s.patch(t, c.ID, object{"status": "released"}).refuses(t, http.StatusBadRequest, "message", "status")
		s.stands(t, c.ID, "waiting")
	}},
	{"Errors: HTTP 400 for updating ttl when status is not active", func(t *testing.T, s *restServer) {
		for _, status := range []string{"aborted", "expired", "released", "revoked", "waiting", "withdrawn"} {
			c := inStatus(t, s, status)
			s.patch(t, c.ID, object{"ttl": 60}).refuses(t, http.StatusBadRequest, "message", "status")
			s.stands(t, c.ID, status)
		}
	}},
	{"Errors: HTTP 404 for a non-existent claim", func(t *testing.T, s *restServer) {
		s.patch(t, "nosuch", object{"ttl": 60}).refuses(t, http.StatusNotFound, "message")
		s.patch(t, "nosuch", object{"status": "released"}).refuses(t, http.StatusNotFound, "message")
	}},
	{"Errors: HTTP 409 for updating status from waiting to active with contention", func(t *testing.T, s *restServer) {
		s.hold(t, t.Name())
		first, second := s.queue(t, t.Name()), s.queue(t, t.Name())
		for _, id := range []string{second.ID, first.ID} {
			s.patch(t, id, object{"status": "active"}).refuses(t, http.StatusConflict, "message", "claim_id", "token", "position")
			s.stands(t, id, "waiting")
		}
	}},
}
