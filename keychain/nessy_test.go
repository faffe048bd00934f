package keychain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/keychain"
)

// nessyServer is a server of only the REST requirements: it knows no preferences and no keys, refuses unknown
// parameters, and answers PATCH without a body.
type nessyServer struct {
	mu     sync.Mutex
	claims []*entry // all, oldest first
	counts map[string]int
	// marks has the server mark its answers, as Locket does.
	marks bool
	// waitTTLs makes it accept wait TTLs, and report how claims have ended, as Locket does.
	waitTTLs bool

	// fault, if it is set, is asked about each request, by its purpose and its number among
	// the requests of that purpose, from 1.
	fault func(step string, n int) fault
}

// entry is a claim.
type entry struct {
	id, resource, status string
	reason               string
	ttl                  time.Duration
	deadline             time.Time
	data                 json.RawMessage
}

// fault answers a request instead of the server. carryOut lets that do its work first, and
// swallows its answer.
type fault func(w http.ResponseWriter, r *http.Request, carryOut func() *recorded)

// recorded is an answer that is not sent (yet).
type recorded struct {
	code   int
	header http.Header
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header            { return r.header }
func (r *recorded) WriteHeader(code int)           { r.code = code }
func (r *recorded) Write(text []byte) (int, error) { return r.body.Write(text) }
func (r *recorded) sendTo(w http.ResponseWriter) {
	for name, values := range r.header {
		w.Header()[name] = values
	}
	w.WriteHeader(r.code)
	_, _ = w.Write(r.body.Bytes())
}

// steps names a request by its purpose.
var steps = map[string]string{
	"active": "activate", "released": "release", "withdrawn": "withdraw", "aborted": "abort", "revoked": "revoke",
}

func (s *nessyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body map[string]json.RawMessage
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_ = json.Unmarshal(content, &body)
	step := map[string]string{"POST": "register", "GET": "look"}[r.Method]
	if r.Method == "PATCH" {
		var status string
		_ = json.Unmarshal(body["status"], &status)
		if step = steps[status]; step == "" {
			step = "renew"
		}
	}
	s.mu.Lock()
	s.counts[step]++
	n, ask := s.counts[step], s.fault
	s.mu.Unlock()
	carryOut := func() *recorded {
		answer := &recorded{code: http.StatusOK, header: make(http.Header)}
		s.serve(answer, r, body)
		if s.marks && answer.code >= 400 && answer.body.Len() == 0 {
			answer.header.Set("Content-Type", "application/json")
			answer.body.WriteString(`{"message": "refused"}`)
		}
		return answer
	}
	if s.marks {
		w.Header().Set("Locket-Api", "v1")
	}
	if ask != nil {
		if f := ask(step, n); f != nil {
			f(w, r, carryOut)
			return
		}
	}
	carryOut().sendTo(w)
}

func (s *nessyServer) serve(w *recorded, r *http.Request, body map[string]json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	switch {
	case r.Method == "POST" && r.URL.Path == "/v1/claims/":
		s.post(w, r, body)
	case r.Method == "PATCH":
		s.patch(w, s.find(path.Base(r.URL.Path)), body)
	case r.Method == "GET":
		if c := s.find(path.Base(r.URL.Path)); c == nil {
			w.code = http.StatusNotFound
		} else {
			_ = json.NewEncoder(w).Encode(map[string]any{"status": c.status, "resource": c.resource, "user_data": c.data, "reason": c.reason})
		}
	default:
		w.code = http.StatusNotFound
	}
}

func (s *nessyServer) post(w *recorded, r *http.Request, body map[string]json.RawMessage) {
	c := &entry{id: fmt.Sprint("c", len(s.claims)+1), status: "active"}
	var ttl float64
	for name, value := range body {
		switch name {
		case "resource":
			_ = json.Unmarshal(value, &c.resource)
		case "ttl":
			_ = json.Unmarshal(value, &ttl)
		case "user_data":
			c.data = value
		case "wait_ttl":
			if s.waitTTLs {
				continue
			}
			fallthrough
		default:
			w.code = http.StatusBadRequest
			w.header.Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{%q: "unknown parameter"}`, name)
			return
		}
	}
	if c.resource == "" || body["ttl"] == nil {
		w.code = http.StatusBadRequest
		return
	}
	c.ttl = time.Duration(ttl * float64(time.Second))
	c.deadline = time.Now().Add(c.ttl)
	w.code = http.StatusCreated
	if s.holder(c.resource) != nil {
		c.status, w.code = "waiting", http.StatusAccepted
	}
	s.claims = append(s.claims, c)
	w.header.Set("Location", "http://"+r.Host+"/v1/claims/"+c.id+"/")
}

func (s *nessyServer) patch(w *recorded, c *entry, body map[string]json.RawMessage) {
	var status string
	_ = json.Unmarshal(body["status"], &status)
	live := c != nil && (c.status == "waiting" || c.status == "active")
	switch {
	case c == nil:
		w.code = http.StatusNotFound
	case len(body) != 1, !live, body["ttl"] != nil && c.status != "active", status == "released" && c.status != "active":
		w.code = http.StatusBadRequest
		if s.waitTTLs {
			w.header.Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"status": %q}`, c.status)
		}
	case body["ttl"] != nil:
		var ttl float64
		_ = json.Unmarshal(body["ttl"], &ttl)
		c.ttl = time.Duration(ttl * float64(time.Second))
		c.deadline = time.Now().Add(c.ttl)
	case status == "active" && c.status == "waiting":
		w.code = http.StatusConflict
	case status == "active":
	default:
		c.status, w.code = status, http.StatusNoContent
		s.promote(c.resource, time.Now())
	}
}

// sweep expires claims, and activates the next ones at the time of their end.
func (s *nessyServer) sweep() {
	for again := true; again; {
		again = false
		for _, c := range s.claims {
			if c.status == "active" && !time.Now().Before(c.deadline) {
				c.status, again = "expired", true
				s.promote(c.resource, c.deadline)
			}
		}
	}
}

func (s *nessyServer) promote(resource string, at time.Time) {
	if s.holder(resource) != nil {
		return
	}
	for _, c := range s.claims {
		if c.resource == resource && c.status == "waiting" {
			c.status, c.deadline = "active", at.Add(c.ttl)
			return
		}
	}
}

func (s *nessyServer) holder(resource string) *entry {
	for _, c := range s.claims {
		if c.resource == resource && c.status == "active" {
			return c
		}
	}
	return nil
}

func (s *nessyServer) find(id string) *entry {
	for _, c := range s.claims {
		if c.id == id {
			return c
		}
	}
	return nil
}

// statuses returns the statuses of all claims, oldest first.
func (s *nessyServer) statuses() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	for _, c := range s.claims {
		list = append(list, c.status)
	}
	return list
}

// count returns how many requests there were of a kind.
func (s *nessyServer) count(step string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[step]
}

// set changes fields of the server while it runs.
func (s *nessyServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// take has another owner hold a resource, without a request.
func (s *nessyServer) take(resource string, ttl time.Duration) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &entry{id: fmt.Sprint("other", len(s.claims)), resource: resource, status: "active", ttl: ttl, deadline: time.Now().Add(ttl)}
	s.claims = append(s.claims, c)
	return c
}

// free ends a claim of somebody else.
func (s *nessyServer) free(c *entry) {
	s.set(func() {
		c.status = "released"
		s.promote(c.resource, time.Now())
	})
}

// bubble runs a test with a fake clock and a server in it.
func bubble(t *testing.T, test func(t *testing.T, s *nessyServer, connect func(options ...keychain.Option) *keychain.Keychain)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &nessyServer{counts: make(map[string]int)}
		listener := fixtures.NewPipes()
		server := &http.Server{Handler: s}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		transport := &http.Transport{DialContext: listener.Dial, MaxResponseHeaderBytes: 64 << 10}
		defer func() {
			transport.CloseIdleConnections()
			_ = server.Close()
			<-served
			time.Sleep(time.Minute) // sleeping goroutines wake up and end
		}()
		test(t, s, func(options ...keychain.Option) *keychain.Keychain {
			kc, err := keychain.New("http://nessy", append([]keychain.Option{
				keychain.WithTransport(transport), keychain.WithLogger(slog.New(testLog{t})),
				keychain.WithDefaults(keychain.WithWaitTTL(0)), // one POST for each claim; TestRefusedWaitTTL is without this
			}, options...)...)
			must(t, err)
			return kc
		})
	})
}

// testLog is a logger that fails the test when the state machine refuses an event.
type testLog struct{ t *testing.T }

func (testLog) Enabled(context.Context, slog.Level) bool { return true }
func (w testLog) WithAttrs([]slog.Attr) slog.Handler     { return w }
func (w testLog) WithGroup(string) slog.Handler          { return w }

func (w testLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "refused" {
		r.Attrs(func(a slog.Attr) bool {
			w.t.Errorf("refused: %s", a)
			return true
		})
	}
	return nil
}
