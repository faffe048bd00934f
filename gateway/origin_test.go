package gateway_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/locket-service/locket/gateway"
)

// TestHosts: a request for a host name that is not this server's is refused.
func TestHosts(t *testing.T) {
	own, err := os.Hostname()
	must(t, err)
	ask := func(s *server, host string) answer {
		c := client(t, nil)
		c.Transport = hostTransport{host, c.Transport}
		return do(t, c, "POST", s.url+"/v1/claims", claimOfR)
	}
	s := start(t, nil)
	named := startAs(t, func(c *gateway.Config) { c.Hosts = []string{"Locks.Example.", "other.example"} })
	for _, host := range []string{
		"localhost", "LOCALHOST:8892", "locket.localhost", "localhost.", "127.0.0.1:1", "[::1]", "[::1]:8892", "10.1.2.3", "192.168.0.1:80", own,
	} {
		ask(s, host).says(t, 201, "active")
		ask(named, host).says(t, 201, "active")
	}
	ask(named, "locks.example:8080").says(t, 201, "active")
	ask(named, "OTHER.example").says(t, 201, "active")
	for _, host := range []string{"evil.example", "evil.example:8892", "localhost.evil.example", "127.0.0.1.evil.example", "xlocalhost", "locks.example.evil.example"} {
		ask(s, host).says(t, http.StatusMisdirectedRequest, "not a name of this server")
		ask(named, host).says(t, http.StatusMisdirectedRequest, "not a name of this server")
	}
	ask(s, "locks.example").says(t, http.StatusMisdirectedRequest, "--http-hosts")
	if old := raw(t, s, "GET /v1/claims/ HTTP/1.0\r\n\r\n"); !strings.HasPrefix(old, "HTTP/1.0 200") {
		t.Errorf("HTTP/1.0: %s", old)
	}
}

// hostTransport asks for another host on every connection.
type hostTransport struct {
	host string
	http.RoundTripper
}

func (h hostTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host = h.host
	return h.RoundTripper.RoundTrip(r)
}

// TestCrossSite: the browser's headers about a page decide whether its request is answered.
func TestCrossSite(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	for _, test := range []struct {
		method string
		header []string
		code   int
	}{
		{"POST", nil, 201},
		{"POST", []string{"Sec-Fetch-Site: same-origin", "Origin: " + s.url}, 201},
		{"POST", []string{"Sec-Fetch-Site: none"}, 201},
		{"POST", []string{"Origin: " + s.url}, 201},
		{"POST", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"POST", []string{"Sec-Fetch-Site: same-site", "Origin: http://localhost:1"}, 403},
		{"POST", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"}, 403},
		{"POST", []string{"Origin: http://evil.example"}, 403},
		{"POST", []string{"Origin: null"}, 403},
		{"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors"}, 403},
		{"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"}, 403},
		{"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 200},
		{"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, 403},
		{"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: frame"}, 403},
		{"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: object"}, 403},
		{"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: embed"}, 403},
		{"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"}, 403},
		{"GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", "Sec-Purpose: prefetch;prerender"}, 403},
		{"GET", []string{"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, 200},
		{"DELETE", []string{"Origin: http://evil.example"}, 403},
		{"OPTIONS", []string{"Origin: http://evil.example", "Access-Control-Request-Method: POST"}, 403},
	} {
		path, body := "/v1/claims/", ""
		if test.method == "POST" {
			body = claimOfR
		}
		if test.method == "DELETE" {
			path = "/v1/claims/c/"
		}
		got := do(t, c, test.method, s.url+path, body, test.header...)
		if got.code != test.code || got.header.Get("Access-Control-Allow-Origin") != "" || got.header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s %q: %d %s, want %d", test.method, test.header, got.code, got.body, test.code)
		}
	}
	do(t, c, "GET", s.url+"/v1/claims/c/", "").says(t, 200, "active")
}

// TestOrigins: pages of allowed origins may send requests and read answers; others may not.
func TestOrigins(t *testing.T) {
	const console, evil = "https://console.example", "https://console.example.evil"
	s, c := startAs(t, func(c *gateway.Config) { c.Origins = []string{console, "http://localhost:3000"} }), client(t, nil)
	for _, test := range []struct {
		method, origin string
		preflight      bool
		code           int
		allowed        bool
	}{
		{"OPTIONS", console, true, 204, true},
		{"OPTIONS", "http://localhost:3000", true, 204, true},
		{"OPTIONS", evil, true, 403, false},
		{"OPTIONS", "http://localhost:3001", true, 403, false},
		{"OPTIONS", console, false, 204, true},
		{"POST", console, false, 201, true},
		{"POST", evil, false, 403, false},
		{"POST", "http://console.example", false, 403, false},
		{"POST", "", false, 202, false},
		{"GET", console, false, 200, true},
		{"GET", evil, false, 403, false},
	} {
		var header []string
		body := ""
		if test.origin != "" {
			header = []string{"Origin: " + test.origin, "Sec-Fetch-Site: cross-site"}
		}
		if test.preflight {
			header = append(header, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type")
		}
		if test.method == "POST" {
			body = `{"resource": "r", "ttl": 60}`
		}
		got := do(t, c, test.method, s.url+"/v1/claims/", body, header...)
		origin, methods, headers := got.header.Get("Access-Control-Allow-Origin"), got.header.Get("Access-Control-Allow-Methods"), got.header.Get("Access-Control-Allow-Headers")
		if got.code != test.code || (origin != "") != test.allowed || test.allowed && origin != test.origin || !strings.Contains(strings.Join(got.header.Values("Vary"), ","), "Origin") {
			t.Errorf("%+v: %d %v", test, got.code, got.header)
		}
		if may := test.preflight && test.allowed; strings.Contains(methods, "DELETE") != may || strings.Contains(headers, "Authorization") != may {
			t.Errorf("%+v: methods %q, headers %q", test, methods, headers)
		}
		if test.allowed && !strings.Contains(got.header.Get("Access-Control-Expose-Headers"), "Location") || got.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%+v: %v", test, got.header)
		}
	}
}

// TestRootOfConsole: the root of a server with a console redirects to it.
func TestRootOfConsole(t *testing.T) {
	s, c := startAs(t, func(c *gateway.Config) { c.Pages = map[string]http.Handler{"/console": http.NotFoundHandler()} }), client(t, nil)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if got := do(t, c, "GET", s.url+"/", "", "X-Forwarded-Prefix: /x"); got.code != http.StatusFound || !strings.HasSuffix(got.header.Get("Location"), "/console/") {
		t.Errorf("%d, Location %q", got.code, got.header.Get("Location"))
	}
}

// TestRoot: the root of a server without a console redirects to the description of the API.
func TestRoot(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	do(t, c, "GET", s.url+"/", "").says(t, 200, "<!doctype html>")
	do(t, c, "HEAD", s.url, "").says(t, 200, "")
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if got := do(t, c, "GET", s.url+"/", ""); got.code != http.StatusFound || got.header.Get("Location") != s.url+"/docs" {
		t.Errorf("%d, Location %q", got.code, got.header.Get("Location"))
	}
	do(t, c, "POST", s.url+"/", "").says(t, http.StatusMethodNotAllowed, "not possible here")
}

// TestUnknownQuery: a parameter that no operation has is an error everywhere.
func TestUnknownQuery(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	for _, o := range gateway.Operations() {
		path := strings.NewReplacer("{id}", "x", "{resource}", "x", "{key}", "x").Replace(o.Path)
		body := ""
		if o.Method != "GET" && o.Method != "DELETE" {
			body = `{"resource": "r", "ttl": 5}`
		}
		do(t, c, o.Method, s.url+path+"?colour=red", body).says(t, 400, `"colour":"unknown parameter"`)
	}
	do(t, c, "GET", s.url+"/v1/claims/", "").says(t, 200, "[]")
}
