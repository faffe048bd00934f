package keychain_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/keychain"
	"github.com/locket-service/locket/models"
)

// byDefault has a keychain of bubble send wait TTLs.
var byDefault = keychain.WithDefaults(keychain.WithWaitTTL(keychain.DefaultWaitTTL))

// TestRefusedWaitTTL: the request is repeated once without the wait TTL if the server refuses it. Other errors do not
// count as such a refusal.
func TestRefusedWaitTTL(t *testing.T) {
	for _, marks := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
			s.marks = marks
			kc := connect(byDefault)
			begin := time.Now()
			for _, resource := range []string{"a", "b", "c"} {
				claim(t, kc, resource)
			}
			if n := s.count("register"); n != 4 || time.Since(begin) > 0 {
				t.Errorf("%d requests, in %s", n, time.Since(begin))
			}
			must(t, kc.Close())
		})
		bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
			s.marks, s.fault = marks, always("register", problem(400, `{"ttl": "is wrong"}`))
			kc := connect(byDefault)
			_, err := kc.Claim(t.Context(), "r")
			if refused := new(keychain.AnswerError); !errors.As(err, &refused) || s.count("register") != 1 {
				t.Errorf("%v, after %d requests", err, s.count("register"))
			}
			must(t, kc.Close())
		})
	}
}

// TestPlaceLost: a claim that has ended because its keychain was not heard is claimed again, if it has a wait TTL and
// was not active; a claim that ended otherwise has failed.
func TestPlaceLost(t *testing.T) {
	for name, c := range map[string]struct {
		status, reason string
		waitTTL        time.Duration
		fault          func(string, int) fault
		anew           bool
	}{
		"abandoned":              {"aborted", models.AbandonedReason, time.Minute, nil, true},
		"expired":                {"expired", "", time.Minute, nil, true},
		"nobody says why, once":  {"aborted", models.AbandonedReason, time.Minute, once("look", says(503, "")), true},
		"aborted":                {"aborted", "enough", time.Minute, nil, false},
		"withdrawn":              {"withdrawn", models.AbandonedReason, time.Minute, nil, false},
		"revoked":                {"revoked", "", time.Minute, nil, false},
		"abandoned, no wait TTL": {"aborted", models.AbandonedReason, 0, nil, false},
		"expired, no wait TTL":   {"expired", "", 0, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
				s.marks, s.waitTTLs, s.fault = true, true, c.fault
				kc := connect()
				other := s.take("r", time.Hour)
				go func() {
					time.Sleep(time.Minute)
					s.set(func() {
						first := s.find("c2")
						first.status, first.reason = c.status, c.reason
					})
					time.Sleep(time.Minute)
					s.free(other)
				}()
				held, err := kc.Claim(t.Context(), "r", keychain.WithWaitTTL(c.waitTTL))
				refused := new(keychain.AnswerError)
				switch {
				case c.anew && err != nil:
					t.Fatal(err)
				case c.anew && (!held.Held() || held.ID() != "c3" || s.count("register") != 2):
					t.Errorf("%s, held: %t, after %d requests", held.ID(), held.Held(), s.count("register"))
				case !c.anew && (!errors.As(err, &refused) || s.count("register") != 1):
					t.Errorf("%v, after %d requests", err, s.count("register"))
				}
				must(t, kc.Close())
				time.Sleep(time.Hour)
				for _, status := range s.statuses() {
					if status == "active" || status == "waiting" {
						t.Errorf("left behind: %v", s.statuses())
					}
				}
			})
		})
	}
}

// TestPlaceLostUnheard: a claim whose POST got no answer, and that was abandoned before the POST is repeated, is
// claimed again.
func TestPlaceLostUnheard(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		s.marks, s.waitTTLs = true, true
		ended := problem(200, `{"status": "aborted", "reason": "`+models.AbandonedReason+`"}`)
		s.fault = once("register", ended)
		kc := connect(byDefault)
		if c := claim(t, kc, "r"); !c.Held() || s.count("register") != 2 {
			t.Errorf("held: %t, after %d requests", c.Held(), s.count("register"))
		}
		must(t, kc.Close())
	})
}

// TestActiveIsNotClaimedAnew: a claim that was active is lost.
func TestActiveIsNotClaimedAnew(t *testing.T) {
	for _, status := range []string{"expired", "aborted"} {
		bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
			s.marks, s.waitTTLs = true, true
			kc := connect(byDefault)
			c := claim(t, kc, "r")
			s.set(func() {
				entry := s.find(c.ID())
				entry.status, entry.reason = status, models.AbandonedReason
			})
			<-c.Done()
			if !errors.Is(c.Err(), keychain.ErrLost) || s.count("register") != 1 {
				t.Errorf("%v, after %d requests", c.Err(), s.count("register"))
			}
			must(t, kc.Close())
		})
	}
}

// severed is a network that can be cut.
type severed struct {
	http.RoundTripper
	mu   sync.Mutex
	cut  bool
	live map[*http.Request]context.CancelFunc
}

func (s *severed) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	if s.cut {
		s.mu.Unlock()
		return nil, errors.New("the network is cut")
	}
	ctx, cancel := context.WithCancel(r.Context())
	s.live[r] = cancel
	s.mu.Unlock()
	return s.RoundTripper.RoundTrip(r.WithContext(ctx))
}

func (s *severed) set(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = cut
	for r, cancel := range s.live {
		cancel()
		delete(s.live, r)
	}
}

// TestCutOffWhileWaiting: a keychain that is cut off from the server for its wait TTL is no longer in the queue, and
// joins it again when it can.
func TestCutOffWhileWaiting(t *testing.T) {
	t.Parallel()
	url := "http://" + startLocket(t).HTTPAddress()
	first := claim(t, open(t, url), "r")
	network := &severed{RoundTripper: &http.Transport{}, live: make(map[*http.Request]context.CancelFunc)}
	cutOff := open(t, url, keychain.WithTransport(network))
	type outcome struct {
		claim *keychain.Claim
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		c, err := cutOff.Claim(t.Context(), "r", keychain.WithWaitTTL(15*time.Second))
		done <- outcome{c, err}
	}()
	waiters := func() int {
		_, n := line(t, url, "r")
		return n
	}
	soon(t, "it waits", func() bool { return waiters() == 1 })
	network.set(true)
	soon(t, "its place is lost", func() bool { return waiters() == 0 })
	network.set(false)
	soon(t, "it waits again", func() bool { return waiters() == 1 })
	must(t, first.Release(t.Context()))
	got := <-done
	must(t, got.err)
	if !got.claim.Held() {
		t.Error("not held")
	}
	must(t, got.claim.Release(t.Context()))
}
