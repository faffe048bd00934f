package gateway_test

import (
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
)

const claimOfR = `{"resource": "r", "ttl": 60, "id": "c"}`

func TestContentType(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	for contentType, code := range map[string]int{
		"application/json":                  200,
		"Application/JSON; charset=UTF-8":   200,
		"application/merge-patch+json":      200,
		"":                                  415,
		"application/json; charset=latin1":  415,
		"text/plain":                        415,
		"application/x-www-form-urlencoded": 415,
		"application/json, text/plain":      415,
		"multipart/form-data; boundary=x":   415,
		"json":                              415,
		";":                                 415,
		"application/json; charset=utf-8; broken=": 415,
	} {
		do(t, c, "POST", s.url+"/v1/claims/", claimOfR)
		if a := do(t, c, "PATCH", s.url+"/v1/claims/c/", `{"ttl": 60}`, "Content-Type: "+contentType); a.code != code {
			t.Errorf("%q: %d %s, want %d", contentType, a.code, a.body, code)
		}
	}
	do(t, c, "PATCH", s.url+"/v1/claims/c/", `{"ttl": 60}`, "Content-Encoding: gzip").says(t, 415, "compressed")
}

func TestBodies(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	for body, text := range map[string]string{
		"":                                     `"message":"the body must be a JSON object`,
		"null":                                 `"message":"the body must be a JSON object, and is null"`,
		"[]":                                   `"message":"the body must be a JSON object, and is of type array"`,
		`"x"`:                                  `"message":"the body must be a JSON object, and is of type string"`,
		"{":                                    `"message"`,
		`{"ttl": 5} {}`:                        `"message"`,
		`{"ttl": NaN}`:                         `"message"`,
		`{"ttl": 1e999}`:                       `"ttl":"must be a number"`,
		`{"ttl": "5"}`:                         `"ttl":"must be a number"`,
		`{"ttl": true}`:                        `"ttl":"must be a number"`,
		`{"ttl": [5]}`:                         `"ttl":"must be a number"`,
		`{"resource": 5}`:                      `"resource":"must be a string`,
		`{"resource": {}}`:                     `"resource":"must be a string`,
		"{\"resource\": \"\xff\", \"ttl\": 5}": "not valid UTF-8",
		`{"resource": "\ud800", "ttl": 5}`:     `"resource":"must be a string of valid Unicode"`,
		`{"resource": "a\u0000b", "ttl": 5}`:   `"resource":"contains a NUL byte"`,
		`{"resource": "", "ttl": 5}`:           `"resource":"is required"`,
		`{"resource": null, "ttl": null}`:      `"ttl":"is required"`,
		`{"resource": "r", "ttl": 5, "mode": "x"}`:    `"mode":"must be one of exclusive, shared"`,
		`{"resource": "r", "ttl": 5, "mode": 1}`:      `"mode":"must be one of exclusive, shared"`,
		`{"resource": "r", "ttl": 5, "type": ""}`:     `"type":"must be one of lock, presence"`,
		`{"resource": "r", "ttl": 5, "id": "a/b"}`:    `"id":"must be`,
		`{"id": "", "resource": "r", "ttl": 5}`:       `"id":"must be a string that is not empty`,
		`{"resource": "r", "colour": "red"}`:          `"ttl":"is required"`,
		`{"resource": "r", "ttl": 5, "Resource": 1}`:  `"Resource":"unknown parameter; it is spelled resource"`,
		`{"resource": "r", "ttl": 5, "colour": null}`: `"colour":"unknown parameter"`,
		`{"resource": "r", "ttl": 5, "ttl": 6}`:       `"ttl":"is given more than once"`,
		`{"ttl": 5, "ttl": "x", "x": 1, "x": 1}`:      `"x":"is given more than once"`,
		`{"resource": "r", "ttl": 5, "user_data": ` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`: `"message"`,
	} {
		a := do(t, c, "POST", s.url+"/v1/claims/", body, "Content-Type: application/json")
		if a.code != 400 || !strings.Contains(a.body, text) {
			t.Errorf("%.60s: %d %s, want %s", body, a.code, a.body, text)
		}
	}
	// U+FFFD itself is a character like others.
	do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "\ufffd\uFFFD�", "ttl": 5}`).says(t, 201, `"resource":"���"`)
	do(t, c, "GET", s.url+"/v1/claims/?limit=1&limit=2", "").says(t, 400, `"limit":"is given more than once"`)
	do(t, c, "GET", s.url+"/v1/permissions/r/?right=hold&right=read", "").says(t, 400, `"right":"is given more than once"`)
	do(t, c, "GET", s.url+"/v1/permissions/r/", "").says(t, 400, `"right":"is required; it must be one of read, hold, revoke, administer"`)
	do(t, c, "GET", s.url+"/v1/permissions/r/?right=write", "").says(t, 400, `"right":"must be one of read, hold, revoke, administer"`)
	do(t, c, "GET", s.url+"/v1/permissions/r/?right=%ff", "").says(t, 400, `"right":"is not valid UTF-8"`)
	do(t, c, "GET", s.url+"/v1/claims/?owner=%ff", "").says(t, 400, `"owner":"is not valid UTF-8"`)
	do(t, c, "GET", s.url+"/v1/claims/?a;b=1", "").says(t, 400, `"message":"the query cannot be read`)
	do(t, c, "GET", s.url+"/v1/claims/?minimum_created=2026-11-21T17:47:02+01:00", "").says(t, 400, `the \"+\" of a time zone is written %2B`)
	do(t, c, "GET", s.url+"/v1/claims/?minimum_created=2126-11-21T17:47:02%2B01:00", "").says(t, 200, "[]")
	do(t, c, "GET", s.url+"/v1/claims/?limit=%201", "").says(t, 400, `"limit":"must be a whole number`)
	do(t, c, "GET", s.url+"/v1/claims/?limit=null&minimum_ttl=", "").says(t, 400, `"limit":"must be a whole number`)
	do(t, c, "GET", s.url+"/v1/claims/?resource=12", "").says(t, 200, "[]")
	do(t, c, "GET", s.url+"/v1/resources/%ff/", "").says(t, 400, `"resource":"is not valid UTF-8"`)
}

// TestManyMembers: a body with very many members, and a query with very many parameters, are refused as a whole: not each of them.
func TestManyMembers(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	members := func(n int) (body, query string) {
		var in, of []string
		for i := range n {
			in, of = append(in, fmt.Sprintf(`"x%d": 1`, i)), append(of, fmt.Sprintf("x%d=1", i))
		}
		return "{" + strings.Join(in, ", ") + "}", "?" + strings.Join(of, "&")
	}
	body, query := members(100)
	do(t, c, "POST", s.url+"/v1/claims/", body).says(t, 400, `"x99":"unknown parameter"`)
	do(t, c, "GET", s.url+"/v1/claims/"+query, "").says(t, 400, `"x99":"unknown parameter"`)
	for _, n := range []int{101, 5000} {
		body, query = members(n)
		again := "?" + strings.Repeat("limit=1&", n-1) + "limit=1"
		for _, a := range []answer{
			do(t, c, "GET", s.url+"/v1/claims/"+again, ""),
			do(t, c, "POST", s.url+"/v1/claims/", body), do(t, c, "PATCH", s.url+"/v1/claims/c/", body),
			do(t, c, "GET", s.url+"/v1/claims/"+query, ""), do(t, c, "GET", s.url+"/v1/whoami/"+query, ""),
		} {
			a.says(t, 400, "more than 100 ")
			if len(a.body) > 200 {
				t.Errorf("the refusal of %d members has %d bytes", n, len(a.body))
			}
		}
	}
}

// TestBodyLimit: a body that is too large is refused, even if its length is not announced.
func TestBodyLimit(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	large := `{"resource": "r", "ttl": 1, "user_data": "` + strings.Repeat("x", 1<<20) + `"}`
	do(t, c, "POST", s.url+"/v1/claims/", large).says(t, 413, "524288")
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/claims/", io.MultiReader(strings.NewReader(large)))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	must(t, err)
	must(t, resp.Body.Close())
	if resp.StatusCode != 413 {
		t.Errorf("without a length: %d", resp.StatusCode)
	}
	// The largest body that is valid fits, however it is written.
	value := strings.Repeat(`\u0001`, 64<<10)
	do(t, c, "POST", s.url+"/v1/claims/", `{"resource": "v", "ttl": 1, "value": "`+value+`", "user_data": "`+strings.Repeat("x", 64<<10-2)+`"}`).says(t, 201, "")
}

func TestHeaderLimit(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	if a := do(t, c, "GET", s.url+"/v1/claims/", "", "X-Large: "+strings.Repeat("x", 128<<10)); a.code != 431 {
		t.Errorf("got %d", a.code)
	}
}

// TestPaths: a path means the same with a slash at its end and with doubled ones, and is
// never redirected.
func TestPaths(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	do(t, c, "POST", s.url+"/v1/claims", claimOfR).says(t, 201, "")
	for _, path := range []string{"/v1/claims/c", "/v1/claims/c/", "//v1///claims//c//", "/v1/claims/%63", "/v1/resources", "/healthz/", "//metrics"} {
		do(t, c, "GET", s.url+path, "").says(t, 200, "")
	}
	for _, path := range []string{"/v1", "/v1/claim", "/v1/claims/c/d", "/v1/claims/c%2Fd", "/v1/claims/..", "/v1/claims/%2e%2e/locks", "/v1%2Fclaims", "/v1/%63laims", "/v1/resource", "/v2/claims", "/V1/claims"} {
		do(t, c, "GET", s.url+path, "").says(t, 404, `{"message":`)
	}
	for _, name := range []string{"r", "a/b", "/a", "a/", "a//b", "a b", "ä✓", "100%", "a+b", "a?b", "a#b", ".", "..", "a:b", `"<&>"`} {
		a := do(t, c, "GET", s.url+"/v1/resources/"+strings.ReplaceAll(url.PathEscape(name), ".", "%2E")+"/", "")
		a.says(t, 200, `"version":`)
	}
}

func TestMethods(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	for _, call := range []struct{ method, path, allow string }{
		{"PATCH", "/v1/claims", "GET, HEAD, OPTIONS, POST"},
		{"POST", "/v1/claims/c/", "GET, HEAD, OPTIONS, PATCH, PUT, DELETE"},
		{"BREW", "/v1/claims/c/", "GET, HEAD, OPTIONS, PATCH, PUT, DELETE"},
		{"DELETE", "/v1/locks/r", "GET, HEAD, OPTIONS"},
		{"POST", "/metrics", "GET, HEAD, OPTIONS"},
	} {
		a := do(t, c, call.method, s.url+call.path, "")
		a.says(t, 405, "Allow")
		if a.header.Get("Allow") != call.allow {
			t.Errorf("%s %s: Allow: %s", call.method, call.path, a.header.Get("Allow"))
		}
		a = do(t, c, "OPTIONS", s.url+call.path, "")
		if a.code != 204 || a.body != "" || a.header.Get("Allow") != call.allow {
			t.Errorf("OPTIONS %s: %d %s, Allow: %s", call.path, a.code, a.body, a.header.Get("Allow"))
		}
	}
	do(t, c, "OPTIONS", s.url+"/nowhere", "").says(t, 404, "")
	// The method is the method, whatever headers and forms say.
	do(t, c, "POST", s.url+"/v1/claims/", "", "X-HTTP-Method-Override: GET", "Content-Type: application/x-www-form-urlencoded").says(t, 415, "")
}

// TestHead: HEAD has the status and the headers of GET, and no body.
func TestHead(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims", claimOfR)
	for _, path := range []string{"/v1/claims/", "/v1/claims/c/", "/v1/claims/none/", "/v1/resources/r", "/docs", "/healthz"} {
		get, head := do(t, c, "GET", s.url+path, ""), do(t, c, "HEAD", s.url+path, "")
		if head.code != get.code || head.body != "" || head.header.Get("Content-Type") != get.header.Get("Content-Type") {
			t.Errorf("%s: HEAD %d %q %v, GET %d %v", path, head.code, head.body, head.header, get.code, get.header)
		}
	}
}

func TestCompression(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	c.Transport.(*http.Transport).DisableCompression = true
	plain := do(t, c, "GET", s.url+"/openapi.json", "")
	packed := do(t, c, "GET", s.url+"/openapi.json", "", "Accept-Encoding: gzip")
	if packed.header.Get("Content-Encoding") != "gzip" || len(packed.body) >= len(plain.body) {
		t.Fatalf("%v", packed.header)
	}
	reader, err := gzip.NewReader(strings.NewReader(packed.body))
	must(t, err)
	unpacked, err := io.ReadAll(reader)
	must(t, err)
	if string(unpacked) != plain.body {
		t.Error("it unpacks to something else")
	}
	if plain.header.Get("Content-Encoding") != "" || !strings.Contains(plain.header.Get("Vary"), "Accept-Encoding") {
		t.Errorf("uncompressed: %v", plain.header)
	}
}

func TestNoStore(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	for _, path := range []string{"/v1/claims/", "/v1/claims/none", "/nowhere", "/v1/locks"} {
		if got := do(t, c, "GET", s.url+path, "").header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// TestRequestID: an id that can be logged is taken, otherwise one is generated.
func TestRequestID(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	made := regexp.MustCompile(`^[0-9a-f-]{36}$`)
	for id, taken := range map[string]bool{
		"build-17": true, "with space": true, strings.Repeat("x", 128): true,
		"": false, strings.Repeat("x", 129): false, "ä": false, "a\tb": false,
	} {
		got := do(t, c, "GET", s.url+"/v1/claims/none", "", "X-Request-Id: "+id).header.Get("X-Request-Id")
		if taken != (got == id) || (!taken && !made.MatchString(got)) {
			t.Errorf("%q: %q", id, got)
		}
	}
}

// TestAddresses: they are the client's view.
func TestAddresses(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims", claimOfR)
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/claims/c/", nil)
	must(t, err)
	req.Host = "locks.localhost:1"
	resp, err := c.Do(req)
	must(t, err)
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	if want := `"url":"http://locks.localhost:1/v1/claims/c/"`; !strings.Contains(string(body), want) {
		t.Errorf("%s", body)
	}
	old := raw(t, s, "GET /v1/claims/c/ HTTP/1.0\r\n\r\n")
	if !strings.Contains(old, `"url":"`+s.url+`/v1/claims/c/"`) {
		t.Errorf("HTTP/1.0: %s", old)
	}
}

// TestAddressesOverTLS also shows that a page leads to the next.
func TestAddressesOverTLS(t *testing.T) {
	ca := fixtures.NewCA(t)
	pair, err := tls.LoadX509KeyPair(ca.Issue(t, "server"))
	must(t, err)
	s := start(t, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}})
	c := client(t, &tls.Config{RootCAs: ca.Pool()})
	for i := range 7 {
		a := do(t, c, "POST", s.url+"/v1/claims", fmt.Sprintf(`{"resource": "r%d", "ttl": 60, "id": "c%d"}`, i, i))
		if want := fmt.Sprintf("%s/v1/claims/c%d/", s.url, i); a.header.Get("Location") != want {
			t.Errorf("Location: %s, want %s", a.header.Get("Location"), want)
		}
	}
	next, pages := s.url+"/v1/claims/?limit=3&offset=1&status=active", ""
	for next != "" {
		page := do(t, c, "GET", next, "")
		page.says(t, 200, "")
		for _, id := range regexp.MustCompile(`"id":"(c\d)"`).FindAllStringSubmatch(page.body, -1) {
			pages += id[1]
		}
		pages += "|"
		next, _, _ = strings.Cut(strings.TrimPrefix(page.header.Get("Link"), "<"), ">")
	}
	if pages != "c1c2c3|c4c5c6|" {
		t.Errorf("the pages: %s", pages)
	}
}

// raw sends bytes on a connection of its own and returns the answer until the connection is closed.
func raw(t *testing.T, s *server, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, err)
	defer func() { _ = conn.Close() }()
	must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(conn, text)
	must(t, err)
	got, _ := io.ReadAll(conn)
	return string(got)
}

// TestGarbage: bytes that are not HTTP get an answer of 400 or none, and the server keeps serving.
func TestGarbage(t *testing.T) {
	s := start(t, nil)
	for _, text := range []string{
		"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
		"GET /v1/claims/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /v1/claims/ HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"GET /v1/claims/ HTTP/1.1\r\nHost: a b\r\n\r\n",
		"POST /v1/claims/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
		"POST /v1/claims/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n",
		"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\n\r\n",
	} {
		got := raw(t, s, text)
		if got != "" && !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.0 4") {
			t.Errorf("%q: %s", text, got)
		}
	}
	serves(t, s, client(t, nil))
}

// TestMetrics: requests are counted, even if they never become calls.
func TestMetrics(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims", claimOfR)
	do(t, c, "POST", s.url+"/v1/claims", "{")
	do(t, c, "POST", s.url+"/v1/claims", claimOfR, "Origin: http://evil.example")
	body := do(t, c, "GET", s.url+"/metrics", "").body
	for _, line := range []string{
		`locket_http_requests_total{code="201",method="post"} 1`,
		`locket_http_requests_total{code="400",method="post"} 1`,
		`locket_http_requests_total{code="403",method="post"} 1`,
		`locket_request_duration_seconds_count{code="OK",method="CreateClaim"} 1`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("the metrics have no %s", line)
		}
	}
}

// TestMark: every answer has the header of this server.
func TestMark(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	for _, request := range [][2]string{
		{"POST", "/v1/claims/"},
		{"GET", "/v1/claims/none/"},
		{"PATCH", "/v1/claims/none/"},
		{"PUT", "/v1/claims/"},
		{"GET", "/v1/claims/"},
		{"GET", "/nothing"},
		{"OPTIONS", "/v1/claims/"},
		{"GET", "/docs"},
		{"GET", "/metrics"},
	} {
		if got := do(t, c, request[0], s.url+request[1], "{"); got.header.Get("Locket-Api") != "v1" {
			t.Errorf("%v: %v", request, got.header)
		}
	}
}
