package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/models"
)

// TestOpenAPI: the document is valid, and real requests and answers of every operation are
// as it says, with every answer that a client can bring about.
func TestOpenAPI(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	document, err := openapi3.NewLoader().LoadFromData([]byte(do(t, c, "GET", s.url+"/openapi.json", "").body))
	must(t, err)
	must(t, document.Validate(t.Context()))
	router, err := legacy.NewRouter(document)
	must(t, err)
	v := validator{t, c, s.url, router, make(map[string]bool)}

	v.check("POST", "/v1/claims/", `{"resource": "r", "ttl": 60, "id": "holder", "owner": "me", "user_data": {"a": [1, null]}, "type": "lock", "value": "x"}`, 201)
	v.check("POST", "/v1/claims/", `{"resource": "r", "ttl": 60, "id": "waiter", "mode": "shared"}`, 202)
	v.check("POST", "/v1/claims/", `{"resource": "p", "ttl": 60, "id": "presence", "type": "presence", "user_data": "text"}`, 201)
	v.check("POST", "/v1/claims/", `{"resource": "other", "ttl": 60, "id": "holder"}`, 409)
	v.check("POST", "/v1/claims/", `{"resource": "r", "ttl": 60, "id": "try", "no_wait": true}`, 409)
	v.check("POST", "/v1/claims/", `{"resource": "tried", "ttl": 60, "id": "try", "no_wait": true}`, 201)
	v.check("POST", "/v1/claims/", `{"resource": "r", "ttl": -1}`, 400)
	v.check("POST", "/v1/claims/", `{"resource": "r", "ttl": 1, "user_data": "`+strings.Repeat("x", 600<<10)+`"}`, 413)
	v.check("POST", "/v1/claims/", `{"resource": "r", "ttl": 1}`, 415, "Content-Type: text/plain")
	v.check("GET", "/v1/claims/", "", 200)
	v.check("GET", "/v1/claims/?limit=1&status=active&resource=r&minimum_ttl=1&maximum_created=2100-01-01T00:00:00Z", "", 200)
	v.check("GET", "/v1/claims/?colour=red", "", 400)
	v.check("GET", "/v1/claims/?colour=red", "", 400, "Accept: application/problem+json")
	v.check("GET", "/v1/claims/", "", 406, "Accept: text/html")
	v.check("GET", "/v1/claims/waiter/", "", 200, "Prefer: wait=0")
	v.check("GET", "/v1/claims/nobody/", "", 404)
	v.check("PATCH", "/v1/claims/waiter/", `{"status": "active"}`, 409)
	v.check("PATCH", "/v1/claims/holder/", `{"ttl": 30}`, 200)
	for _, method := range []string{"PATCH", "PUT", "DELETE"} {
		v.check(method, "/v1/claims/holder/", map[string]string{"PATCH": `{"ttl": 30}`, "PUT": `{"ttl": 30}`}[method], 412, `If-Match: "1"`)
	}
	v.check("PATCH", "/v1/claims/holder/", `{"ttl": 30, "status": "active"}`, 400)
	v.check("PATCH", "/v1/claims/nobody/", `{"ttl": 30}`, 404)
	v.check("PUT", "/v1/claims/waiter/", `{"ttl": 30, "status": "active"}`, 409)
	v.check("PUT", "/v1/claims/holder/", `{"ttl": 30, "status": "active"}`, 200)
	v.check("PUT", "/v1/claims/holder/", `{"ttl": "long"}`, 400)
	v.check("PUT", "/v1/claims/nobody/", `{"ttl": 30}`, 404)
	v.check("GET", "/v1/resources/r/", "", 200)
	v.check("GET", "/v1/resources/free/?limit=5", "", 200)
	v.check("GET", "/v1/resources/r/?limit=0", "", 400)
	v.check("GET", "/v1/locks/", "", 200)
	v.check("GET", "/v1/locks/?limit=0", "", 400)
	v.check("GET", "/v1/presences/?limit=1&page_token=!", "", 400)
	v.check("GET", "/v1/locks/?limit=1", "", 200)
	v.check("GET", "/v1/locks/r/", "", 200)
	v.check("GET", "/v1/locks/p/", "", 404)
	v.check("GET", "/v1/locks/"+strings.Repeat("x", 1025)+"/", "", 400)
	v.check("GET", "/v1/presences/", "", 200)
	v.check("GET", "/v1/presences/p/", "", 200)
	v.check("GET", "/v1/presences/r/", "", 404)
	v.check("GET", "/v1/presences/"+strings.Repeat("x", 1025)+"/", "", 400)
	v.check("DELETE", "/v1/claims/holder/?reason=done", "", 204)
	v.check("DELETE", "/v1/claims/holder/?why=done", "", 400)
	v.check("DELETE", "/v1/claims/nobody/", "", 404)
	v.check("POST", "/v1/claims/", `{"resource": "r", "ttl": 60, "id": "holder", "owner": "me", "user_data": {"a": [1, null]}}`, 200)
	v.check("PATCH", "/v1/claims/waiter/", `{"status": "withdrawn", "reason": "enough"}`, 204)
	v.check("PATCH", "/v1/claims/waiter/", `{"ttl": 1}`, 415, "Content-Type: text/plain")
	v.check("PATCH", "/v1/claims/waiter/", `{"reason": "`+strings.Repeat("x", 600<<10)+`"}`, 413)
	v.check("PUT", "/v1/claims/presence/", `{"status": "revoked"}`, 204)
	v.check("PUT", "/v1/claims/waiter/", `{"ttl": 1}`, 415, "Content-Type: text/plain")
	v.check("PUT", "/v1/claims/waiter/", `{"reason": "`+strings.Repeat("x", 600<<10)+`"}`, 413)
	v.check("GET", "/v1/claims/?status=active,waiting&prefix=r&order=newest", "", 200)
	v.check("GET", "/v1/claims/?status=active,red", "", 400)
	v.check("GET", "/v1/resources/?prefix=p&order=contended", "", 200)
	v.check("GET", "/v1/resources/?delimiter=/", "", 200)
	v.check("GET", "/v1/resources/?order=contended&delimiter=/", "", 400)
	v.check("GET", "/v1/resources/?order=red", "", 400)
	for i, claims := range []string{"a1", "b2", "a2", "b1"} { // a deadlock
		v.check("POST", "/v1/claims/", fmt.Sprintf(`{"resource": "of %s", "ttl": 60, "id": "%s", "owner": "%s"}`, claims[1:], claims, claims[:1]), 201+i/2)
	}
	v.check("GET", "/v1/claims/b1/", "", 409, "Prefer: wait=60")
	openSession(t, s, "0123456789abcdef")
	v.check("GET", "/v1/sessions/", "", 200)
	v.check("GET", "/v1/sessions/?limit=0", "", 400)
	v.check("GET", "/v1/sessions/0123456789abcdef/", "", 200)
	v.check("DELETE", "/v1/sessions/0123456789abcdef/", "", 204)
	v.check("DELETE", "/v1/sessions/0123456789abcdef/", "", 404)
	v.check("GET", "/v1/sessions/0123456789abcdef/", "", 404)
	v.check("GET", "/v1/status/", "", 200)
	v.check("GET", "/v1/whoami/", "", 200)
	v.check("GET", "/v1/permissions/r/?right=hold", "", 200)
	v.check("GET", "/v1/permissions/r/?right=write", "", 400)
	v.check("GET", "/v1/claims/", "", 200)
	v.check("GET", "/v1/events/?prefix=r&type=red", "", 400)
	v.seen["watch OK"] = true // TestEvents
	v.complete(document)
}

// openSession opens a session at the service behind a server.
func openSession(t *testing.T, s *server, id string) {
	t.Helper()
	stream, err := models.NewLocketClient(s.conn).Session(t.Context())
	must(t, err)
	must(t, stream.Send(&models.SessionRequest{Sequence: 1, Command: &models.SessionRequest_Open{
		Open: &models.OpenSession{Id: id, Secret: "a secret of the test", Ttl: 600},
	}}))
	_, err = stream.Recv()
	must(t, err)
}

// validator compares answers with the document.
type validator struct {
	t      *testing.T
	client *http.Client
	url    string
	router routers.Router
	seen   map[string]bool
}

// check sends a request and fails the test unless the answer has a code and is valid.
func (v validator) check(method, path, body string, code int, headers ...string) {
	v.t.Helper()
	got := do(v.t, v.client, method, v.url+path, body, headers...)
	if got.code != code {
		v.t.Errorf("%s %s %.60s: %d %s, want %d", method, path, body, got.code, got.body, code)
		return
	}
	req := httptest.NewRequestWithContext(v.t.Context(), method, withoutSlash(path), strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	route, parameters, err := v.router.FindRoute(req)
	must(v.t, err)
	v.seen[route.Operation.OperationID+" "+http.StatusText(code)] = true
	input := &openapi3filter.RequestValidationInput{
		Request: req, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	if code < 300 {
		if err := openapi3filter.ValidateRequest(v.t.Context(), input); err != nil {
			v.t.Errorf("%s %s: the request: %v", method, path, err)
		}
	}
	if code == http.StatusNoContent && got.body != "" {
		v.t.Errorf("%s %s: a body: %q", method, path, got.body)
	}
	err = openapi3filter.ValidateResponse(v.t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: got.code, Header: got.header, Body: io.NopCloser(strings.NewReader(got.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		v.t.Errorf("%s %s %.60s: the answer: %v", method, path, body, err)
	}
}

// withoutSlash returns a path without the final slash, which is optional, before its query.
func withoutSlash(path string) string {
	path, query, _ := strings.Cut(path, "?")
	return strings.TrimSuffix(path, "/") + "?" + query
}

// complete fails the test if the document has answers that were not seen and need no fault.
func (v validator) complete(document *openapi3.T) {
	v.t.Helper()
	for _, item := range document.Paths.Map() {
		for _, operation := range item.Operations() {
			for code := range operation.Responses.Map() {
				status := map[string]int{"200": 200, "201": 201, "202": 202, "204": 204, "400": 400, "404": 404, "409": 409, "412": 412, "413": 413, "415": 415}[code]
				if status == 0 && !slices.Contains([]string{"401", "403", "406", "421", "429", "503", "504"}, code) {
					v.t.Errorf("%s has the answer %s, which this test does not know", operation.OperationID, code)
				}
				if status != 0 && !v.seen[operation.OperationID+" "+http.StatusText(status)] {
					v.t.Errorf("%s has the answer %s, which was not seen", operation.OperationID, code)
				}
			}
		}
	}
}

// TestRoutes: every operation has a route, and the header Allow names its method.
func TestRoutes(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	for _, o := range gateway.Operations() {
		path := strings.NewReplacer("{id}", "x", "{resource}", "x", "{key}", "x").Replace(o.Path)
		if o.Stream {
			path += "?is=unknown" // the answer would not end
		}
		a := do(t, c, o.Method, s.url+path, "")
		if a.code == http.StatusMethodNotAllowed || strings.Contains(a.body, "there is nothing here") {
			t.Errorf("%s %s has no route", o.Method, o.Path)
		}
		options := do(t, c, http.MethodOptions, s.url+path, "")
		if !strings.Contains(options.header.Get("Allow"), o.Method) {
			t.Errorf("OPTIONS %s: Allow: %s", path, options.header.Get("Allow"))
		}
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			served := do(t, c, method, s.url+path, "").code != http.StatusMethodNotAllowed
			if told := strings.Contains(options.header.Get("Allow"), method); told != served {
				t.Errorf("%s %s: served %t, but Allow: %s", method, path, served, options.header.Get("Allow"))
			}
		}
	}
}

// TestDocs: the page describes every operation and loads nothing from elsewhere.
func TestDocs(t *testing.T) {
	s := start(t, nil)
	page := do(t, client(t, nil), "GET", s.url+"/docs", "")
	page.says(t, 200, "<!doctype html>")
	document, err := openapi3.NewLoader().LoadFromData([]byte(do(t, client(t, nil), "GET", s.url+"/openapi.json", "").body))
	must(t, err)
	for path, item := range document.Paths.Map() {
		for _, operation := range item.Operations() {
			if !strings.Contains(page.body, `id="`+operation.OperationID+`"`) || !strings.Contains(page.body, path) {
				t.Errorf("%s is not on the page", operation.OperationID)
			}
		}
	}
	for _, foreign := range []string{"<script", "<link", "<img", "<iframe", "@import", "url(", `="http://`, `="https://`, "no value"} {
		if strings.Contains(page.body, foreign) {
			t.Errorf("the page has %q", foreign)
		}
	}
	if policy := page.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("the policy: %q", policy)
	}
}

// handler returns the server's handler, without a network.
func handler(tb testing.TB) http.Handler {
	tb.Helper()
	registry := prometheus.NewRegistry()
	conn, _ := service(tb, registry)
	h, err := gateway.New(gateway.Config{Service: conn, Metrics: registry}).Handler()
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// serve answers one request.
func serve(ctx context.Context, h http.Handler, method, target string, body []byte) *httptest.ResponseRecorder {
	return serveWith(ctx, h, method, target, body, "Accept", "*/*")
}

// serveWith answers one request with a header.
func serveWith(ctx context.Context, h http.Handler, method, target string, body []byte, name, value string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(name, value)
	h.ServeHTTP(recorder, req)
	return recorder
}
