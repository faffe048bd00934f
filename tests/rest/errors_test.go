package rest_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/tests/harness"
)

var contractErrors = []sentence{
	{"The keys of an error's body name all the parameters that are wrong", func(t *testing.T, s *restServer) {
		s.post(t, `{"colour": "red", "owner": 5, "mode": "both", "type": "key", "id": "", "value": 7}`).
			refuses(t, http.StatusBadRequest, "colour", "owner", "mode", "type", "value", "id", "resource", "ttl")
		s.post(t, `{"resource": "r\u0000", "id": "a b", "ttl": -1}`).refuses(t, http.StatusBadRequest, "resource", "id", "ttl")
	}},
	{"A parameter that is missing and one that is unknown are both named", func(t *testing.T, s *restServer) {
		s.post(t, `{"resource": "r", "colour": "red"}`).refuses(t, http.StatusBadRequest, "ttl", "colour")
	}},
	{"The names of parameters are these, letter for letter", func(t *testing.T, s *restServer) {
		s.post(t, `{"Resource": "r", "TTL": 1}`).refuses(t, http.StatusBadRequest, "Resource", "TTL", "resource", "ttl")
		s.post(t, `{"resource": "r", "ttl": 1, "userData": 1}`).refuses(t, http.StatusBadRequest, "userData")
		c := s.hold(t, t.Name())
		s.patch(t, c.ID, `{"Status": "released"}`).is(t, http.StatusBadRequest)
		s.patch(t, c.ID, `{"ttl": 1, "Status": "released"}`).refuses(t, http.StatusBadRequest, "Status")
		s.patch(t, c.ID, `{"ttl": 1, "id": "x"}`).refuses(t, http.StatusBadRequest, "id")
		s.stands(t, c.ID, "active")
	}},
	{"Two updates at once, and none, are 400", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		for _, body := range []string{`{"ttl": 60, "status": "active"}`, `{"status": "withdrawn", "ttl": 0}`} {
			s.patch(t, c.ID, body).refuses(t, http.StatusBadRequest, "ttl", "status")
		}
		for _, body := range []string{`{}`, `{"ttl": null}`, `{"status": null}`, `{"ttl": null, "status": null}`, `{"reason": "why not"}`} {
			s.patch(t, c.ID, body).is(t, http.StatusBadRequest)
			s.put(t, c.ID, body).is(t, http.StatusBadRequest)
		}
		s.patch(t, c.ID, `{"ttl": 60, "reason": "why not"}`).refuses(t, http.StatusBadRequest, "reason")
		s.patch(t, c.ID, `{"status": "active", "reason": "why not"}`).refuses(t, http.StatusBadRequest, "reason")
		if is := s.stands(t, c.ID, "active"); is.Version != c.Version {
			t.Error("one of them has changed the claim")
		}
	}},
	{"A body that is no JSON object is 400", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		for _, body := range []string{
			``, ` `, `null`, `[]`, `[{"ttl": 1}]`, `"ttl"`, `5`, `true`, `{`, `{"ttl": 1`, `{"ttl": 1}}`, `{"ttl": 1}{"ttl": 2}`, `{"ttl": 1,}`, `{'ttl': 1}`,
			`{ttl: 1}`, `{"ttl": NaN}`, `{"ttl": Infinity}`, `{"ttl": 01}`, `{"ttl": 1} x`, "{\"ttl\": 1}\x00", "{\"ttl\": 1, \"a\xff\": 1}", "ttl=1",
			"\ufeff{\"ttl\": 1}", strings.Repeat("[", 100_000),
		} {
			s.post(t, body).refuses(t, http.StatusBadRequest, "message")
			s.patch(t, c.ID, body).refuses(t, http.StatusBadRequest, "message")
			s.put(t, c.ID, body).refuses(t, http.StatusBadRequest, "message")
		}
	}},
	{"A change that the claim's status does not allow is 400: message, and the status that it has", func(t *testing.T, s *restServer) {
		for _, status := range []string{"waiting", "released", "expired"} {
			c := inStatus(t, s, status)
			if problems := s.patch(t, c.ID, object{"ttl": 60}).refuses(t, http.StatusBadRequest, "message", "status"); problems["status"] != status {
				t.Errorf("the status is said to be %s, not %s", problems["status"], status)
			}
		}
	}},
	{"409 for a claim that waits: its position, and who holds the resource", func(t *testing.T, s *restServer) {
		holder := s.post(t, object{"resource": t.Name(), "ttl": 60, "owner": "the holder"}).is(t, http.StatusCreated).claim(t)
		s.queue(t, t.Name())
		waiter := s.queue(t, t.Name())
		problems := s.patch(t, waiter.ID, object{"status": "active"}).refuses(t, http.StatusConflict, "message", "position", "holder", "claim_id", "token")
		if problems["position"] != "2" || problems["holder"] != "the holder" || problems["claim_id"] != holder.ID || problems["token"] != fmt.Sprint(*holder.Token) {
			t.Errorf("%v", problems)
		}
	}},
	{"421: a Host that is no name of the server; 403: a page of another origin", func(t *testing.T, s *restServer) {
		s.do(t, "GET", "/v1/claims/", nil, "Host", "evil.example").refuses(t, http.StatusMisdirectedRequest, "message")
		s.post(t, object{"resource": t.Name(), "ttl": 60, "id": "cross-site"}, "Origin", "http://evil.example").refuses(t, http.StatusForbidden, "message")
		s.post(t, object{"resource": t.Name(), "ttl": 60, "id": "cross-site"}, "Sec-Fetch-Site", "cross-site").refuses(t, http.StatusForbidden, "message")
		s.do(t, "GET", claimPath("cross-site"), nil).is(t, http.StatusNotFound)
	}},
	{"499: a client that has closed its side of the connection has left", func(t *testing.T, s *restServer) {
		s.hold(t, t.Name())
		for range 100 {
			halfClosed(t, s, "GET /v1/claims/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
			halfClosed(t, s, "GET /v1/resources/x/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		}
	}},
	{"413: a body of more than 512 KiB", func(t *testing.T, s *restServer) {
		s.post(t, `{"resource": "`+t.Name()+`", "ttl": 60`+strings.Repeat(" ", 400<<10)+`}`).is(t, http.StatusCreated)
		s.post(t, `{"resource": "r", "ttl": 60`+strings.Repeat(" ", 512<<10)+`}`).refuses(t, http.StatusRequestEntityTooLarge, "message")
	}},
	{"415: a body that is not application/json in UTF-8, or is compressed", func(t *testing.T, s *restServer) {
		body := object{"resource": t.Name(), "ttl": 60}
		for _, contentType := range []string{
			"text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data", "application/json; charset=latin1", "json", "application/json; charset",
		} {
			s.post(t, body, "Content-Type", contentType).refuses(t, http.StatusUnsupportedMediaType, "message")
		}
		for _, contentType := range []string{"application/json", "application/json; charset=utf-8", `Application/JSON;charset="UTF-8"`, "application/json;v=1"} {
			if a := s.post(t, body, "Content-Type", contentType); a.code != http.StatusCreated && a.code != http.StatusAccepted {
				t.Errorf("%q: %d %s", contentType, a.code, a.body)
			}
		}
		var compressed bytes.Buffer
		writer := gzip.NewWriter(&compressed)
		_, err := writer.Write([]byte(`{"resource": "r", "ttl": 60}`))
		harness.Must(t, err)
		harness.Must(t, writer.Close())
		s.post(t, compressed.String(), "Content-Encoding", "gzip").refuses(t, http.StatusUnsupportedMediaType, "message")
	}},
	{"431: headers of more than 64 KiB", func(t *testing.T, s *restServer) {
		s.do(t, "GET", "/v1/claims/?limit=1", nil, "X-Large", strings.Repeat("a", 32<<10)).is(t, http.StatusOK)
		if a := s.do(t, "GET", "/v1/claims/?limit=1", nil, "X-Large", strings.Repeat("a", 80<<10)); a.code != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("got %d", a.code)
		}
	}},
}

// halfClosed sends a request, closes its side of the connection, and reads the answer.
func halfClosed(t *testing.T, s *restServer, request string) {
	t.Helper()
	conn, err := net.Dial("tcp", s.HTTPAddress())
	harness.Must(t, err)
	defer func() { _ = conn.Close() }()
	harness.Must(t, conn.SetDeadline(time.Now().Add(harness.HangTimeout)))
	_, err = io.WriteString(conn, request)
	harness.Must(t, err)
	harness.Must(t, conn.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(conn)
	harness.Must(t, err)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 200") && !strings.HasPrefix(string(answer), "HTTP/1.1 499") {
		t.Errorf("%s", answer)
	}
}

var contractLimits = []sentence{
	{"resource: 1 to 1,024 bytes of valid UTF-8 without NUL", func(t *testing.T, s *restServer) {
		for _, name := range []string{strings.Repeat("r", 1024), strings.Repeat("ü", 512), strings.Repeat("🔒", 256), "\u0001", " "} {
			c := s.post(t, object{"resource": name, "ttl": 60}).is(t, http.StatusCreated).claim(t)
			if c.Resource != name || s.resource(t, url.PathEscape(name)).Resource != name || len(s.list(t, "resource="+url.QueryEscape(name))) != 1 {
				t.Errorf("%q is not found", cut([]byte(name)))
			}
		}
		for _, name := range []string{`"` + strings.Repeat("r", 1025) + `"`, `"` + strings.Repeat("ü", 512) + `a"`, `"a\u0000b"`, `"\u0000"`, `"\ud800"`, `"\udc00\ud800"`} {
			s.post(t, `{"resource": `+name+`, "ttl": 60}`).refuses(t, http.StatusBadRequest, "resource")
		}
		s.post(t, `{"resource": "\ufffd", "ttl": 60}`).is(t, http.StatusCreated)
	}},
	{"owner: up to 1,024 bytes", func(t *testing.T, s *restServer) {
		for i, owner := range []string{strings.Repeat("o", 1024), strings.Repeat("☃", 341), "o"} {
			c := s.post(t, object{"resource": fmt.Sprint(t.Name(), i), "ttl": 60, "owner": owner}).is(t, http.StatusCreated).claim(t)
			if !ptrEqual(c.Owner, owner) {
				t.Errorf("the owner is %s", show(c.Owner))
			}
		}
		for _, owner := range []string{strings.Repeat("o", 1025), strings.Repeat("☃", 342), "a\x00"} {
			s.post(t, object{"resource": "r", "ttl": 60, "owner": owner}).refuses(t, http.StatusBadRequest, "owner")
		}
	}},
	{"value and user_data: up to 64 KiB", func(t *testing.T, s *restServer) {
		const limit = 64 << 10
		most := object{"resource": t.Name(), "ttl": 60, "value": strings.Repeat("v", limit), "user_data": strings.Repeat("u", limit-2)}
		c := s.post(t, most).is(t, http.StatusCreated).claim(t)
		if is := s.get(t, c.ID); !ptrEqual(is.Value, strings.Repeat("v", limit)) || len(is.UserData) != limit {
			t.Errorf("value of %d bytes, user_data of %d", len(*is.Value), len(is.UserData))
		}
		s.post(t, object{"resource": "r", "ttl": 60, "value": strings.Repeat("v", limit+1)}).refuses(t, http.StatusBadRequest, "value")
		s.post(t, object{"resource": "r", "ttl": 60, "user_data": strings.Repeat("u", limit-1)}).refuses(t, http.StatusBadRequest, "user_data")
		control := strings.Repeat(`\u0001`, limit)
		s.post(t, `{"resource": "`+t.Name()+`", "ttl": 60, "value": "`+control+`"}`).is(t, http.StatusAccepted)
	}},
	{"ttl: up to 100 years, and no infinity", func(t *testing.T, s *restServer) {
		const century = 100 * 365.25 * 24 * 60 * 60
		c := s.post(t, object{"resource": t.Name(), "ttl": century}).is(t, http.StatusCreated).claim(t)
		about(t, "ttl", c.TTL, century)
		about(t, "ttl", s.patch(t, c.ID, object{"ttl": century}).is(t, http.StatusOK).claim(t).TTL, century)
		for _, ttl := range []string{"3155760000.1", "3155760001", "1e10", "1e308", "1e309", "-1e309", "99999999999999999999999999"} {
			s.post(t, `{"resource": "r", "ttl": `+ttl+`}`).refuses(t, http.StatusBadRequest, "ttl")
			s.patch(t, c.ID, `{"ttl": `+ttl+`}`).refuses(t, http.StatusBadRequest, "ttl")
			s.put(t, c.ID, `{"status": "active", "ttl": `+ttl+`}`).refuses(t, http.StatusBadRequest, "ttl")
		}
	}},
	{"reason: up to 1,024 bytes", func(t *testing.T, s *restServer) {
		c := s.hold(t, t.Name())
		long := strings.Repeat("r", 1024)
		s.patch(t, c.ID, object{"status": "revoked", "reason": long + "r"}).refuses(t, http.StatusBadRequest, "reason")
		s.do(t, "DELETE", claimPath(c.ID)+"?reason="+long+"r", nil).refuses(t, http.StatusBadRequest, "reason")
		s.patch(t, c.ID, object{"status": "revoked", "reason": long}).is(t, http.StatusNoContent)
		if is := s.get(t, c.ID); !ptrEqual(is.Reason, long) {
			t.Errorf("the reason is %s", show(is.Reason))
		}
	}},
	{"Each limit has its own clear error", func(t *testing.T, s *restServer) {
		for name, test := range map[string]struct {
			value any
			words string
		}{
			"resource":  {strings.Repeat("r", 1025), "1024"},
			"owner":     {strings.Repeat("r", 1025), "1024"},
			"value":     {strings.Repeat("r", 64<<10+1), "65536"},
			"user_data": {strings.Repeat("r", 64<<10), "65536"},
			"ttl":       {1e10, "3155760000"},
			"id":        {strings.Repeat("r", 129), "128"},
		} {
			body := object{"resource": "r", "ttl": 60}
			body[name] = test.value
			if problem := s.post(t, body).refuses(t, http.StatusBadRequest, name)[name]; !strings.Contains(problem, test.words) {
				t.Errorf("%s: %q does not tell the limit, %s", name, problem, test.words)
			}
		}
		for query, words := range map[string]string{
			"claims/?limit=4294967296": "1 and 1000", "resources/?limit=99999999999": "1 and 1000", "locks/?limit=1e2": "1 and 1000", "claims/?offset=99999999999": "0 and 1048576",
		} {
			name, _, _ := strings.Cut(query[strings.Index(query, "?")+1:], "=")
			if problem := s.do(t, "GET", "/v1/"+query, nil).refuses(t, http.StatusBadRequest, name)[name]; !strings.Contains(problem, words) {
				t.Errorf("%s: %q does not tell the limit, %s", query, problem, words)
			}
		}
	}},
}

var contractManners = []sentence{
	{"X-Request-Id is used, or generated, and comes back", func(t *testing.T, s *restServer) {
		if a := s.do(t, "GET", "/v1/claims/", nil, "X-Request-Id", "my request 7"); a.header.Get("X-Request-Id") != "my request 7" {
			t.Errorf("got %q", a.header.Get("X-Request-Id"))
		}
		first, second := s.do(t, "GET", "/v1/claims/", nil), s.do(t, "GET", "/v1/claims/nosuch", nil)
		if a, b := first.header.Get("X-Request-Id"), second.header.Get("X-Request-Id"); a == "" || b == "" || a == b {
			t.Errorf("got %q and %q", a, b)
		}
	}},
	{"Answers carry Cache-Control: no-store", func(t *testing.T, s *restServer) {
		for _, path := range []string{"/v1/claims/", "/v1/claims/nosuch", "/v1/locks/", "/v1/resources/a"} {
			if a := s.do(t, "GET", path, nil); a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: Cache-Control %q", a.request, a.header.Get("Cache-Control"))
			}
		}
	}},
	{"Answers are compressed for those who accept gzip", func(t *testing.T, s *restServer) {
		c := s.post(t, object{"resource": t.Name(), "ttl": 60, "user_data": strings.Repeat("long ", 1000)}).is(t, http.StatusCreated).claim(t)
		a := s.do(t, "GET", claimPath(c.ID), nil, "Accept-Encoding", "gzip")
		if a.code != http.StatusOK || a.header.Get("Content-Encoding") != "gzip" || len(a.body) > 2500 {
			t.Errorf("%d, Content-Encoding %q, %d bytes", a.code, a.header.Get("Content-Encoding"), len(a.body))
		}
		if a := s.do(t, "GET", claimPath(c.ID), nil, "Accept-Encoding", "identity"); a.header.Get("Content-Encoding") != "" || len(a.body) < 5000 {
			t.Errorf("Content-Encoding %q, %d bytes", a.header.Get("Content-Encoding"), len(a.body))
		}
	}},
}
