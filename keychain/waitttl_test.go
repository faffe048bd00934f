package keychain

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestWaitTTL: a wait TTL is sent if it is given, and only then, since other servers refuse it.
func TestWaitTTL(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]string{0: "", 15 * time.Second: `"wait_ttl":15`, 90 * time.Second: `"wait_ttl":90`} {
		s := claimSettings{ttl: time.Minute}
		WithWaitTTL(ttl)(&s)
		r, err := s.registration("r")
		body, failed := json.Marshal(r)
		if err = errors.Join(err, failed); err != nil || s.validate("r") != nil || want == "" && strings.Contains(string(body), "wait_ttl") || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s (%v, %v)", ttl, body, err, s.validate("r"))
		}
	}
	for _, ttl := range []time.Duration{-1, time.Second, 2 * maxTTL} {
		s := claimSettings{ttl: time.Minute, waitTTL: ttl}
		if s.validate("r") == nil {
			t.Errorf("a wait TTL of %s was taken", ttl)
		}
	}
}
