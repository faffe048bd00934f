package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
)

// The mix runs with a real server, with every kind of load.
func TestMix(t *testing.T) {
	server := fixtures.StartLocket(t, "embedded:"+filepath.Join(t.TempDir(), "data"))
	for name, rate := range map[string]float64{"open": 50, "closed": 0} {
		t.Run(name, func(t *testing.T) {
			var result mixResult
			for length := time.Second; result.Activations == 0 && length < time.Minute; length *= 2 { // until there was the time for one
				var err error
				if result, err = driveMix(server.HTTPAddress(), rate, 30, length); err != nil {
					t.Fatal(err)
				}
			}
			if result.Activations == 0 || result.All.PerSecond < result.Activations || result.All.Max < result.All.P99 {
				t.Errorf("got %+v", result)
			}
		})
	}
}

// A server that breaks its contract is detected.
func TestMixFails(t *testing.T) {
	var token atomic.Int64
	claim := func(resource string, token int64) string {
		return fmt.Sprintf(`{"id": "c%d", "resource": %q, "status": "active", "token": %d}`, token, resource, token)
	}
	for name, broken := range map[string]struct {
		answer func() (int, string)
		says   string
	}{
		"everybody holds":         {func() (int, string) { return 201, claim("mix-0", token.Add(1)) }, "is held twice"},
		"an error":                {func() (int, string) { return 503, `{"message": "no"}` }, "503"},
		"another resource":        {func() (int, string) { return 201, claim("mix", token.Add(1)) }, "of a claim of mix-0"},
		"a status that is not so": {func() (int, string) { return 202, claim("mix-0", token.Add(1)) }, "waits"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPatch { // a holder goes on to hold until another one does
					_, _ = io.Copy(io.Discard, r.Body)
					<-r.Context().Done()
					return
				}
				code, body := broken.answer()
				if r.Method == http.MethodGet { // monitoring is rare
					code, body = http.StatusOK, "[]"
				}
				w.WriteHeader(code)
				fmt.Fprint(w, body)
			}))
			defer server.Close()
			var err error
			for length := time.Second; err == nil && length < time.Minute; length *= 2 { // until there was the time for it
				_, err = driveMix(strings.TrimPrefix(server.URL, "http://"), 0.5, 1, length) // one resource
			}
			if err == nil || !strings.Contains(err.Error(), broken.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestBook(t *testing.T) {
	b := &book{resource: "r"}
	for _, step := range []struct {
		claim string
		token uint64
		says  string
	}{
		{"a", 5, ""},
		{"b", 6, "is held twice"},
		{"", 0, ""},
		{"c", 5, "comes after 5"},
		{"d", 7, ""},
	} {
		if step.claim == "" {
			b.leave()
			continue
		}
		err := b.hold(step.claim, step.token)
		if (err == nil) != (step.says == "") || err != nil && !strings.Contains(err.Error(), step.says) {
			t.Errorf("%s with token %d: %v", step.claim, step.token, err)
		}
	}
	if b.freed().IsZero() {
		t.Error("it is not known when the first holder left")
	}
	if b.withdraw(); !b.freed().IsZero() {
		t.Error("it is still known when the first holder left")
	}
}
