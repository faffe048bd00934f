package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

var contractRepeats = []sentence{
	{"A request that is repeated with its id gets the same claim: 201, 202, 200 once that has ended", func(t *testing.T, s *restServer) {
		for way, withID := range waysToID {
			holder, waiter := fmt.Sprint("holder-", way), fmt.Sprint("waiter-", way)
			body := object{"resource": t.Name() + fmt.Sprint(way), "ttl": 60, "owner": "me", "user_data": object{"a": 1}}
			first := withID(t, s, body, holder).is(t, http.StatusCreated).claim(t)
			second := withID(t, s, body, waiter).is(t, http.StatusAccepted).claim(t)
			repeatsAs(t, withID(t, s, body, holder), http.StatusCreated, first)
			repeatsAs(t, withID(t, s, body, waiter), http.StatusAccepted, second)
			s.end(t, holder, "released")
			repeatsAs(t, withID(t, s, body, holder), http.StatusOK, s.stands(t, holder, "released"))
			repeatsAs(t, withID(t, s, body, waiter), http.StatusCreated, s.stands(t, waiter, "active"))
			s.end(t, waiter, "withdrawn")
			repeatsAs(t, withID(t, s, body, waiter), http.StatusOK, s.stands(t, waiter, "withdrawn"))
		}
	}},
	{"With no_wait the claim holds at once, or 409 says who holds; a refused try leaves nothing, keeps nobody out, and may be repeated", func(t *testing.T, s *restServer) {
		body := func(id, mode string) object {
			return object{"resource": t.Name(), "ttl": 60, "owner": "owner of " + id, "id": id, "mode": mode, "no_wait": true}
		}
		first := s.post(t, body("try-a", "exclusive")).is(t, http.StatusCreated).claim(t)
		told := s.post(t, body("try-b", "shared")).refuses(t, http.StatusConflict, "message", "holder", "claim_id", "token")
		if told["holder"] != "owner of try-a" || told["claim_id"] != "try-a" || told["token"] != fmt.Sprint(*first.Token) {
			t.Errorf("the holder is said to be %v", told)
		}
		s.do(t, "GET", claimPath("try-b"), nil).is(t, http.StatusNotFound)
		repeatsAs(t, s.post(t, body("try-a", "exclusive")), http.StatusCreated, first)
		s.end(t, "try-a", "released")
		s.post(t, body("try-b", "shared")).is(t, http.StatusCreated)
		if told := s.post(t, body("try-c", "exclusive")).refuses(t, http.StatusConflict, "message", "mode"); told["mode"] != "shared" {
			t.Errorf("the holders are said to be %v", told)
		}
		s.post(t, body("try-d", "shared")).is(t, http.StatusCreated)
		s.post(t, `{"resource": "r", "ttl": 1, "no_wait": "yes"}`).refuses(t, http.StatusBadRequest, "no_wait")
	}},
	{"The id of another claim gets 409", func(t *testing.T, s *restServer) {
		body := func(name string, value any) object {
			all := object{"resource": t.Name(), "ttl": 60, "owner": "me", "user_data": 1, "id": "taken"}
			all[name] = value
			return all
		}
		c := s.post(t, body("ttl", 60)).is(t, http.StatusCreated).claim(t)
		for _, other := range []object{
			body("resource", t.Name()+"2"), body("owner", "you"), body("mode", "shared"), body("user_data", 2), body("user_data", nil),
		} {
			s.post(t, other).refuses(t, http.StatusConflict, "id")
		}
		s.end(t, "taken", "released")
		s.post(t, body("owner", "you")).refuses(t, http.StatusConflict, "id")
		if is := s.get(t, "taken"); is.Resource != c.Resource || !ptrEqual(is.Owner, "me") || is.Status != "released" {
			t.Errorf("the claim has become %v", is)
		}
	}},
	{"id and Idempotency-Key", func(t *testing.T, s *restServer) {
		body := object{"resource": t.Name(), "ttl": 60, "id": "both"}
		s.post(t, body, "Idempotency-Key", "both").is(t, http.StatusCreated)
		s.post(t, body, "Idempotency-Key", `"both"`).is(t, http.StatusCreated)
		s.post(t, body, "Idempotency-Key", "other").refuses(t, http.StatusBadRequest, "id")
	}},
	{"An id has 1 to 128 letters, digits and any of -._~", func(t *testing.T, s *restServer) {
		for i, id := range []string{"a", "Z", "0", "-", "_", "~", "a.b", ".a", strings.Repeat("a", 128), "06hn-._~AZ", "a..b"} {
			body := object{"resource": fmt.Sprint(t.Name(), i), "ttl": 60, "id": id}
			c := s.post(t, body).is(t, http.StatusCreated).claim(t)
			if c.ID != id || s.get(t, id).ID != id || s.do(t, "GET", c.URL, nil).is(t, http.StatusOK).claim(t).ID != id {
				t.Errorf("id %q has become %q", id, c.ID)
			}
		}
		for _, id := range []any{
			" ", "a b", "a/b", "a%2Fb", ".", "..", "...", "ü", "a\u0000", "a+b", "a:b", strings.Repeat("a", 129), 5, true, []string{"a"}, object{},
		} {
			s.post(t, object{"resource": t.Name(), "ttl": 60, "id": id}).refuses(t, http.StatusBadRequest, "id")
		}
		for _, key := range []string{"a b", "a/b", "..", strings.Repeat("a", 129)} {
			s.post(t, object{"resource": t.Name(), "ttl": 60}, "Idempotency-Key", key).refuses(t, http.StatusBadRequest, "id")
		}
	}},
	{"An id that is empty is none", func(t *testing.T, s *restServer) {
		s.post(t, object{"resource": t.Name(), "ttl": 60, "id": ""}).refuses(t, http.StatusBadRequest, "id")
	}},
	{"Many that repeat one request at once make one claim", func(t *testing.T, s *restServer) {
		var group sync.WaitGroup
		tokens := make([]uint64, 20)
		for i := range tokens {
			group.Go(func() {
				a := s.try(t.Context(), "POST", "/v1/claims/", object{"resource": t.Name(), "ttl": 60, "id": "once"})
				if a.code != http.StatusCreated {
					t.Errorf("%d %s, %v", a.code, a.body, a.err)
					return
				}
				tokens[i] = *a.claim(t).Token
			})
		}
		group.Wait()
		for _, token := range tokens {
			if token != tokens[0] {
				t.Errorf("tokens %d and %d", token, tokens[0])
			}
		}
	}},
}

// waysToID are the ways of a client to name its claim.
var waysToID = []func(t *testing.T, s *restServer, body object, id string) reply{
	func(t *testing.T, s *restServer, body object, id string) reply {
		t.Helper()
		body["id"] = id
		return s.post(t, body)
	},
	func(t *testing.T, s *restServer, body object, id string) reply {
		t.Helper()
		return s.post(t, body, "Idempotency-Key", id)
	},
	func(t *testing.T, s *restServer, body object, id string) reply {
		t.Helper()
		return s.post(t, body, "Idempotency-Key", `"`+id+`"`)
	},
}

// repeatsAs fails the test unless an answer shows the current claim.
func repeatsAs(t *testing.T, a reply, code int, want restClaim) {
	t.Helper()
	got := a.is(t, code).claim(t)
	if got.ID != want.ID || got.Version != want.Version || got.Status != want.Status || show(got.Token) != show(want.Token) {
		t.Errorf("%d %s; want %s %s, version %d, token %s", a.code, a.body, want.ID, want.Status, want.Version, show(want.Token))
	}
	if a.header.Get("Location") != want.URL && code != http.StatusOK {
		t.Errorf("Location %q, want %q", a.header.Get("Location"), want.URL)
	}
}
