package handlers_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/locket-service/locket/db"
	whole "github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

func (s *server) sessions(t testing.TB) (list []*models.SessionInfo) {
	t.Helper()
	for token := ""; ; {
		page, err := s.ListSessions(t.Context(), &models.ListSessionsRequest{Limit: ptr(uint32(2)), PageToken: token})
		must(t, err)
		list = append(list, page.GetSessions()...)
		if token = page.GetNextPageToken(); token == "" {
			return list
		}
	}
}

func (s *server) reset(t testing.TB, keep ...string) uint32 {
	t.Helper()
	response, err := s.ResetSessions(t.Context(), &models.ResetSessionsRequest{Keep: keep})
	must(t, err)
	return response.GetEnded()
}

// TestSessionLife has session a, which holds k and waits for l, and session b, which holds l and waits for k. The TTL
// of both is 10 seconds.
func TestSessionLife(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, server *server, a, b *harness.Session){
		"a broken stream may come back, and finds everything": func(t *testing.T, server *server, a, b *harness.Session) {
			a.BreakOff()
			time.Sleep(9 * time.Second)
			again := server.dial(t)
			had := again.Open("a", harness.Resume)
			if len(had) != 2 || had[0].GetResource() != "k" || had[0].GetCurrent() != holding || had[1].GetResource() != "l" || had[1].GetCurrent() != inLine {
				t.Errorf("it had %v", had)
			}
			b.Unlock("l")
			again.Hears("l", inLine, holding)
			if got := again.Lock("k", holding); got.GetToken() != had[0].GetToken() {
				t.Errorf("%v, then %v", had[0], got)
			}
		},
		"a broken stream that does not come back: all ends together": func(t *testing.T, server *server, a, b *harness.Session) {
			a.BreakOff()
			broken := time.Now()
			if got := b.Hears("k", inLine, holding); got.GetToken() == 0 {
				t.Errorf("got %v", got)
			}
			if took := time.Since(broken); took < 10*time.Second || took > 10*time.Second+100*time.Millisecond {
				t.Errorf("it took %s", took)
			}
			again := server.dial(t)
			again.Ask(harness.OpenRequest("a", harness.Resume))
			again.Ends(codes.NotFound, "SESSION_ENDED")
			b.Unlock("l")
			if queue, err := server.GetQueue(t.Context(), &models.GetQueueRequest{Resource: "l"}); err != nil || len(queue.GetHolders()) > 0 {
				t.Errorf("%v (%v)", queue, err)
			}
			if claims := server.list(t, &models.ListClaimsRequest{Owner: ptr("a")}).GetClaims(); claims[0].GetStatus() != expired || claims[1].GetStatus() != aborted {
				t.Errorf("they ended as %v", claims)
			}
		},
		"nothing is heard": func(t *testing.T, server *server, a, b *harness.Session) {
			begin := time.Now()
			a.Ends(codes.Unavailable, "SESSION_DETACHED")
			if took := time.Since(begin); took != 5*time.Second {
				t.Errorf("the stream ended after %s", took)
			}
			b.Hears("k", inLine, holding)
			if took := time.Since(begin); took < 10*time.Second || took > 10*time.Second+100*time.Millisecond {
				t.Errorf("the session ended after %s", took)
			}
		},
		"a heartbeat is answered after a beat that began later": func(t *testing.T, server *server, a, b *harness.Session) {
			for range 20 {
				sent := time.Now()
				a.Heartbeat()
				if took := time.Since(sent); took > db.BeatInterval {
					t.Errorf("it took %s", took)
				}
				time.Sleep(time.Second)
			}
			a.Lock("k", holding)
		},
		"closing ends all at once": func(t *testing.T, server *server, a, b *harness.Session) {
			begin := time.Now()
			a.Close()
			b.Hears("k", inLine, holding)
			if took := time.Since(begin); took != 0 {
				t.Errorf("it took %s", took)
			}
			if claims := server.list(t, &models.ListClaimsRequest{Owner: ptr("a")}).GetClaims(); claims[0].GetStatus() != released || claims[1].GetStatus() != withdrawn {
				t.Errorf("they ended as %v", claims)
			}
			if got := server.open(t, "a").Lock("l", inLine); got.GetPrevious() != none {
				t.Errorf("got %v", got)
			}
		},
		"a client that has nothing more to say": func(t *testing.T, server *server, a, b *harness.Session) {
			locked := a.Ask(harness.LockCommand("m"))
			must(t, a.CloseSend())
			a.Stands(a.Answer(locked), "m", holding)
			a.Ends(codes.OK, "")
			server.dial(t).Open("a", harness.Resume)
		},
		"reset to none": func(t *testing.T, server *server, a, b *harness.Session) {
			if n := server.reset(t); n != 3 {
				t.Errorf("%d ended", n)
			}
			if got := a.Hears("l", inLine, none); got.GetStatus() != revoked {
				t.Errorf("got %v", got)
			}
			a.Hears("k", holding, none)
			a.Ends(codes.NotFound, "SESSION_ENDED")
			b.Hears("k", inLine, none) // promotion skips it
			b.Hears("l", holding, none)
			b.Ends(codes.NotFound, "SESSION_ENDED")
			if list := server.sessions(t); len(list) > 0 {
				t.Errorf("there are %v", list)
			}
		},
		"reset to a list": func(t *testing.T, server *server, a, b *harness.Session) {
			c := server.open(t, "c")
			c.Lock("k", inLine)
			c.Lock("l", inLine)
			if n := server.reset(t, c.ID, harness.SessionID("nobody")); n != 3 {
				t.Errorf("%d ended", n)
			}
			c.HearsAll(inLine, holding, "k", "l")
			c.Quiet()
			b.Hears("k", inLine, none) // it was never promoted
			if list := server.sessions(t); len(list) != 1 || list[0].GetId() != c.ID {
				t.Errorf("there are %v", list)
			}
		},
		"reset by disconnection": func(t *testing.T, server *server, a, b *harness.Session) {
			c := server.open(t, "c")
			c.Lock("k", inLine)
			c.KeepAlive()
			a.BreakOff()
			b.BreakOff() // it waits for k, and is promoted by nobody
			had := time.Now()
			c.Hears("k", inLine, holding)
			if took := time.Since(had); took < 10*time.Second || took > 10*time.Second+100*time.Millisecond {
				t.Errorf("it took %s", took)
			}
			for _, claim := range server.list(t, &models.ListClaimsRequest{Resource: ptr("k"), Owner: ptr("b")}).GetClaims() {
				if claim.GetActiveDuration() > 0.1 {
					t.Errorf("it held: %v", claim)
				}
			}
		},
		"another stream takes over": func(t *testing.T, server *server, a, b *harness.Session) {
			again := server.dial(t)
			again.Open("a", harness.Resume)
			a.Ends(codes.Aborted, "SESSION_MOVED")
			time.Sleep(4 * time.Second)
			again.Heartbeat()
			time.Sleep(4 * time.Second)
			again.Heartbeat()
			b.Quiet()
			again.Unlock("k")
			b.Hears("k", inLine, holding)
		},
		"an open that is repeated": func(t *testing.T, server *server, a, b *harness.Session) {
			a.BreakOff()
			again := server.dial(t)
			again.Ask(harness.OpenRequest("a"))
			for range 2 {
				if got := again.Next(); got.GetStatus() == nil {
					t.Errorf("got %v", got)
				}
			}
			if got := again.Next().GetOpened(); !got.GetResumed() {
				t.Errorf("got %v", got)
			}
		},
		"the list": func(t *testing.T, server *server, a, b *harness.Session) {
			a.BreakOff()
			time.Sleep(time.Second)
			list := server.sessions(t)
			if len(list) != 3 || list[0].GetId() != a.ID || list[1].GetId() != b.ID {
				t.Fatalf("got %v", list)
			}
			if got := list[0]; got.GetOwner() != "a" || got.GetTtl() != 10 || got.GetServer() != "" || got.GetHolding() != 1 || got.GetWaiting() != 1 || got.GetCreated() == nil {
				t.Errorf("got %v", got)
			}
			near(t, "the time left", list[0].GetEndsIn(), 9)
			if got := list[1]; got.GetServer() == "" || got.EndsIn != nil {
				t.Errorf("got %v", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *server) {
				other := server.open(t, "zz", harness.SessionTTL(86_400)) // beats continue
				a, b := server.open(t, "a"), server.open(t, "b")
				a.Lock("k", holding)
				b.Lock("l", holding)
				a.Lock("l", inLine)
				b.Lock("k", inLine, func(l *models.LockCommand) { l.AllowDeadlock = true })
				other.KeepAlive()
				if name != "reset by disconnection" {
					b.KeepAlive()
				}
				test(t, server, a, b)
			})
		})
	}
}

// TestSessionOutlivesItsServer: a server that stops detaches its sessions, and the next server has them with all their
// claims. A session that is not resumed ends after its TTL.
func TestSessionOutlivesItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		server := startIn(t, folder)
		a, b := server.open(t, "a"), server.open(t, "b")
		held := a.Lock("k", holding)
		b.Lock("l", holding)
		server.stop()
		a.Ends(codes.Unavailable, "SHUTTING_DOWN")
		stopped := time.Now()
		server = startIn(t, folder)
		if list := server.sessions(t); len(list) != 2 || list[0].GetServer() != "" {
			t.Errorf("they are not detached: %v", list)
		}
		c := server.open(t, "c")
		c.KeepAlive()
		again := server.dial(t)
		if had := again.Open("a", harness.Resume); len(had) != 1 || had[0].GetToken() != held.GetToken() {
			t.Errorf("it had %v", had)
		}
		c.Lock("l", inLine)
		c.Hears("l", inLine, holding)
		if took := time.Since(stopped); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestSessionLimit: a server attaches sessions up to its limit, and beyond it only sessions that it has already.
func TestSessionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := startWith(t, t.TempDir(), func(s db.Store) db.Store { return s }, func(c *whole.Config) { c.MaxSessions = 3 })
		for i := range 3 {
			server.open(t, fmt.Sprint(i))
		}
		more := server.dial(t)
		more.Ask(harness.OpenRequest("more"))
		more.Ends(codes.ResourceExhausted, "TOO_MANY_SESSIONS")
		again := server.dial(t)
		again.Open("1", harness.Resume)
		again.Close()
		server.open(t, "more")
	})
}
