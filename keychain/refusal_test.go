package keychain_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/keychain"
)

// problem answers as Locket does: with its mark, if the server has one, and a JSON object.
func problem(code int, body string) fault {
	return says(code, body, "Content-Type: application/json")
}

// unmarked is an answer of somebody between.
func unmarked(f fault) fault {
	return func(w http.ResponseWriter, r *http.Request, carryOut func() *recorded) {
		w.Header().Del("Locket-Api")
		f(w, r, carryOut)
	}
}

// refusals are permanent errors: repeating the request does not help.
var refusals = map[string]fault{
	"400": problem(400, `{"ttl": "is wrong"}`),
	"404": problem(404, `{"message": "no claim has this id"}`),
	"405": problem(405, `{"message": "PATCH is not possible here"}`),
	"409": problem(409, `{"message": "it has ended", "status": "revoked"}`),
	"410": problem(410, `{}`),
	"413": problem(413, `{"message": "too long"}`),
	"415": problem(415, `{"message": "must be JSON"}`),
	"418": problem(418, `{"message": "`+strings.Repeat("teapot", 1<<16)+`"}`),
	"422": says(422, `{}`, "Content-Type: application/problem+json; charset=utf-8"),
}

// foreign are answers of somebody between: a proxy, a load balancer, a portal. They have no
// mark, or Locket's mark and not its errors, because a proxy has replaced the body.
var foreign = map[string]fault{
	"400, HTML":                    unmarked(says(400, "<html>Bad Request", "Content-Type: text/html")),
	"401":                          unmarked(says(401, "", "WWW-Authenticate: Basic")),
	"403, HTML":                    unmarked(says(403, "<html>Forbidden", "Content-Type: text/html")),
	"403, JSON":                    unmarked(problem(403, `{"message":"Forbidden"}`)),
	"404, HTML":                    unmarked(says(404, "<html>Not Found", "Content-Type: text/html")),
	"404, JSON":                    unmarked(problem(404, `{"message":"no Route matched with those values"}`)),
	"404, text":                    unmarked(says(404, "404 page not found", "Content-Type: text/plain")),
	"404, nothing":                 unmarked(says(404, "")),
	"405":                          unmarked(says(405, "")),
	"407":                          unmarked(says(407, "", "Proxy-Authenticate: Basic")),
	"410":                          unmarked(problem(410, `{}`)),
	"421":                          unmarked(says(421, "")),
	"200, nothing":                 unmarked(says(200, "")),
	"200, HTML":                    unmarked(says(200, "<html>Please log in", "Content-Type: text/html")),
	"200, JSON":                    unmarked(problem(200, `{"status": "active"}`)),
	"201 elsewhere":                unmarked(problem(201, `{}`)),
	"204":                          unmarked(says(204, "")),
	"302":                          unmarked(says(302, "", "Location: http://portal.example/")),
	"308":                          unmarked(says(308, "", "Location: /v1/claims/")),
	"marked, 400, HTML":            says(400, "<html>", "Content-Type: text/html"),
	"marked, 404, nothing":         says(404, ""),
	"marked, 404, half of JSON":    problem(404, `{"message": "no cla`),
	"marked, 404, a list":          problem(404, `[]`),
	"marked, 404, null":            problem(404, `null`),
	"marked, 410, JSON as text":    says(410, `{}`, "Content-Type: text/plain"),
	"marked, 404, more than JSON":  problem(404, `{} {}`),
	"marked, 404, an endless body": says(404, `{"message": "`+strings.Repeat("x", 2<<20), "Content-Type: application/json"),
	"marked, 404, cut": writes("HTTP/1.1 404 Not Found\r\nLocket-Api: v1\r\nContent-Type: application/json\r\n" +
		"Content-Length: 100\r\n\r\n{}"),
}

// denials are the server's own refusals that a new credential may end.
var denials = map[string]fault{
	"401": problem(401, `{"message": "the credential has expired"}`),
	"403": problem(403, `{"message": "not for you"}`),
	"407": problem(407, `{"message": "not for you"}`),
}

var lifeSteps = []string{"register", "activate", "renew", "release"}

// TestRefusals: each of Locket's own errors, at each step, is an error at once.
func TestRefusals(t *testing.T) {
	for _, step := range lifeSteps {
		cases := map[string]fault{"no Location": says(201, "{}")}
		for name, f := range refusals {
			cases[name] = f
		}
		if step == "register" {
			delete(cases, "404") // the server may not be up yet
			cases["401"], cases["403"] = denials["401"], denials["403"]
		} else {
			delete(cases, "no Location") // it needs none
		}
		if step == "activate" {
			delete(cases, "409") // not its turn
		}
		for name, f := range cases {
			t.Run(step+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
					s.marks, s.fault = true, always(step, f)
					fatal := make(chan error, 1)
					kc := connect(keychain.WithFatal(func(err error) { fatal <- err }))
					err := lifeOf(t, s, kc, scriptedTTL, time.Minute)
					var refused *keychain.AnswerError
					if !errors.As(err, &refused) || fmt.Sprint(refused.Code) != name && name != "no Location" {
						t.Errorf("%v", err)
					}
					lost := step == "renew" || step == "release" && name == "409" // it says how the claim ended
					if errors.Is(err, keychain.ErrLost) != lost {
						t.Errorf("lost: %v", err)
					}
					if reported := <-fatal; !errors.As(reported, &refused) || len(reported.Error()) > 1000 {
						t.Errorf("reported: %.1000v", reported)
					}
					if n := s.count(step); n != 1 {
						t.Errorf("%d requests", n)
					}
					s.ends(t, kc, scriptedTTL)
				})
			})
		}
	}
}

// known has the keychain see the server's own answers first, so that it knows the mark.
func known(t *testing.T, kc *keychain.Keychain) {
	t.Helper()
	must(t, claim(t, kc, "another").Release(t.Context()))
}

// TestForeignAnswers: half a TTL of answers by an intermediary, each at one of the steps: they have no effect, and no
// handler is called. TestForeignAnswersSoak has each at every step.
func TestForeignAnswers(t *testing.T) {
	foreignAnswers(t, 1)
}

// foreignAnswers tests each answer at a number of steps, which differ between answers.
func foreignAnswers(t *testing.T, steps int) {
	t.Helper()
	faults := make(map[string]fault)
	for name, f := range foreign {
		faults[name] = f
	}
	for name, f := range denials {
		faults["denied, "+name] = f
	}
	for first, name := range slices.Sorted(maps.Keys(faults)) {
		f, tested := faults[name], 0
		for i := range lifeSteps {
			if tested == steps {
				break
			}
			step := lifeSteps[(first+i)%len(lifeSteps)]
			if step == "activate" && strings.HasPrefix(name, "409") || step == "register" && strings.HasPrefix(name, "denied, 40") && name != "denied, 407" {
				continue // see TestRefusals
			}
			tested++
			t.Run(step+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
					s.marks = true
					kc := connect(
						keychain.WithFatal(func(err error) { t.Errorf("fatal: %v", err) }),
						keychain.WithReleaseTimeout(scriptedTTL),
					)
					known(t, kc)
					s.set(func() {
						clear(s.counts)
						var begin time.Time
						s.fault = func(got string, _ int) fault {
							if begin.IsZero() && got == step {
								begin = time.Now()
							}
							if got == step && time.Since(begin) < scriptedTTL/2 {
								return f
							}
							return nil
						}
					})
					must(t, lifeOf(t, s, kc, scriptedTTL, 0))
					if s.count(step) < 2 {
						t.Errorf("%d requests", s.count(step))
					}
					if got := s.statuses(); slices.Contains(got, "expired") || slices.Contains(got, "withdrawn") {
						t.Errorf("%v", got)
					}
					must(t, kc.Close())
				})
			})
		}
	}
}

// TestForeignStorms: for as long as somebody else answers, a claim is held until the trust
// window ends, and not for longer.
func TestForeignStorms(t *testing.T) {
	for name, f := range foreign {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
				s.marks, s.fault = true, always("renew", f)
				alerts := make(chan error, 100)
				kc := connect(keychain.WithAlert(func(err error) { alerts <- err }))
				begin := time.Now()
				c := claim(t, kc, "r", keychain.WithTTL(scriptedTTL))
				<-c.Done()
				held := time.Since(begin)
				if !errors.Is(c.Err(), keychain.ErrTimeUp) || held < scriptedTTL*9/10 || held >= scriptedTTL {
					t.Errorf("after %s: %v", held, c.Err())
				}
				_ = kc.Close()
				time.Sleep(time.Second)
				if n := len(alerts); n != 1 && !strings.HasPrefix(name, "marked") {
					t.Errorf("%d alerts", n)
				}
			})
		})
	}
}

// TestConfirmedRefusals: a server that marks none of its answers is asked about the claim: it
// is lost at once when that has ended, and not before.
func TestConfirmedRefusals(t *testing.T) {
	for name, f := range foreign {
		if name[0] != '4' { // only the mark shows that an empty success is foreign
			continue
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
				kc := connect()
				c := claim(t, kc, "r", keychain.WithTTL(scriptedTTL))
				s.set(func() { s.fault = always("renew", f) })
				time.Sleep(scriptedTTL * 2 / 3)
				if !c.Held() || c.Err() != nil {
					t.Fatal(c.Err())
				}
				s.set(func() { s.fault = nil })
				time.Sleep(scriptedTTL)
				must(t, c.Refresh(t.Context(), 0))
				s.set(func() { s.find(c.ID()).status = "revoked" })
				begin := time.Now()
				<-c.Done()
				var refused *keychain.AnswerError
				if !errors.As(c.Err(), &refused) || refused.Code != 400 || time.Since(begin) > scriptedTTL/2 {
					t.Errorf("after %s: %v", time.Since(begin), c.Err())
				}
				_ = kc.Close()
			})
		})
	}
}

// TestAlerts: refused credentials are reported at once, and once for consecutive refusals.
func TestAlerts(t *testing.T) {
	bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
		s.marks = true
		var log lines
		alerts := make(chan error, 100)
		kc := connect(keychain.WithAlert(func(err error) { alerts <- err }), keychain.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		c := claim(t, kc, "r", keychain.WithTTL(scriptedTTL))
		s.set(func() {
			s.fault = func(step string, n int) fault {
				if step == "renew" && n <= 3 || step == "renew" && n == 5 {
					return denials["401"]
				}
				return nil
			}
		})
		first := <-alerts
		var denied *keychain.AnswerError
		if !errors.As(first, &denied) || denied.Code != 401 || !strings.Contains(first.Error(), `"r"`) || !c.Held() {
			t.Errorf("%v", first)
		}
		time.Sleep(3 * scriptedTTL)
		must(t, c.Release(t.Context()))
		must(t, kc.Close())
		if n := len(alerts); n != 1 { // the fifth renewal's
			t.Errorf("%d more alerts", n)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 4 {
			t.Errorf("%d errors in the log: %s", n, &log)
		}
	})
}

// TestShortGrant: a server grants a shorter TTL than requested, or gives odd values. Its claims are not trusted for
// longer than it says, and are renewed in time.
func TestShortGrant(t *testing.T) {
	for body, want := range map[string]time.Duration{ // how long the claim is held without renewals
		`{"status": "active", "ttl": 10}`:     9 * time.Second,
		`{"status": "active", "ttl": 1e300}`:  28 * time.Second,
		`{"status": "active", "ttl": null}`:   28 * time.Second,
		`{"status": "active", "ttl": "ten"}`:  28 * time.Second,
		`{"status": "active", "ttl": -1e300}`: 0,
		`{"status": "active", "ttl": 0}`:      0,
		`{"created": "tomorrow", "ttl": []}`:  28 * time.Second,
	} {
		t.Run(body, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
				kc := connect()
				c := claim(t, kc, "r", keychain.WithTTL(scriptedTTL))
				s.set(func() { s.fault = always("renew", withBody(text(body))) })
				if want > 0 {
					time.Sleep(4 * scriptedTTL)
					must(t, c.Err())
				}
				s.set(func() { s.fault = always("renew", hangs) })
				time.Sleep(want / 3) // the last renewal was up to half a trust window ago
				if want > 0 && !c.Held() {
					t.Error(c.Err())
				}
				time.Sleep(scriptedTTL)
				if c.Held() || !errors.Is(c.Err(), keychain.ErrTimeUp) {
					t.Error(c.Err())
				}
				if n := s.count("renew"); n > 200 {
					t.Errorf("%d renewals", n)
				}
				_ = kc.Close()
			})
		})
	}
	t.Run("from the beginning", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
			s.fault = func(step string, _ int) fault {
				if step == "renew" || step == "register" {
					return withBody(text(`{"status": "active", "ttl": 0}`))
				}
				return nil
			}
			kc := connect()
			if _, err := kc.Claim(t.Context(), "r", keychain.WithTimeout(time.Minute)); !errors.Is(err, keychain.ErrTimeout) {
				t.Error(err)
			}
			if n := s.count("renew"); n > 100 {
				t.Errorf("%d renewals", n)
			}
			_ = kc.Close()
		})
	})
}

// TestLeaseIsCut: a renewal's answer leaves a claim less time than it had. It is not trusted for longer; it is lost if
// that time is within the margin, or over when the answer comes.
func TestLeaseIsCut(t *testing.T) {
	for name, cut := range map[string]struct{ ttl, late time.Duration }{
		"to less than the margin": {time.Second, 0},
		"by a late answer":        {10 * time.Second, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *nessyServer, connect connect) {
				kc := connect()
				c := claim(t, kc, "r", keychain.WithTTL(scriptedTTL))
				s.set(func() {
					s.fault = always("renew", func(w http.ResponseWriter, r *http.Request, carryOut func() *recorded) {
						answer := carryOut()
						s.set(func() { s.find(c.ID()).deadline = time.Now().Add(cut.ttl) })
						rest(r, cut.late)
						answer.code = http.StatusOK
						_, _ = fmt.Fprintf(&answer.body, `{"status": "active", "ttl": %g}`, cut.ttl.Seconds())
						answer.sendTo(w)
					})
				})
				for begin := time.Now(); time.Since(begin) < 2*scriptedTTL; time.Sleep(100 * time.Millisecond) {
					s.agrees(t, c)
				}
				if !errors.Is(c.Err(), keychain.ErrTimeUp) {
					t.Error(c.Err())
				}
				_ = kc.Close()
			})
		})
	}
}

// lines is a log that a test reads.
type lines struct{ strings.Builder }

var _ io.Writer = (*lines)(nil)
