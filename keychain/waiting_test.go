package keychain_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/keychain"
	"github.com/locket-service/locket/tests/harness"
)

type connect = func(options ...keychain.Option) *keychain.Keychain

// A server that meets only the REST requirements is enough.
func TestNessyServer(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		kc, other := connect(), connect()
		c := claim(t, kc, "r", keychain.WithUserData([]any{1, "two"}))
		if string(s.find(c.ID()).data) != `[1,"two"]` || c.ID() != "c1" || c.Token() != 0 || c.URL() != "http://nessy/v1/claims/c1/" {
			t.Errorf("%s %s %d, %+v", c.ID(), c.URL(), c.Token(), s.find(c.ID()))
		}
		second := make(chan *keychain.Claim)
		go func() {
			c, err := other.Claim(t.Context(), "r")
			if err != nil {
				t.Error(err)
			}
			second <- c
		}()
		time.Sleep(10 * time.Minute)
		must(t, c.Validate(t.Context()))
		must(t, c.Refresh(t.Context(), 2*time.Minute))
		s.agrees(t, c)
		must(t, c.Release(t.Context()))
		begin := time.Now()
		d := <-second
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("its turn came after %s", took)
		}
		if n := s.count("activate"); n > 200 {
			t.Errorf("%d polls in ten minutes", n)
		}
		must(t, errors.Join(d.Release(t.Context()), kc.Close(), other.Close()))
		if got := s.statuses(); !slices.Equal(got, []string{"released", "released"}) {
			t.Errorf("%v", got)
		}
	})
}

// When the timeout is over, the context is done or the keychain is closed, at any time, nothing is left behind, and
// the caller does not wait for the clean-up.
func TestUnwanted(t *testing.T) {
	ways := map[string]func(*keychain.Keychain, time.Duration) error{
		"timeout": func(kc *keychain.Keychain, after time.Duration) error {
			_, err := kc.Claim(context.Background(), "r", keychain.WithTimeout(after))
			return err
		},
		"context": func(kc *keychain.Keychain, after time.Duration) error {
			ctx, cancel := context.WithTimeout(context.Background(), after)
			defer cancel()
			_, err := kc.Claim(ctx, "r")
			return err
		},
		"close": func(kc *keychain.Keychain, after time.Duration) error {
			time.AfterFunc(after, func() { _ = kc.Close() })
			_, err := kc.Claim(context.Background(), "r")
			return err
		},
		"abort": func(kc *keychain.Keychain, after time.Duration) error {
			time.AfterFunc(after, func() { _ = kc.Abort() })
			_, err := kc.Claim(context.Background(), "r")
			return err
		},
	}
	wants := map[string]error{
		"timeout": keychain.ErrTimeout, "context": context.DeadlineExceeded,
		"close": keychain.ErrClosed, "abort": keychain.ErrClosed,
	}
	faults := map[string]func(string, int) fault{
		"waiting":              func(string, int) fault { return nil },
		"retrying register":    once("register", says(503, "", "Retry-After: 5")),
		"Registering":          once("register", after(3*time.Second)),
		"Registering, unheard": once("register", unheard(cuts)),
		"Registering, refused": once("register", func(w http.ResponseWriter, r *http.Request, _ func() *recorded) {
			rest(r, 2*time.Second)
			w.WriteHeader(404)
		}),
		"Activating":             always("activate", hangs),
		"retrying activate":      always("activate", says(500, "")),
		"Withdrawing":            once("withdraw", hangs),
		"Withdrawing, unheard":   once("withdraw", unheard(cuts)),
		"Aborting, unheard":      once("abort", unheard(says(500, ""))),
		"Withdrawing, a mistake": once("withdraw", says(500, "")),
	}
	for way, give := range ways {
		for name, f := range faults {
			for _, held := range []bool{true, false} {
				if !held && !strings.HasPrefix(name, "Reg") && !strings.HasPrefix(name, "retrying reg") {
					continue // it would be active at once
				}
				t.Run(way+"/"+name, func(t *testing.T) {
					bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
						if held {
							s.take("r", time.Hour)
						}
						s.fault = f
						kc := connect()
						begin, first := time.Now(), 250*time.Millisecond
						if err := give(kc, first); err != nil && !errors.Is(err, wants[way]) {
							t.Error(err)
						} else if took := time.Since(begin); took > first+10*time.Millisecond {
							t.Errorf("after %s", took)
						}
						time.Sleep(keychain.DefaultReleaseTimeout)
						got := s.statuses()
						if held {
							got = got[1:]
						}
						for _, status := range got {
							// A POST whose answer was lost has made an unknown claim.
							if name != "Registering, unheard" && (status == "waiting" || status == "active") {
								t.Errorf("left behind: %v", got)
							}
						}
						_ = kc.Close()
					})
				})
			}
		}
	}
}

// A POST whose answer comes after another POST was sent has made a second claim, on a server
// that does not know the key: it is withdrawn as soon as its address is known.
func TestStray(t *testing.T) {
	t.Run("ahead", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
			s.fault = once("register", after(30*time.Second))
			kc := connect()
			begin := time.Now()
			c := claim(t, kc, "r", keychain.WithTTL(10*time.Minute)) // behind the stray one
			if took := time.Since(begin); took < 30*time.Second || took > 40*time.Second {
				t.Errorf("after %s", took)
			}
			if got := s.statuses(); !slices.Equal(got, []string{"withdrawn", "active"}) || c.ID() != "c2" {
				t.Errorf("%v; the claim is %s", got, c.ID())
			}
			must(t, kc.Close())
		})
	})
	t.Run("told in an answer that cannot be read", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
			s.fault = once("register", withBody(text("<html>")))
			kc := connect()
			c := claim(t, kc, "r", keychain.WithTTL(10*time.Minute))
			if got := s.statuses(); !slices.Equal(got, []string{"withdrawn", "active"}) || c.ID() != "c2" {
				t.Errorf("%v; the claim is %s", got, c.ID())
			}
			must(t, kc.Close())
		})
	})
	t.Run("after the end", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
			s.fault = func(step string, n int) fault {
				if step == "register" {
					return after(20 * time.Second)
				}
				if step == "withdraw" && n < 3 {
					return says(503, "")
				}
				return nil
			}
			kc := connect()
			if _, err := kc.Claim(t.Context(), "r", keychain.WithTimeout(time.Second)); !errors.Is(err, keychain.ErrTimeout) {
				t.Error(err)
			}
			time.Sleep(19050 * time.Millisecond)
			must(t, kc.Close()) // which waits for that too
			if got := s.statuses(); !slices.Equal(got, []string{"withdrawn"}) {
				t.Errorf("%v", got)
			}
		})
	})
}

// If a server claims to have waited and has not, the next request follows after a pause.
func TestHastyServer(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		s.take("r", time.Hour)
		s.fault = always("activate", says(409, "", "Preference-Applied: wait=20"))
		kc := connect()
		_, err := kc.Claim(t.Context(), "r", keychain.WithTimeout(time.Minute))
		if n := s.count("activate"); !errors.Is(err, keychain.ErrTimeout) || n > 30 {
			t.Errorf("%v, %d requests", err, n)
		}
		must(t, kc.Close())
	})
}

// If it has waited, the next request follows at once. How long it may wait depends on the TTL.
func TestLongPoll(t *testing.T) {
	for name, c := range map[string]struct {
		ttl    time.Duration
		option keychain.Option
		want   string
	}{
		"default":  {time.Minute, keychain.WithLongPoll(keychain.DefaultLongPoll), "wait=20"},
		"TTL":      {15 * time.Second, keychain.WithLongPoll(keychain.DefaultLongPoll), "wait=7"},
		"short":    {1500 * time.Millisecond, keychain.WithLongPoll(keychain.DefaultLongPoll), ""},
		"set":      {time.Minute, keychain.WithLongPoll(5 * time.Second), "wait=5"},
		"set to 0": {time.Minute, keychain.WithLongPoll(0), ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
				s.take("r", time.Hour)
				s.fault = always("activate", func(w http.ResponseWriter, r *http.Request, carryOut func() *recorded) {
					if got := r.Header.Get("Prefer"); got != c.want {
						t.Errorf("Prefer: %q", got)
					}
					pause, _ := time.ParseDuration(strings.TrimPrefix(c.want, "wait=") + "s")
					if pause > 0 {
						rest(r, pause)
						w.Header().Set("Preference-Applied", c.want)
					}
					carryOut().sendTo(w)
				})
				kc := connect(c.option)
				_, err := kc.Claim(t.Context(), "r", keychain.WithTTL(c.ttl), keychain.WithTimeout(100*time.Second))
				if !errors.Is(err, keychain.ErrTimeout) {
					t.Error(err)
				}
				if n := s.count("activate"); c.want == "wait=20" && n != 5 {
					t.Errorf("%d requests", n)
				}
				must(t, kc.Close())
			})
		})
	}
}

// A claim that became active at an unknown time is renewed before its trust window begins; if it has expired in the
// meantime, that is an error.
func TestLateGrant(t *testing.T) {
	for name, c := range map[string]struct {
		marks   bool
		outage  time.Duration
		renewed int
		ok      bool
	}{
		"fresh":                 {true, 5 * time.Second, 0, true},
		"late":                  {true, 40 * time.Second, 1, true},
		"nearly over":           {true, 57500 * time.Millisecond, 1, true},
		"expired":               {true, 70 * time.Second, 0, false},
		"fresh, unmarked":       {false, 5 * time.Second, 1, true}, // a proxy may have sent the 409
		"late, unmarked":        {false, 40 * time.Second, 1, true},
		"nearly over, unmarked": {false, 57500 * time.Millisecond, 1, true},
		"expired, unmarked":     {false, 70 * time.Second, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
				s.marks = c.marks
				other := s.take("r", time.Hour)
				quick := keychain.Backoff{Max: time.Second}
				kc := connect(keychain.WithRetries(keychain.Retries{Activate: quick, Poll: quick}))
				time.AfterFunc(2*time.Minute, func() {
					s.set(func() { s.fault = always("activate", says(503, "")) })
					s.free(other)
				})
				time.AfterFunc(2*time.Minute+c.outage, func() { s.set(func() { s.fault = nil }) })
				got, err := kc.Claim(t.Context(), "r")
				if (err == nil) != c.ok || s.count("renew") != c.renewed {
					t.Errorf("%v, %d renewals", err, s.count("renew"))
				}
				if err == nil {
					s.agrees(t, got)
					must(t, got.Release(t.Context()))
				}
				must(t, kc.Close())
			})
		})
	}
}

// A claim whose turn comes while the first request waits for it is trusted at once: it did
// wait when it was made.
func TestFirstTurn(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		other := s.take("r", time.Hour)
		s.fault = once("activate", func(w http.ResponseWriter, r *http.Request, carryOut func() *recorded) {
			rest(r, 5*time.Second)
			s.free(other)
			carryOut().sendTo(w)
		})
		kc := connect()
		claim(t, kc, "r")
		if n := s.count("renew"); n != 0 {
			t.Errorf("%d renewals", n)
		}
		must(t, kc.Close())
	})
}

// A POST that found its claim after a repetition counts from the first attempt.
func TestLateRegistration(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		outage := time.Now().Add(40 * time.Second)
		s.fault = func(step string, n int) fault {
			switch {
			case step != "register":
			case n == 1:
				return unheard(cuts)
			case time.Now().Before(outage):
				return says(503, "")
			default: // the key has led to the claim
				return says(201, "", "Location: /v1/claims/c1/")
			}
			return nil
		}
		kc := connect()
		c := claim(t, kc, "r")
		if n := s.count("renew"); n != 1 || len(s.statuses()) != 1 {
			t.Errorf("%d renewals, %v", n, s.statuses())
		}
		s.agrees(t, c)
		must(t, kc.Close())
	})
}

// A late answer with the claim that a repetition has found is not about a stray.
func TestLateAndSame(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		s.fault = func(step string, n int) fault {
			switch {
			case step != "register":
				return nil
			case n == 1:
				return after(30 * time.Second)
			default: // the key has led to the claim
				return says(201, "", "Location: /v1/claims/c1/")
			}
		}
		kc := connect()
		c := claim(t, kc, "r")
		time.Sleep(time.Minute)
		must(t, c.Validate(t.Context()))
		must(t, kc.Close())
	})
}

// A refresh is not answered by a renewal that was under way before.
func TestRefreshWhileRenewing(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		s.fault = once("renew", after(3*time.Second))
		kc := connect()
		c := claim(t, kc, "r", keychain.WithTTL(30*time.Second))
		time.Sleep(11 * time.Second)
		must(t, c.Refresh(t.Context(), time.Hour))
		s.set(func() {
			if got := s.find(c.ID()).ttl; got != time.Hour {
				t.Errorf("the TTL is %s", got)
			}
		})
		must(t, kc.Close())
	})
}

// If a claim ended before its POST was answered, Claim returns an error.
func TestEndedRegistration(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		s.fault = always("register", says(200, `{"status": "revoked"}`, "Location: /v1/claims/c1/"))
		kc := connect()
		var answer *keychain.AnswerError
		if _, err := kc.Claim(t.Context(), "r"); !errors.As(err, &answer) || answer.Code != 200 || answer.Status != "revoked" || !strings.Contains(err.Error(), "the claim was revoked") {
			t.Errorf("%v", err)
		}
		must(t, kc.Close())
	})
}

// A renewal with a short TTL that reaches the server after one with a longer TTL has cut the lease, so the longer one
// no longer counts.
func TestDelayedRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		delayed := func(w http.ResponseWriter, _ *http.Request, carryOut func() *recorded) {
			time.Sleep(5 * time.Second) // the client hangs up meanwhile
			carryOut().sendTo(w)
		}
		s.fault = once("renew", delayed)
		kc := connect()
		c := claim(t, kc, "r", keychain.WithTTL(12*time.Second)) // renewed after 4 s, without success for 4 s
		time.Sleep(8 * time.Second)
		must(t, c.Refresh(t.Context(), time.Hour))
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			s.agrees(t, c)
		}
		if !c.Held() {
			t.Error(c.Err())
		}
		must(t, kc.Close())
	})
}

// A refresh to a shorter TTL may have cut the lease even if its answer is lost, so the former end no longer counts.
func TestShortenedUnheard(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		s.fault = func(step string, n int) fault {
			switch {
			case step != "renew":
				return nil
			case n == 1:
				return unheard(cuts)
			default:
				return hangs
			}
		}
		kc := connect()
		c := claim(t, kc, "r", keychain.WithTTL(time.Hour))
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		refreshed := harness.Later(func() error { return c.Refresh(ctx, 10*time.Second) })
		for time.Since(begin) < 30*time.Second {
			time.Sleep(100 * time.Millisecond)
			if took := time.Since(begin); c.Held() != (took < 9500*time.Millisecond) {
				t.Errorf("after %s: held is %t", took, c.Held())
				break
			}
			s.agrees(t, c)
		}
		if err := <-refreshed; !errors.Is(err, keychain.ErrTimeUp) {
			t.Error(err)
		}
		_ = kc.Close()
	})
}

// A refresh and a validation end with their contexts; the claim does not.
func TestSilentServer(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		kc := connect()
		c := claim(t, kc, "r", keychain.WithTTL(time.Hour))
		s.set(func() { s.fault = func(string, int) fault { return hangs } })
		for what, do := range map[string]func(context.Context) error{
			"refresh":  func(ctx context.Context) error { return c.Refresh(ctx, 0) },
			"validate": c.Validate,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
			cancel()
		}
		if err := c.Validate(t.Context()); err == nil || errors.Is(err, keychain.ErrLost) || !c.Held() {
			t.Errorf("%v; held: %t", err, c.Held())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || c.Held() {
			t.Errorf("release: %v; held: %t", err, c.Held())
		}
		if err := kc.Close(); !errors.Is(err, keychain.ErrNotEnded) {
			t.Errorf("close: %v", err)
		}
		if err := c.Release(t.Context()); !errors.Is(err, keychain.ErrNotEnded) {
			t.Errorf("release, later: %v", err)
		}
	})
}

// Many may close at the same time; Abort cuts it short.
func TestCloseTwice(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		kc := connect(keychain.WithReleaseTimeout(time.Hour))
		for _, r := range []string{"a", "b", "c"} {
			claim(t, kc, r)
		}
		s.set(func() { s.fault = func(string, int) fault { return hangs } })
		begin := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := kc.Close(); !errors.Is(err, keychain.ErrNotEnded) || strings.Count(err.Error(), "\n") != 2 {
					t.Errorf("close: %v", err)
				}
			})
		}
		time.Sleep(time.Minute)
		if err := kc.Abort(); !errors.Is(err, keychain.ErrNotEnded) {
			t.Errorf("abort: %v", err)
		}
		all.Wait()
		if took := time.Since(begin); took > time.Minute+time.Second {
			t.Errorf("after %s", took)
		}
	})
}

// Abort ends the remaining claims; a claim that is being released is not left to its TTL.
func TestAbortWhileReleasing(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		kc := connect()
		c := claim(t, kc, "r")
		s.set(func() { s.fault = always("release", slowly) })
		released := make(chan error, 1)
		go func() { released <- c.Release(t.Context()) }()
		synctest.Wait()
		must(t, kc.Abort())
		must(t, <-released)
		if status := s.find(c.ID()).status; status != "released" {
			t.Errorf("the claim is %s", status)
		}
	})
}

// The handler may close the keychain.
func TestFatalCloses(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		closed := make(chan error, 2)
		var kc *keychain.Keychain
		kc = connect(keychain.WithFatal(func(error) { closed <- kc.Close() }))
		c := claim(t, kc, "r")
		s.set(func() { s.find(c.ID()).status = "revoked" })
		must(t, <-closed)
		if err := c.Err(); !errors.Is(err, keychain.ErrLost) {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// The requests follow the REST requirements.
func TestRequests(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		var mu sync.Mutex
		keys := make(map[string]bool)
		s.fault = func(string, int) fault {
			return func(w http.ResponseWriter, r *http.Request, carryOut func() *recorded) {
				mu.Lock()
				defer mu.Unlock()
				if r.Header.Get("Accept") != "application/json" || r.Method != "GET" && r.Header.Get("Content-Type") != "application/json" {
					t.Errorf("%v", r.Header)
				}
				if _, err := io.Copy(io.Discard, r.Body); err != nil || r.URL.RawQuery != "" {
					t.Errorf("%s: %v", r.URL, err)
				}
				if key := r.Header.Get("Idempotency-Key"); r.Method == "POST" {
					if keys[key] || len(key) < 20 {
						t.Errorf("the key %q", key)
					}
					keys[key] = true
				}
				carryOut().sendTo(w)
			}
		}
		kc := connect()
		for range 3 {
			c := claim(t, kc, "r")
			must(t, errors.Join(c.Validate(t.Context()), c.Refresh(t.Context(), 0), c.Release(t.Context())))
		}
		must(t, kc.Close())
	})
}

// Pauses before another attempt to renew are always short compared with the TTL. Each kind of request has pauses of
// its own.
func TestPauses(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		kc := connect(keychain.WithRetries(keychain.Retries{Renew: keychain.Backoff{First: time.Minute}}))
		c := claim(t, kc, "r", keychain.WithTTL(10*time.Second))
		s.set(func() {
			s.fault = func(step string, n int) fault {
				if step == "renew" && n <= 4 || step == "release" && n == 1 {
					return says(503, "")
				}
				return nil
			}
		})
		time.Sleep(20 * time.Second)
		s.set(func() { s.fault = always("renew", says(503, "")) })
		time.Sleep(5 * time.Second)
		s.set(func() { s.fault = once("release", says(503, "")) })
		begin := time.Now()
		must(t, c.Release(t.Context()))
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("after %s", took)
		}
		must(t, kc.Close())
	})
}

// The worker repeats POST; net/http must not, since it would do that at once and unseen: a connection that was used
// before is cut.
func TestReplay(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		kc := connect()
		must(t, claim(t, kc, "r").Release(t.Context()))
		s.set(func() {
			s.fault = func(step string, n int) fault {
				if step == "register" && n == 2 {
					return cuts
				}
				return nil
			}
		})
		begin := time.Now()
		must(t, claim(t, kc, "r").Release(t.Context()))
		if took := time.Since(begin); took < 100*time.Millisecond || s.count("register") != 3 {
			t.Errorf("%d requests, after %s", s.count("register"), took)
		}
		must(t, kc.Close())
	})
}
