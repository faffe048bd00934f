package keychain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/keychain"
)

func jsonBody(v any) io.Reader {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return bytes.NewReader(text)
}

// says answers with a code and a body, and changes nothing.
func says(code int, body string, headers ...string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ func() *recorded) {
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// slowly answers after a second.
func slowly(w http.ResponseWriter, _ *http.Request, carryOut func() *recorded) {
	time.Sleep(time.Second)
	carryOut().sendTo(w)
}

// hangs never answers.
func hangs(_ http.ResponseWriter, r *http.Request, _ func() *recorded) { <-r.Context().Done() }

// cuts closes the connection.
func cuts(w http.ResponseWriter, _ *http.Request, _ func() *recorded) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}

// writes closes the connection after some bytes that are not HTTP.
func writes(text string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ func() *recorded) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, text)
			conn.Close()
		}
	}
}

// unheard executes the request, and then does something else than answering.
func unheard(then fault) fault {
	return func(w http.ResponseWriter, r *http.Request, carryOut func() *recorded) {
		carryOut()
		then(w, r, nil)
	}
}

// after is how late the answer of a server is that has done its work at once.
func after(pause time.Duration) fault {
	return func(w http.ResponseWriter, r *http.Request, carryOut func() *recorded) {
		answer := carryOut()
		rest(r, pause)
		answer.sendTo(w)
	}
}

// rest sleeps, unless the client disconnects.
func rest(r *http.Request, pause time.Duration) {
	if pause == 0 {
		return
	}
	select {
	case <-time.After(pause): // real time: none, faults run in bubbles
	case <-r.Context().Done():
	}
}

// withBody is the true answer with another body.
func withBody(write func(w http.ResponseWriter, r *http.Request)) fault {
	return func(w http.ResponseWriter, r *http.Request, carryOut func() *recorded) {
		answer := carryOut()
		for name, values := range answer.header {
			w.Header()[name] = values
		}
		if answer.code == http.StatusNoContent { // no body is possible there
			answer.code = http.StatusOK
		}
		w.WriteHeader(answer.code)
		write(w, r)
	}
}

func text(body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// endless writes for as long as somebody reads, with pauses.
func endless(chunk string, pause time.Duration) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			rest(r, pause)
		}
	}
}

// after some answers, requests are repeated.
var passing = map[string]fault{
	"500":                 says(500, `{"message": "a bug"}`),
	"502, HTML":           says(502, "<html>Bad Gateway"),
	"503":                 says(503, `{"message": "no database"}`, "Retry-After: 1"),
	"503, a long pause":   says(503, ``, "Retry-After: 60000"),
	"504":                 says(504, ""),
	"599":                 says(599, ""),
	"408":                 says(408, ""),
	"429":                 says(429, "slowly", "Retry-After: 1"),
	"301":                 says(301, "", "Location: http://elsewhere/"),
	"302, to itself":      says(302, "", "Location: /v1/claims/"),
	"307":                 says(307, "", "Location: /v1/claims/"),
	"304":                 says(304, ""),
	"206":                 says(206, "{}"),
	"203":                 says(203, "{}"),
	"hangs":               hangs,
	"cut":                 cuts,
	"cut amid the header": writes("HTTP/1.1 200 O"),
	"cut amid the body":   writes("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
	"no HTTP":             writes("220 ESMTP ready\r\n"),
	"a portal":            says(200, "<html>Please log in</html>", "Content-Type: text/html"),
	"a list":              says(200, "[]"),
	"half of JSON":        says(200, `{"status": "acti`),
	"another status":      says(200, `{"status": "waiting"}`),
	"an endless header":   says(200, "{}", "X: "+strings.Repeat("x", 128<<10)),
	"an endless body":     says(200, "{"+strings.Repeat(" ", 2<<20)+"}"),
	"a slow body": func(w http.ResponseWriter, r *http.Request, _ func() *recorded) {
		endless(" ", time.Second)(w, r)
	},
	// These have executed the request.
	"done, cut":             unheard(cuts),
	"done, hangs":           unheard(hangs),
	"done, 503":             unheard(says(503, "")),
	"done, a slow body":     withBody(endless(" ", time.Second)),
	"done, an endless body": withBody(endless(strings.Repeat(" ", 64<<10), 0)),
	"done, garbage":         withBody(text("\x00\xff<garbage>")),
	"done, a text":          withBody(text(`"done"`)),
	"done, late":            after(25 * time.Second),
}

// once has a fault answer the first request of a kind only.
func once(step string, f fault) func(string, int) fault {
	return func(got string, n int) fault {
		if got == step && n == 1 {
			return f
		}
		return nil
	}
}

// always makes it answer all of them.
func always(step string, f fault) func(string, int) fault {
	return func(got string, _ int) fault {
		if got == step {
			return f
		}
		return nil
	}
}

// lifeOf leads a claim from its POST to its release, with each kind of request. It returns the first error.
func lifeOf(t *testing.T, s *nessyServer, kc *keychain.Keychain, ttl, timeout time.Duration) error {
	t.Helper()
	other := s.take("r", time.Hour)
	go func() {
		time.Sleep(3 * time.Second)
		s.free(other)
	}()
	c, err := kc.Claim(t.Context(), "r", keychain.WithTTL(ttl), keychain.WithTimeout(timeout))
	if err != nil {
		return err
	}
	for begin := time.Now(); time.Since(begin) < 3*ttl; time.Sleep(100 * time.Millisecond) {
		if !c.Held() {
			<-c.Done()
			return c.Err()
		}
		s.agrees(t, c)
	}
	if err := c.Validate(t.Context()); err != nil {
		return err
	}
	if !c.Held() {
		t.Error("validated, and not held")
	}
	return c.Release(t.Context())
}

// agrees fails the test if a client's trust window lasts while the server says that it does not hold.
func (s *nessyServer) agrees(t *testing.T, c *keychain.Claim) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	if held := s.holder(c.Resource()); c.Held() && (held == nil || held.id != c.ID()) {
		t.Errorf("%s is within its trust window; the server: %+v", c.ID(), held)
	}
}

// ends fails the test unless all claims have ended after a keychain is closed and a TTL has passed.
func (s *nessyServer) ends(t *testing.T, kc *keychain.Keychain, ttl time.Duration) {
	t.Helper()
	begin := time.Now()
	_ = kc.Close()
	if took := time.Since(begin); took > keychain.DefaultReleaseTimeout+time.Second {
		t.Errorf("closing took %s", took)
	}
	time.Sleep(10 * ttl) // claims that nobody can know of wait, and expire one after the other
	for _, status := range s.statuses() {
		if status == "active" || status == "waiting" {
			t.Errorf("left behind: %v", s.statuses())
			return
		}
	}
}

const scriptedTTL = 30 * time.Second

// TestPassing: each momentary answer, once, at each step, has no effect.
func TestPassing(t *testing.T) {
	for _, step := range []string{"register", "activate", "renew", "release"} {
		for name, f := range passing {
			t.Run(step+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *nessyServer, connect func(...keychain.Option) *keychain.Keychain) {
					s.fault = once(step, f)
					kc := connect()
					if err := lifeOf(t, s, kc, scriptedTTL, 0); err != nil {
						t.Error(err)
					}
					s.ends(t, kc, scriptedTTL)
					if s.count(step) < 2 {
						t.Errorf("%d requests", s.count(step))
					}
				})
			})
		}
	}
}

// TestStorms: the same fault again and again: a request with a deadline fails in time.
func TestStorms(t *testing.T) {
	for step, want := range map[string]error{
		"register": keychain.ErrTimeout, "activate": keychain.ErrTimeout,
		"renew": keychain.ErrLost, "release": keychain.ErrNotEnded,
	} {
		for name, f := range passing {
			if strings.HasPrefix(name, "done") && step != "register" {
				continue // it is done
			}
			if strings.Contains(name, "endless body") {
				continue // it takes the test too long
			}
			t.Run(step+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *nessyServer, connect func(...keychain.Option) *keychain.Keychain) {
					s.fault = always(step, f)
					kc := connect()
					begin := time.Now()
					err := lifeOf(t, s, kc, scriptedTTL, time.Minute)
					if !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
					if took := time.Since(begin); took > 3*time.Minute {
						t.Errorf("after %s", took)
					}
					if n := s.count(step); n > 300 {
						t.Errorf("%d requests", n)
					}
					if !strings.HasPrefix(name, "done") { // a claim that was never reported cannot be withdrawn
						s.ends(t, kc, scriptedTTL)
					}
					_ = kc.Close()
				})
			})
		}
	}
}

// TestMargin: with WithMargin a claim that cannot be renewed is lost by that margin before its lease ends.
func TestMargin(t *testing.T) {
	for margin, want := range map[time.Duration]time.Duration{
		0: scriptedTTL / 20, time.Millisecond: scriptedTTL / 20, 8 * time.Second: 8 * time.Second, time.Hour: scriptedTTL / 2,
	} {
		bubble(t, func(t *testing.T, s *nessyServer, connect func(...keychain.Option) *keychain.Keychain) {
			s.fault = always("renew", hangs)
			kc := connect(keychain.WithDefaults(keychain.WithTTL(scriptedTTL), keychain.WithMargin(margin)))
			c, err := kc.Claim(t.Context(), "r")
			must(t, err)
			granted := time.Now()
			<-c.Done()
			if left := scriptedTTL - time.Since(granted); left != want || !errors.Is(c.Err(), keychain.ErrTimeUp) {
				t.Errorf("margin %s: lost %s before the end, want %s: %v", margin, left, want, c.Err())
			}
			_ = kc.Close()
		})
	}
}

// TestLongestTimeouts: the longest timeouts there are bound nothing: claims are made, and all ends in order.
func TestLongestTimeouts(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect func(...keychain.Option) *keychain.Keychain) {
		s.fault = func(string, int) fault { return slowly }
		kc := connect(keychain.WithRequestTimeout(math.MaxInt64), keychain.WithReleaseTimeout(math.MaxInt64))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := kc.Claim(ctx, "r", keychain.WithTTL(scriptedTTL))
		must(t, err)
		must(t, kc.Close())
		s.ends(t, kc, scriptedTTL)
	})
}
