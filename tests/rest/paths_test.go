package rest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

var contractPaths = []sentence{
	{"A path means the same without its final slash and with doubled slashes, never a redirect", func(t *testing.T, s *restServer) {
		for _, variant := range []func(string) string{
			func(path string) string { return path },
			func(path string) string { return strings.TrimSuffix(path, "/") },
			func(path string) string { return strings.ReplaceAll(path, "/", "//") },
			func(path string) string { return path + "//" },
			func(path string) string { return "//" + strings.TrimPrefix(strings.TrimSuffix(path, "/"), "/") },
			func(path string) string { return strings.Replace(path, "/v1/", "/v1///", 1) },
		} {
			everyRoute(t, s, variant)
		}
	}},
	{"Anything that is no claim id is 404", func(t *testing.T, s *restServer) {
		for _, id := range []string{
			"nosuch", "0", "-1", "null", "undefined", "%20", "a%20b", "%00", "a%00b", "%2F", "a%2Fb", "%2F%2F", "%2F..%2F", "a/b", "a/b/c",
			".", "..", "...", "%2E", "%2E%2E", "%2e%2e%2fclaims", "%FF%FE", "ü", "%F0%9F%94%92", "%25", "%2525", "a:b", ":", "a;b", "a=b",
			"a,b", "*", "**", "{id}", "%7Bid%7D", "%0A", "%0D%0A", "'%20OR%20'1'='1", `%22`, "%3Cb%3E", "@", "~", "_", "%3F", "%23",
			strings.Repeat("a", 128), strings.Repeat("a", 129), strings.Repeat("a", 10_000), strings.Repeat("%61", 10_000), strings.Repeat("a/", 1000) + "a",
			"06hn0000000000000000000000", "2026-11-21T17:47:02Z", "1e309", "NaN",
		} {
			for method, body := range map[string]any{
				"GET": nil, "PATCH": object{"ttl": 60}, "PUT": object{"ttl": 60, "status": "active"}, "DELETE": nil,
			} {
				a := s.do(t, method, "/v1/claims/"+id+"/", body)
				a.request = cut([]byte(a.request))
				a.refuses(t, http.StatusNotFound, "message")
			}
			if a := s.do(t, "HEAD", "/v1/claims/"+id, nil); a.code != http.StatusNotFound {
				t.Errorf("%s: %d", a.request, a.code)
			}
		}
	}},
	{"Other paths are 404", func(t *testing.T, s *restServer) {
		for _, path := range []string{"/v1/", "/v1", "/v2/claims/", "/claims/", "/v1/claim/", "/V1/claims/", "/v1/Claims/", "/nosuch"} {
			s.do(t, "GET", path, nil).refuses(t, http.StatusNotFound, "message")
			s.do(t, "POST", path, object{"resource": "r", "ttl": 60}).refuses(t, http.StatusNotFound, "message")
		}
	}},
	{"405: not with this method; Allow has those that are", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		for _, test := range []struct{ method, path, allow string }{
			{"PUT", "/v1/claims/", "GET, HEAD, OPTIONS, POST"},
			{"DELETE", "/v1/claims/", "GET, HEAD, OPTIONS, POST"},
			{"PATCH", "/v1/claims", "GET, HEAD, OPTIONS, POST"},
			{"POST", claimPath(c.ID), "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"},
			{"TRACE", claimPath(c.ID), "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"},
			{"POST", "/v1/locks/", "GET, HEAD, OPTIONS"},
			{"DELETE", "/v1/locks/a", "GET, HEAD, OPTIONS"},
			{"PATCH", "/v1/resources/a/", "GET, HEAD, OPTIONS"},
			{"POST", "/v1/resources/", "GET, HEAD, OPTIONS"},
			{"PATCH", "/v1/sessions/a/", "DELETE, GET, HEAD, OPTIONS"},
			{"DELETE", "/v1/status/", "GET, HEAD, OPTIONS"},
			{"PUT", "/v1/presences//", "GET, HEAD, OPTIONS"},
		} {
			a := s.do(t, test.method, test.path, nil)
			a.refuses(t, http.StatusMethodNotAllowed, "message")
			allowed := strings.Split(a.header.Get("Allow"), ", ")
			if slices.Sort(allowed); strings.Join(allowed, ", ") != test.allow {
				t.Errorf("%s: Allow: %q, want %q", a.request, allowed, test.allow)
			}
		}
	}},
	{"HEAD and OPTIONS everywhere", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		for _, path := range []string{
			"/v1/claims/", claimPath(c.ID), "/v1/resources/" + url.PathEscape(t.Name()), "/v1/locks/", "/v1/locks/" + url.PathEscape(t.Name()), "/v1/presences/", "/v1/resources/", "/v1/sessions/", "/v1/status/",
		} {
			if a := s.do(t, "HEAD", path, nil); a.code != http.StatusOK || len(a.body) > 0 || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d %s, Content-Type %q", a.request, a.code, a.body, a.header.Get("Content-Type"))
			}
			if a := s.do(t, "OPTIONS", path, nil); a.code != http.StatusNoContent || !strings.Contains(a.header.Get("Allow"), "OPTIONS") {
				t.Errorf("%s: %d, Allow %q", a.request, a.code, a.header.Get("Allow"))
			}
		}
	}},
	{"A request that is no HTTP is 400 and harms nobody", func(t *testing.T, s *restServer) {
		for _, target := range []string{"/v1/claims/%zz/", "/v1/claims/%/", "v1/claims", "/v1/claims/a b/"} {
			if code := rawRequest(t, s, target); code != http.StatusBadRequest && code != http.StatusNotFound {
				t.Errorf("%q: %d", target, code)
			}
		}
	}},
}

// everyRoute takes every route once, by a variant of its path.
func everyRoute(t *testing.T, s *restServer, variant func(string) string) {
	t.Helper()
	name := fmt.Sprintf("%s%d", url.PathEscape(t.Name()), len(variant("/v1/a/")))
	body := object{"resource": t.Name() + variant("/v1/a/"), "ttl": 60}
	c := s.do(t, "POST", variant("/v1/claims/"), body).is(t, http.StatusCreated).claim(t)
	s.do(t, "GET", variant("/v1/claims/"), nil).is(t, http.StatusOK).claims(t)
	s.do(t, "GET", variant("/v1/claims/")+"?limit=1", nil).is(t, http.StatusOK).claims(t)
	s.do(t, "GET", variant(claimPath(c.ID)), nil).is(t, http.StatusOK)
	s.do(t, "PATCH", variant(claimPath(c.ID)), object{"ttl": 60}).is(t, http.StatusOK)
	s.do(t, "PUT", variant(claimPath(c.ID)), object{"ttl": 60, "status": "active"}).is(t, http.StatusOK)
	s.do(t, "GET", variant("/v1/locks/"), nil).is(t, http.StatusOK)
	s.do(t, "GET", variant("/v1/presences/"), nil).is(t, http.StatusOK)
	s.do(t, "GET", variant("/v1/resources/"+name+"/"), nil).is(t, http.StatusOK)
	s.do(t, "GET", variant("/v1/locks/"+name+"/"), nil).is(t, http.StatusNotFound)
	s.do(t, "GET", variant("/v1/presences/"+name+"/"), nil).is(t, http.StatusNotFound)
	s.do(t, "DELETE", variant(claimPath(c.ID)), nil).is(t, http.StatusNoContent)
}

// rawRequest sends a target that no proper client would send, and returns the status.
func rawRequest(t *testing.T, s *restServer, target string) int {
	t.Helper()
	conn, err := net.Dial("tcp", s.HTTPAddress())
	harness.Must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	harness.Must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	harness.Must(t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}
