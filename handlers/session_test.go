package handlers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

const (
	none    = harness.None
	inLine  = harness.Waiting
	holding = harness.Held
)

const secret = harness.SessionSecret

// dial opens a stream without sending anything.
func (s *server) dial(t *testing.T) *harness.Session {
	t.Helper()
	return harness.DialSession(t, s.LocketClient)
}

// open opens a session, and returns its stream.
func (s *server) open(t *testing.T, name string, more ...func(*models.OpenSession)) *harness.Session {
	t.Helper()
	st := s.dial(t)
	st.Open(name, more...)
	return st
}

// TestSessionCommands is the example of the requirements: five sessions on three keys.
func TestSessionCommands(t *testing.T) {
	bubble(t, func(t *testing.T, server *server) {
		var s []*harness.Session
		for i := range 5 {
			s = append(s, server.open(t, fmt.Sprint("s", i)))
		}
		for _, key := range []string{"k1", "k2", "k3"} {
			s[0].Lock(key, holding)
			for _, waiter := range s[1:] {
				waiter.Lock(key, inLine)
			}
		}
		s[0].Unlock("k1")
		s[1].Hears("k1", inLine, holding)
		s[3].Unlock("k1") // a waiter leaves the queue
		s[1].Unlock("k1")
		s[2].Hears("k1", inLine, holding)
		s[2].Unlock("k1")
		s[4].Hears("k1", inLine, holding)
		s[0].Unlock("k1") // neither held nor waiting: nothing changes
		s[0].UnlockAll()
		s[0].HearsAll(holding, none, "k2", "k3")
		s[1].HearsAll(inLine, holding, "k2", "k3")
		s[2].UnlockAll() // as a waiter
		s[2].HearsAll(inLine, none, "k2", "k3")
		s[2].Quiet() // its grant of k1 had ended
		s[1].Close()
		s[3].HearsAll(inLine, holding, "k2", "k3")
		for _, st := range []*harness.Session{s[0], s[2], s[3], s[4]} {
			st.Quiet()
		}
	})
}

// TestLockCommand is about one resource that a session locks.
func TestLockCommand(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, server *server, a, b *harness.Session){
		"asking again keeps the place": func(t *testing.T, server *server, a, b *harness.Session) {
			c := server.open(t, "c")
			first := a.Lock("k", holding)
			place := b.Lock("k", inLine)
			c.Lock("k", inLine)
			if again := a.Lock("k", holding); again.GetToken() != first.GetToken() || again.GetPrevious() != holding {
				t.Errorf("%v, then %v", first, again)
			}
			if again := b.Lock("k", inLine); again.GetClaim() != place.GetClaim() || again.GetPrevious() != inLine {
				t.Errorf("%v, then %v", place, again)
			}
			a.Unlock("k")
			b.Hears("k", inLine, holding)
			c.Quiet()
		},
		"try says who holds": func(t *testing.T, server *server, a, b *harness.Session) {
			held := a.Lock("k", holding, harness.Try)
			refused := b.Lock("k", none, harness.Try)
			if refused.GetHolder() != "a" || refused.GetHolderSession() != a.ID || refused.GetHolderToken() != held.GetToken() {
				t.Errorf("got %v", refused)
			}
			a.Unlock("k")
			b.Quiet() // it does not wait
			b.Lock("k", holding, harness.Try)
		},
		"try says which of many holds": func(t *testing.T, server *server, a, b *harness.Session) {
			a.Lock("k", holding, harness.Shared)
			if refused := b.Lock("k", none, harness.Try); refused.GetHolder() != "a" {
				t.Errorf("got %v", refused)
			}
			b.Lock("k", holding, harness.Try, harness.Shared)
		},
		"a waiter that tries goes on waiting": func(t *testing.T, server *server, a, b *harness.Session) {
			held := a.Lock("k", holding)
			b.Lock("k", inLine)
			if got := b.Lock("k", inLine, harness.Try); got.GetHolderToken() != held.GetToken() {
				t.Errorf("got %v", got)
			}
			a.Unlock("k")
			b.Hears("k", inLine, holding)
		},
		"shared and exclusive": func(t *testing.T, server *server, a, b *harness.Session) {
			a.Lock("k", holding, harness.Shared)
			b.Lock("k", holding, harness.Shared)
			answer := b.Answer(b.Ask(harness.LockCommand("k")))
			if e := answer.GetError(); codes.Code(e.GetCode()) != codes.FailedPrecondition || e.GetReason() != "WRONG_MODE" || e.GetMetadata()["mode"] != "shared" {
				t.Errorf("got %v", answer)
			}
			b.Lock("k", holding, harness.Shared) // the stream still works
		},
		"behind a lock without a session": func(t *testing.T, server *server, a, b *harness.Session) {
			server.lock(t, "k", "a", 60) // the same owner, without a session
			if got := a.Lock("k", none, harness.Try); got.GetHolder() != "a" || got.GetHolderSession() != "" {
				t.Errorf("got %v", got)
			}
			a.Lock("k", inLine)
			must(t, server.release(t, "k", "a", 0))
			a.Hears("k", inLine, holding)
		},
		"value and user data": func(t *testing.T, server *server, a, b *harness.Session) {
			held := a.Lock("k", holding, func(l *models.LockCommand) {
				l.Value, l.UserData, l.TypeCode = "v", ptr(`{"n":1}`), models.TypeCode_PRESENCE
			})
			got := server.get(t, held.GetClaim())
			if got.GetValue() != "v" || got.GetUserData() != `{"n":1}` || got.GetTypeCode() != models.TypeCode_PRESENCE || got.GetOwner() != "a" || got.GetToken() != held.GetToken() {
				t.Errorf("got %v", got)
			}
		},
		"unlock with a token": func(t *testing.T, server *server, a, b *harness.Session) {
			token := func(token uint64) *models.SessionRequest {
				return &models.SessionRequest{Command: &models.SessionRequest_Unlock{Unlock: &models.UnlockCommand{Resource: "k", Token: &token}}}
			}
			held := a.Lock("k", holding)
			a.Stands(a.Answer(a.Ask(token(held.GetToken()+1))), "k", holding)
			b.Lock("k", inLine)
			b.Stands(b.Answer(b.Ask(token(held.GetToken()))), "k", inLine)
			a.Stands(a.Answer(a.Ask(token(held.GetToken()))), "k", none)
			b.Hears("k", inLine, holding)
		},
		"unlock says how the claim ended": func(t *testing.T, server *server, a, b *harness.Session) {
			a.Lock("k", holding)
			b.Lock("k", inLine)
			if got := b.Unlock("k"); got.GetStatus() != withdrawn || got.GetPrevious() != inLine {
				t.Errorf("got %v", got)
			}
			if got := a.Unlock("k"); got.GetStatus() != released || got.GetPrevious() != holding {
				t.Errorf("got %v", got)
			}
			if got := a.Unlock("k"); got.GetStatus() != 0 || got.GetPrevious() != none {
				t.Errorf("got %v", got)
			}
		},
		"a deadlock": func(t *testing.T, server *server, a, b *harness.Session) {
			a.Lock("k", holding)
			b.Lock("l", holding)
			a.Lock("l", inLine)
			for range 2 { // also the second time
				b.CloseCircle("k", a.ID, b.ID)
			}
			a.Quiet()
			b.Unlock("l")
			a.Hears("l", inLine, holding)
		},
		"a deadlock that the youngest allows": func(t *testing.T, server *server, a, b *harness.Session) {
			a.Lock("k", holding)
			b.Lock("l", holding)
			a.Lock("l", inLine)
			b.Lock("k", inLine, func(l *models.LockCommand) { l.AllowDeadlock = true })
			a.Quiet()
			b.Quiet()
			a.Unlock("k")
			b.Hears("k", inLine, holding)
		},
		"a deadlock of three": func(t *testing.T, server *server, a, b *harness.Session) {
			ring := []*harness.Session{a, b, server.open(t, "c")}
			for i, s := range ring {
				s.Lock(fmt.Sprint(i), holding)
			}
			ring[0].Lock("1", inLine)
			ring[1].Lock("2", inLine)
			ring[2].CloseCircle("0", ring[0].ID, ring[1].ID, ring[2].ID)
			for _, s := range ring {
				s.Quiet()
			}
			ring[2].Unlock("2")
			ring[1].Hears("2", inLine, holding)
		},
		"a deadlock with an owner": func(t *testing.T, server *server, a, b *harness.Session) {
			server.mustClaim(t, "owner", "l")
			a.Lock("k", holding)
			server.mustClaim(t, "owner", "k")
			a.CloseCircle("l", a.ID, "ownerk")
			a.Lock("m", holding)
			b.Lock("l", inLine)
			b.Quiet()
			server.mustClaim(t, "owner", "m") // waits behind the same session once more
			server.mustClaim(t, "other", "n")
			a.Lock("n", inLine)
			time.Sleep(time.Millisecond)
			server.mustClaim(t, "other", "m")
			if _, err := server.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "otherm"}); models.ReasonOf(err) != models.ReasonDeadlock {
				t.Errorf("an owner in a deadlock with a session: %v", err)
			}
		},
		"a claim that somebody else ends": func(t *testing.T, server *server, a, b *harness.Session) {
			held := a.Lock("k", holding)
			b.Lock("k", inLine)
			server.end(t, held.GetClaim(), revoked)
			if got := a.Hears("k", holding, none); got.GetStatus() != revoked {
				t.Errorf("got %v", got)
			}
			b.Hears("k", inLine, holding)
			a.Lock("k", inLine)
		},
		"commands do not wait for each other": func(t *testing.T, server *server, a, b *harness.Session) {
			var sent []uint64
			for i := range 300 {
				key := fmt.Sprint(i % 10)
				sent = append(sent, a.Ask(harness.LockCommand(key)), a.Ask(harness.LockCommand(key)), a.Ask(harness.UnlockCommand(key)))
			}
			last := make(map[string]uint64)
			for range sent {
				got := a.Next()
				if key := got.GetStatus().GetResource(); got.GetSequence() <= last[key] {
					t.Fatalf("%v after %d", got, last[key])
				} else {
					last[key] = got.GetSequence()
				}
				want := []models.Holding{holding, holding, none}[(got.GetSequence()-2)%3]
				if got.GetStatus().GetCurrent() != want {
					t.Fatalf("got %v, want %s", got, want)
				}
			}
		},
		"unlock-all and close wait for what was sent before": func(t *testing.T, server *server, a, b *harness.Session) {
			for i := range 10 {
				a.Ask(harness.LockCommand(fmt.Sprint(i)))
			}
			all := a.Ask(&models.SessionRequest{Command: &models.SessionRequest_UnlockAll{UnlockAll: &models.UnlockAllCommand{}}})
			again := a.Ask(harness.LockCommand("0"))
			closing := a.Ask(&models.SessionRequest{Command: &models.SessionRequest_Close{Close: &models.CloseSession{}}})
			var got []string
			for range 10 + 10 + 1 + 1 + 1 + 1 {
				response := a.Next()
				switch {
				case response.GetDone() != nil:
					got = append(got, "done")
				case response.GetSequence() == again:
					got = append(got, "held again")
				case response.GetSequence() == 0 && response.GetStatus().GetCurrent() == none:
					got = append(got, "released")
				case response.GetSequence() < all:
					got = append(got, "held")
				}
			}
			if text := strings.Join(got, " "); text != strings.Repeat("held ", 10)+strings.Repeat("released ", 10)+"done held again released done" {
				t.Errorf("got %s, for %d", text, closing)
			}
			a.Ends(codes.OK, "")
			b.Lock("0", holding)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *server) { test(t, server, server.open(t, "a"), server.open(t, "b")) })
		})
	}
}
