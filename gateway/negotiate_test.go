package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/service/watch"
)

// TestProblem: clients that accept problems (RFC 9457) get them for errors; others get the ordinary errors.
func TestProblem(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "r", "ttl": 60, "id": "holder", "owner": "me"}`).says(t, 201, "")
	for _, test := range []struct {
		method, path, body, accept string
		code                       int
		problem                    bool
		part                       string
	}{
		{"GET", "/v1/claims/?colour=red", "", "application/problem+json", 400, true, `"errors":{"colour":"unknown parameter"}`},
		{"GET", "/v1/claims/nobody/", "", "application/json, application/problem+json", 404, true, `"detail":"no claim has this id`},
		{"POST", "/v1/claims/", `{"resource": "r", "ttl": 1, "no_wait": true}`, "Application/Problem+JSON;q=0.5, */*", 409, true, `"holder":"me"`},
		{"GET", "/v1/nothing/here", "", "application/problem+json", 404, true, `"detail":"there is nothing here`},
		{"GET", "/v1/claims/?colour=red", "", "application/json", 400, false, `{"colour":"unknown parameter"}`},
		{"GET", "/v1/claims/?colour=red", "", "*/*", 400, false, `{"colour":`},
		{"GET", "/v1/claims/?colour=red", "", "application/problem+json;q=0, application/json", 400, false, `{"colour":`},
	} {
		a := do(t, c, test.method, s.url+test.path, test.body, "Accept: "+test.accept, "X-Request-Id: build 17")
		a.says(t, test.code, test.part)
		if is := a.header.Get("Content-Type") == "application/problem+json"; is != test.problem {
			t.Errorf("%s with %s: %s %s", test.path, test.accept, a.header.Get("Content-Type"), a.body)
		}
		var problem struct {
			Title, Detail, Instance string
			Status                  int
		}
		if err := json.Unmarshal([]byte(a.body), &problem); test.problem && (err != nil || problem.Status != test.code || problem.Title == "" ||
			problem.Detail == "" || problem.Instance != "urn:request:build%2017") {
			t.Errorf("%s: %+v, %v", a.body, problem, err)
		}
	}
}

// TestNotAcceptable: a request whose client accepts no answer of the operation is refused, and changes nothing.
func TestNotAcceptable(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	for accept, code := range map[string]int{
		"text/html": 406, "application/xml, text/*": 406, "application/json;q=0": 406, "*/*;q=0": 406, "text/event-stream": 406, "nonsense": 406,
		"application/json": 201, "application/*": 201, "*/*": 201, "APPLICATION/JSON; charset=utf-8": 201, "text/html, */*;q=0.1": 201,
		"application/problem+json": 201, "application/json;q=0, */*": 201,
	} {
		id := strings.Map(func(r rune) rune {
			if strings.ContainsRune("abcdefghijklmnopqrstuvwxyz", r) {
				return r
			}
			return '-'
		}, accept)
		do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "`+id+`", "ttl": 60, "id": "`+id+`"}`, "Accept: "+accept).says(t, code, "")
		found := do(t, c, "GET", s.url+"/v1/claims/"+id+"/", "").code
		if want := map[int]int{406: 404, 201: 200}[code]; found != want {
			t.Errorf("%s: the claim is there: %d, want %d", accept, found, want)
		}
	}
	do(t, c, "GET", s.url+"/v1/events/", "", "Accept: application/json").says(t, 406, "text/event-stream")
	do(t, c, "GET", s.url+"/docs", "", "Accept: text/html").says(t, 200, "<!doctype html>")
}

// TestIfMatch: a change with If-Match is made only if the claim still has this ETag.
func TestIfMatch(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	claim := s.url + "/v1/claims/a/"
	made := do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "r", "ttl": 60, "id": "a"}`)
	first := made.header.Get("ETag")
	if got := do(t, c, "GET", claim, "").header.Get("ETag"); got != first || !strings.HasPrefix(first, `"`) {
		t.Fatalf("the ETag is %s, and then %s", first, got)
	}
	renewed := do(t, c, "PATCH", claim, `{"ttl": 50}`, "If-Match: "+first)
	renewed.says(t, 200, "")
	second := renewed.header.Get("ETag")
	if second == first {
		t.Errorf("the ETag stays %s", first)
	}
	for _, stale := range []string{first, `"7"`, "W/" + second, strings.Trim(second, `"`), `"nonsense"`, `"0"`, `"007"`} {
		for method, body := range map[string]string{"PATCH": `{"ttl": 40}`, "PUT": `{"ttl": 40, "status": "active"}`, "DELETE": ""} {
			a := do(t, c, method, claim, body, "If-Match: "+stale)
			a.says(t, 412, `"version":"`+strings.Trim(second, `"`)+`"`)
		}
	}
	do(t, c, "DELETE", claim, "", "If-Match: "+first+", "+second).says(t, 400, "one entity tag")
	do(t, c, "PATCH", s.url+"/v1/claims/nobody/", `{"ttl": 40}`, "If-Match: *").says(t, 404, "")
	do(t, c, "PATCH", claim, `{"ttl": 40}`, "If-Match: *").says(t, 200, "")
	do(t, c, "DELETE", claim, "", "If-Match: "+second).says(t, 412, "")
	third := do(t, c, "GET", claim, "").header.Get("ETag")
	do(t, c, "DELETE", claim, "", "If-Match: "+third).says(t, 204, "")
	do(t, c, "GET", claim, "").says(t, 200, `"status":"released"`)
}

// TestAskAgain: the answer about a waiting claim says when to ask again, soon enough to keep it waiting.
func TestAskAgain(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "r", "ttl": 60}`).says(t, 201, "")
	for more, want := range map[string]string{"": "5", `, "wait_ttl": 60`: "5", `, "wait_ttl": 7`: "2", `, "wait_ttl": 1`: "1"} {
		a := do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "r", "ttl": 60`+more+`}`)
		if a.code != 202 || a.header.Get("Retry-After") != want {
			t.Errorf("%s: %d, Retry-After %q, want %s", more, a.code, a.header.Get("Retry-After"), want)
		}
	}
}

// TestEventsReset: a client whose cursor is too old gets an event for that in a new stream with all live claims: a
// browser's EventSource that is refused does not reconnect.
func TestEventsReset(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "r", "ttl": 60, "id": "a"}`).says(t, 201, "")
	e := listen(t, c, s.url+"/v1/events/", "Last-Event-ID: "+watch.Cursor{}.String())
	e.wants("reset", "{}")
	e.wants("claim", `"id":"a"`)
	e.wants("synced", "{}")
	do(t, c, "DELETE", s.url+"/v1/claims/a/", "").says(t, 204, "")
	e.wants("transition", `"status":"released"`)
	if e.retry != "1000" {
		t.Errorf("retry: %q", e.retry)
	}
	again := listen(t, c, s.url+"/v1/events/", "Last-Event-ID: "+e.lastID)
	do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "r", "ttl": 60, "id": "b"}`).says(t, 201, "")
	again.wants("transition", `"id":"b"`)
}
