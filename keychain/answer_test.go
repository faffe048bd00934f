package keychain

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// scripted is a transport with one answer to everything.
type scripted struct{ answer func() *http.Response }

func (s scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := s.answer()
	answer.Request = r
	return answer, nil
}

// Every answer is classified. Only an answer of the server itself ends a claim or keeps it: one with the mark, if the
// server has one, and a JSON object for a refusal.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		"", "{}", "[]", "null", `{"status":"active","ttl":null}`, `{"ttl":1e999}`, `{"ttl":-0.0}`, "<html>",
		`{"message":`, "\xff", `{"token":18446744073709551616}`, `{"id":7,"status":{}}`, strings.Repeat("[", 20_000),
	} {
		for _, code := range []int{200, 201, 202, 204, 302, 401, 404, 409, 503} {
			f.Add(code, body, "application/json", "/v1/claims/a/", true, true)
			f.Add(code, body, "text/html", "http://[", false, true)
			f.Add(code, body, "", "", false, false)
		}
	}
	kinds := []action{sendRegister, sendActivate, sendRenew, sendRelease, sendWithdraw, sendAbort}
	f.Fuzz(func(t *testing.T, code int, body, contentType, location string, marked, known bool) {
		if code < 200 || code > 599 {
			return // net/http lets nothing else through
		}
		header := http.Header{"Content-Type": {contentType}, "Location": {location}, "Retry-After": {body[:min(9, len(body))]}}
		if marked {
			header.Set(markHeader, "v1")
		}
		kc, err := New("http://127.0.0.1:1", WithTransport(scripted{func() *http.Response {
			return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body))}
		}}))
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range kinds {
			kc.wire.isLocket.Store(known)
			r := kc.ending(kind, "http://127.0.0.1:1/v1/claims/a/")
			if kind == sendRegister {
				r = request{kind: kind, method: "POST", url: kc.wire.servers.claims(), timeout: time.Second}
			}
			a := kc.wire.do(t.Context(), r)
			e := a.event()
			if known && !marked && e != eventFailed {
				t.Errorf("%s, without the mark: %s", kind, e)
			}
			isRefusal := slices.Contains([]event{eventRefused, eventNotFound}, e) && code >= 400
			if isRefusal && (!a.isObject || !marked && kind != sendRegister) {
				t.Errorf("%s: %d %q counts as a refusal", kind, code, body)
			}
			if _, _, ok := step(stateRenewing, e); kind == sendRenew && !ok {
				t.Errorf("no row for %s", e)
			}
			_, _ = a.ttlLeft()
			if text := a.failure(); text != nil && len(text.Error()) > 2000+len(location) {
				t.Errorf("a message of %d bytes", len(text.Error()))
			}
		}
		if err := kc.Close(); err != nil {
			t.Error(err)
		}
	})
}
