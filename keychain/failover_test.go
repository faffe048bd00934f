package keychain_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/keychain"
	"github.com/locket-service/locket/tests/harness"
)

// hosts has a server answer under several names; each may have faults of its own.
type hosts struct {
	server *nessyServer
	mu     sync.Mutex
	faults map[string]fault
	asked  []string // names, in the order of the requests
}

func (h *hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	f := h.faults[r.URL.Host]
	h.asked = append(h.asked, r.URL.Host)
	h.mu.Unlock()
	answers := make(chan *http.Response, 1)
	go func() {
		w := httptest.NewRecorder()
		if f == nil {
			h.server.ServeHTTP(w, h.strip(r))
		} else {
			f(w, r, nil)
		}
		answer := w.Result()
		if location := answer.Header.Get("Location"); location != "" {
			answer.Header.Set("Location", strings.Replace(location, "http://b/", "http://b/sub/", 1))
		}
		answers <- answer
	}()
	select {
	case answer := <-answers:
		return answer, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// strip has one of the servers be below a path.
func (h *hosts) strip(r *http.Request) *http.Request {
	inner := r.Clone(r.Context())
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	if r.URL.Host != "b" {
		return inner
	}
	path, below := strings.CutPrefix(r.URL.Path, "/sub")
	if !below {
		path = "/nothing"
	}
	inner.URL.Path = path
	return inner
}

// fail sets the faults of the servers, by name.
func (h *hosts) fail(faults map[string]fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults, h.asked = faults, nil
}

func (h *hosts) requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.asked...)
}

// If one or two of three servers fail, a claim is obtained, kept and released at the others. A working server is
// asked until it fails.
func TestFailover(t *testing.T) {
	down := map[string]fault{
		"silent":      hangs,
		"503":         says(503, "", "Retry-After: 60"),
		"a proxy":     unmarked(says(404, "<html>")),
		"no 401 here": unmarked(says(401, "")),
	}
	for name, f := range down {
		for _, ttl := range []time.Duration{3 * time.Second, scriptedTTL} {
			t.Run(name+" "+ttl.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *nessyServer, _ connect) {
					s.marks = true
					h := &hosts{server: s}
					kc, err := keychain.New("http://a/", keychain.WithTransport(h), keychain.WithFailover("http://b/sub", "http://c"))
					must(t, err)
					h.fail(map[string]fault{"a": f})
					c := claim(t, kc, "r", keychain.WithTTL(ttl))
					for _, faults := range []map[string]fault{{"a": f}, {"b": f}, {"b": f, "c": f}, {"a": f, "c": f}, {"a": f, "b": f}} {
						h.fail(faults)
						for range 50 {
							time.Sleep(ttl / 10)
							s.agrees(t, c)
							if !c.Held() {
								t.Fatalf("%v; %v", faults, c.Err())
							}
						}
						asked := h.requests()
						if last := asked[len(asked)-1]; faults[last] != nil {
							t.Errorf("%s is asked, which fails", last)
						}
						if n := len(asked); n > 40 {
							t.Errorf("%d requests", n)
						}
					}
					h.fail(nil)
					must(t, errors.Join(c.Validate(t.Context()), c.Release(t.Context()), kc.Close()))
					if last := h.requests()[0]; last != "c" {
						t.Errorf("the next one asked is %s: one that works again must wait for its turn", last)
					}
				})
			})
		}
	}
}

// Two servers share a database. When one is killed, the claim continues at the other, under its address there. POST
// finds the same claim there, and no claim counts as a stray.
func TestFailoverOfServers(t *testing.T) {
	t.Parallel()
	server := startLocket(t)
	cut := fixtures.NewProxy(t, server.HTTPAddress())
	kc := open(t, "http://"+cut.Addr(), keychain.WithFailover("http://"+server.HTTPAddress()), keychain.WithRequestTimeout(3*time.Second))
	c := claim(t, kc, "r", keychain.WithTTL(5*time.Minute))
	cut.Hang()
	must(t, c.Refresh(t.Context(), 0))
	harness.Eventually(t, func() error { return c.Validate(t.Context()) }) // an answer may take more than three seconds
	d := claim(t, kc, "other")
	if !strings.HasPrefix(d.URL(), "http://"+cut.Addr()) {
		t.Errorf("%s is not at the first server", d.URL())
	}
	must(t, errors.Join(c.Release(t.Context()), d.Release(t.Context()), kc.Close()))
}

// forward is a proxy before a server.
func forward(server *fixtures.Locket) http.Handler {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", server.HTTPAddress()
		r.Out.Host = r.In.Host
	}}
}

// A credential that is replaced in its file is used at once; while there is none in it, or no file,
// the last one is.
func TestCredentialFile(t *testing.T) {
	t.Parallel()
	server := startLocket(t)
	var wanted, seen atomic.Value
	wanted.Store("first")
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if seen.Load() != wanted.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		forward(server).ServeHTTP(w, r)
	}))
	t.Cleanup(refusing.Close)
	file := filepath.Join(t.TempDir(), "credential")
	if _, err := keychain.New(refusing.URL, keychain.WithCredentialFile(file)); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("no file: %v", err)
	}
	must(t, os.WriteFile(file, []byte(" first\n"), 0o600))
	alerts := make(chan error, 10)
	kc := open(t, refusing.URL, keychain.WithCredentialFile(file), keychain.WithAlert(func(err error) { alerts <- err }))
	c := claim(t, kc, "r", keychain.WithTTL(5*time.Minute))
	for _, bad := range []string{"", "\n", "two words\n", "nul\x00\n", strings.Repeat("x", 1<<20)} {
		must(t, os.WriteFile(file, []byte(bad), 0o600))
		must(t, c.Refresh(t.Context(), 0))
	}
	must(t, os.Remove(file))
	must(t, c.Refresh(t.Context(), 0))
	wanted.Store("second")
	refreshed := harness.Later(func() error { return c.Refresh(t.Context(), 0) })
	if alert := harness.Await(t, "an alert", alerts); !strings.Contains(alert.Error(), "401") {
		t.Errorf("%v", alert)
	}
	must(t, os.WriteFile(file, []byte("second"), 0o600))
	must(t, harness.Await(t, "end of the refresh", refreshed)) // 401 until then
	if seen.Load() != "second" {
		t.Errorf("the server got %q", seen.Load())
	}
	must(t, c.Release(t.Context()))
}
