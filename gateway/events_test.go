package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// eventStream is a stream of server-sent events, read as a browser does.
type eventStream struct {
	t      *testing.T
	resp   *http.Response
	lines  *bufio.Scanner
	lastID string
	retry  string
	stop   context.CancelFunc
}

func listen(t *testing.T, c *http.Client, url string, headers ...string) *eventStream {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	must(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := c.Do(req)
	must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &eventStream{t: t, resp: resp, lines: bufio.NewScanner(resp.Body), stop: stop}
}

// next returns the next event.
func (s *eventStream) next() (name, data string) {
	s.t.Helper()
	for s.lines.Scan() {
		field, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch field {
		case "":
			if data != "" {
				return name, data
			}
		case "event":
			name = value
		case "data":
			data = value
		case "id":
			s.lastID = value
		case "retry":
			s.retry = value
		}
	}
	s.t.Fatalf("the stream has ended: %v", s.lines.Err())
	return "", ""
}

func (s *eventStream) wants(name, part string) {
	s.t.Helper()
	gotName, data := s.next()
	if gotName != name || !strings.Contains(data, part) {
		s.t.Errorf("got %s %s, want %s and %q", gotName, data, name, part)
	}
}

func TestEvents(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "r", "ttl": 60, "id": "a", "owner": "o", "value": "line\nline"}`).says(t, 201, "a")
	do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "r", "ttl": 60, "id": "b"}`).says(t, 202, "b")
	do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "other", "ttl": 60, "id": "c"}`).says(t, 201, "c")
	e := listen(t, c, s.url+"/v1/events/?resource=r", "Accept-Encoding: gzip", "Accept: text/event-stream")
	if e.resp.StatusCode != 200 || e.resp.Header.Get("Content-Type") != "text/event-stream" || e.resp.Header.Get("Locket-Api") == "" {
		t.Errorf("%s %v", e.resp.Status, e.resp.Header)
	}
	name, data := e.next()
	var document openapi3.T
	must(t, json.Unmarshal([]byte(do(t, c, "GET", s.url+"/openapi.json", "").body), &document))
	fits := func(schema, data string) {
		t.Helper()
		var value any
		must(t, json.Unmarshal([]byte(data), &value))
		loaded, err := openapi3.NewLoader().LoadFromData([]byte(do(t, c, "GET", s.url+"/openapi.json", "").body))
		must(t, err)
		if err := loaded.Components.Schemas[schema].Value.VisitJSON(value); err != nil {
			t.Errorf("%s: %v", data, err)
		}
	}
	if name != "claim" {
		t.Errorf("got %s", name)
	}
	fits("Watched", data)
	e.wants("claim", `"id":"b"`)
	e.wants("synced", "{}")
	first := e.lastID
	do(t, c, "DELETE", s.url+"/v1/claims/c/", "").says(t, 204, "")
	do(t, c, "DELETE", s.url+"/v1/claims/a/", "").says(t, 204, "")
	name, data = e.next()
	if name != "transition" || !strings.HasPrefix(data, `{"before":"active","time":"`) || !strings.Contains(data, `"status":"released"`) {
		t.Errorf("got %s %s", name, data)
	}
	fits("Transition", data)
	e.wants("transition", `{"before":"waiting"`)
	if e.lastID == first || e.lastID == "" {
		t.Errorf("the id is %q after %q", e.lastID, first)
	}
	e.stop()
	do(t, c, "DELETE", s.url+"/v1/claims/b/", "").says(t, 204, "")
	for _, again := range []*eventStream{
		listen(t, c, s.url+"/v1/events?resource=r&cursor="+e.lastID),
		listen(t, c, s.url+"/v1/events?resource=r&cursor="+first, "Last-Event-ID: "+e.lastID),
	} {
		again.wants("transition", `"id":"b"`)
	}
	quiet := listen(t, c, s.url+"/v1/events?no_snapshot=true")
	quiet.wants("synced", "")
	if a := do(t, c, "HEAD", s.url+"/v1/events", ""); a.code != 200 || a.body != "" {
		t.Errorf("HEAD: %d %q", a.code, a.body)
	}
}

// TestEventsHead: HEAD of a stream ends, and the connection takes the next request.
func TestEventsHead(t *testing.T) {
	s := start(t, nil)
	const head, next = "HEAD /v1/events/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	if got := raw(t, s, head+next); strings.Count(got, "HTTP/1.1 200 OK") != 2 || !strings.HasSuffix(got, "ok\n") {
		t.Errorf("got %s", got)
	}
}

// TestEventsRefusals: refused requests are counted for clients that ask for it.
func TestEventsRefusals(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "r", "ttl": 60, "id": "a"}`).says(t, 201, "a")
	e := listen(t, c, s.url+"/v1/events?no_snapshot=true&refusals=true")
	e.wants("synced", "{}")
	first := e.lastID
	do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "r", "ttl": 60, "no_wait": true}`).says(t, 409, "")
	e.wants("refusals", `{"count":1}`)
	if e.lastID == first {
		t.Error("no new id")
	}
	do(t, c, "GET", s.url+"/v1/events?refusals=true&owner=o", "").says(t, 400, `{"refusals":"are counted by resource`)
}

func TestEventsRefused(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	for query, want := range map[string]string{
		"colour=red":       `{"colour":"unknown parameter"}`,
		"type=red":         `"type":"must be one of`,
		"no_snapshot=yes":  `{"no_snapshot":"must be true or false"}`,
		"resource=":        `{"resource":"is required"}`,
		"cursor=x":         `{"cursor":"is not a cursor`,
		"prefix=a&prefix=": `{"prefix":"is given more than once"}`,
	} {
		do(t, c, "GET", s.url+"/v1/events/?"+query, "").says(t, 400, want)
	}
	do(t, c, "GET", s.url+"/v1/events/", "", "Origin: http://elsewhere.example", "Sec-Fetch-Site: cross-site").says(t, 403, "")
	do(t, c, "POST", s.url+"/v1/events/", "").says(t, 405, "")
}

// TestEventsEnd: a server that stops sends an end event, and does not wait for its watches.
func TestEventsEnd(t *testing.T) {
	s := start(t, nil)
	e := listen(t, client(t, nil), s.url+"/v1/events/")
	e.wants("synced", "")
	s.drain()
	e.wants("end", "shutting down")
	s.stop(t)
}
