package handlers_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/models"
)

const (
	waiting   = models.Status_STATUS_WAITING
	active    = models.Status_STATUS_ACTIVE
	released  = models.Status_STATUS_RELEASED
	expired   = models.Status_STATUS_EXPIRED
	aborted   = models.Status_STATUS_ABORTED
	withdrawn = models.Status_STATUS_WITHDRAWN
	revoked   = models.Status_STATUS_REVOKED
)

// TestCreate follows two claims from start to end.
func TestCreate(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		begin := time.Now()
		first, err := s.CreateClaim(t.Context(), &models.CreateClaimRequest{
			Resource: "r", Id: "a", Ttl: ptr(2.5), Owner: "jim", UserData: ptr(`{"n":1}`), Value: "v",
		})
		must(t, err)
		same(t, first, &models.Claim{
			Id: "a", Resource: "r", Owner: "jim", Status: active, StatusHistory: history(begin, waiting, begin, active),
			Created: timestamppb.New(begin), Ttl: ptr(2.5), GrantedTtl: ptr(2.5), ActiveDuration: ptr(0.0), UserData: ptr(`{"n":1}`),
			Value: "v", TypeCode: models.TypeCode_LOCK, Token: first.GetToken(), Version: first.GetVersion(),
		})
		if first.GetToken() == 0 || first.GetVersion() < first.GetToken() {
			t.Errorf("token %d, version %d", first.GetToken(), first.GetVersion())
		}

		time.Sleep(500 * time.Millisecond)
		second := s.create(t, "r", "b", 60, shared)
		same(t, second, &models.Claim{
			Id: "b", Resource: "r", Mode: models.Mode_MODE_SHARED, Status: waiting,
			StatusHistory: history(begin.Add(500*time.Millisecond), waiting),
			Created:       timestamppb.New(begin.Add(500 * time.Millisecond)),
			TypeCode:      models.TypeCode_LOCK, Version: second.GetVersion(), Position: ptr(uint32(1)),
		})

		time.Sleep(time.Second)
		first = s.get(t, "a")
		near(t, "ttl", first.GetTtl(), 1)
		near(t, "active duration", first.GetActiveDuration(), 1.5)
		near(t, "waiting duration of b", s.get(t, "b").GetWaitingDuration(), 1)

		first = s.end(t, "a", released)
		if first.Ttl != nil {
			t.Error("a released claim has a ttl")
		}
		granted := time.Now()
		time.Sleep(time.Second)
		near(t, "frozen active duration", s.get(t, "a").GetActiveDuration(), 1.5)
		second = s.get(t, "b")
		near(t, "frozen waiting duration", second.GetWaitingDuration(), 1)
		near(t, "ttl of b", second.GetTtl(), 59)
		near(t, "active duration of b", second.GetActiveDuration(), 1)
		want := history(begin.Add(500*time.Millisecond), waiting, granted, active)
		for i, change := range second.GetStatusHistory() {
			if !proto.Equal(change, want[i]) {
				t.Errorf("history %v, want %v", second.GetStatusHistory(), want)
			}
		}
		if second.GetToken() <= first.GetToken() {
			t.Errorf("token %d after %d", second.GetToken(), first.GetToken())
		}
	})
}

func history(atAndStatus ...any) (changes []*models.StatusChange) {
	for i := 0; i < len(atAndStatus); i += 2 {
		changes = append(changes, &models.StatusChange{
			Timestamp: timestamppb.New(atAndStatus[i].(time.Time)), Status: atAndStatus[i+1].(models.Status),
		})
	}
	return changes
}

func same(t *testing.T, got, want *models.Claim) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("claim\n%v, want\n%v", got, want)
	}
}

func TestCreateRepeated(t *testing.T) {
	s := start(t)
	holder := s.create(t, "r", "a", 60)
	waiter := s.create(t, "r", "b", 60, func(req *models.CreateClaimRequest) {
		req.Owner, req.UserData = "jim", ptr("1")
	})
	repeat := func(change func(*models.CreateClaimRequest)) (*models.Claim, error) {
		req := &models.CreateClaimRequest{Resource: "r", Id: "b", Ttl: ptr(60.0), Owner: "jim", UserData: ptr("1")}
		change(req)
		return s.CreateClaim(t.Context(), req)
	}
	t.Run("returns the first claim", func(t *testing.T) {
		again, err := repeat(func(*models.CreateClaimRequest) {})
		must(t, err)
		if again.GetVersion() != waiter.GetVersion() || again.GetStatus() != waiting {
			t.Errorf("got %v, first %v", again, waiter)
		}
		if again := s.create(t, "r", "a", 60); again.GetToken() != holder.GetToken() {
			t.Errorf("token %d, then %d", holder.GetToken(), again.GetToken())
		}
		if n := len(s.list(t, &models.ListClaimsRequest{}).GetClaims()); n != 2 {
			t.Errorf("%d claims", n)
		}
	})
	for name, change := range map[string]func(*models.CreateClaimRequest){
		"another resource": func(req *models.CreateClaimRequest) { req.Resource = "other" },
		"another owner":    func(req *models.CreateClaimRequest) { req.Owner = "joe" },
		"another mode":     shared,
		"other user data":  func(req *models.CreateClaimRequest) { req.UserData = ptr("2") },
		"no user data":     func(req *models.CreateClaimRequest) { req.UserData = nil },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := repeat(change)
			refused(t, err, codes.AlreadyExists, "the id names a claim that another request made")
			wantReason(t, err, "ID_TAKEN")
		})
	}
	t.Run("the end of it is what a late retry sees", func(t *testing.T) {
		s.end(t, "b", withdrawn)
		again, err := repeat(func(*models.CreateClaimRequest) {})
		must(t, err)
		if again.GetStatus() != withdrawn {
			t.Errorf("status %s", again.GetStatus())
		}
	})
}

// TestChosenIDs: the server's ids are different, may be sent back, and rise.
func TestChosenIDs(t *testing.T) {
	s := start(t)
	last := ""
	for range 5 {
		c := s.create(t, "r", "", 60)
		if c.GetId() <= last {
			t.Errorf("id %q after %q", c.GetId(), last)
		}
		last = c.GetId()
		if got := s.get(t, last); got.GetVersion() != c.GetVersion() {
			t.Errorf("got %v for %v", got, c)
		}
		time.Sleep(2 * time.Millisecond) // real time: ids begin with the time, to the millisecond
	}
	if n := len(s.list(t, &models.ListClaimsRequest{Resource: ptr("r")}).GetClaims()); n != 5 {
		t.Errorf("%d claims", n)
	}
}

// TestUserData: user data comes back byte for byte, and null differs from no user data.
func TestUserData(t *testing.T) {
	s := start(t)
	for i, data := range []*string{nil, ptr("null"), ptr(`""`), ptr("0"), ptr(` { "b" : [1, "é\u0000"] } `)} {
		id := number("c", i)
		s.create(t, id, id, 60, func(req *models.CreateClaimRequest) { req.UserData = data })
		got := s.get(t, id)
		if (got.UserData == nil) != (data == nil) || (data != nil && got.GetUserData() != *data) {
			t.Errorf("stored %v, got %v", data, got.UserData)
		}
	}
}

func TestNoSuchClaim(t *testing.T) {
	s := start(t)
	for _, id := range []string{"", "none", "a/b", "a b", "..", "%2e", "é", "a\x00", strings.Repeat("a", 129), "'; DROP TABLE claims"} {
		_, err := s.GetClaim(t.Context(), &models.GetClaimRequest{Id: id})
		noSuchClaim(t, err)
		_, err = s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Ttl: ptr(1.0)})
		noSuchClaim(t, err)
		_, err = s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Status: released})
		noSuchClaim(t, err)
		_, err = s.EndClaim(t.Context(), &models.EndClaimRequest{Id: id, Reason: "why"})
		noSuchClaim(t, err)
		_, err = s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: id})
		noSuchClaim(t, err)
		_, err = s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: id, Timeout: durationpb.New(time.Hour)})
		noSuchClaim(t, err)
	}
}

func noSuchClaim(t *testing.T, err error) {
	t.Helper()
	refused(t, err, codes.NotFound, "claim-not-found")
	wantReason(t, err, "CLAIM_NOT_FOUND")
}

// TestUpdate tests the codes; package claim tests all transitions.
func TestUpdate(t *testing.T) {
	type update = models.UpdateClaimRequest
	for _, c := range []struct {
		name   string
		change *update
		code   codes.Code
		field  string // the invalid field, for InvalidArgument
	}{
		{"renew", &update{Id: "active", Ttl: ptr(9.0)}, codes.OK, ""},
		{"renew to nothing", &update{Id: "active", Ttl: ptr(0.0)}, codes.OK, ""},
		{"refresh", &update{Id: "active", Ttl: ptr(9.0), Status: active}, codes.OK, ""},
		{"active stays active", &update{Id: "active", Status: active}, codes.OK, ""},
		{"release", &update{Id: "active", Status: released}, codes.OK, ""},
		{"abort with a reason", &update{Id: "active", Status: aborted, Reason: "why"}, codes.OK, ""},
		{"revoke who waits", &update{Id: "waiting", Status: revoked}, codes.OK, ""},
		{"withdraw who waits", &update{Id: "waiting", Status: withdrawn}, codes.OK, ""},
		{"release again", &update{Id: "released", Status: released}, codes.OK, ""},

		{"active before its turn", &update{Id: "waiting", Status: active}, codes.Aborted, ""},
		{"refresh before its turn", &update{Id: "waiting", Status: active, Ttl: ptr(9.0)}, codes.Aborted, ""},
		{"renew who waits", &update{Id: "waiting", Ttl: ptr(9.0)}, codes.FailedPrecondition, ""},
		{"release who waits", &update{Id: "waiting", Status: released}, codes.FailedPrecondition, ""},
		{"renew what is over", &update{Id: "released", Ttl: ptr(9.0)}, codes.FailedPrecondition, ""},
		{"activate what is over", &update{Id: "released", Status: active}, codes.FailedPrecondition, ""},
		{"end it in another way", &update{Id: "released", Status: revoked}, codes.FailedPrecondition, ""},
		{"no such claim", &update{Id: "none", Status: active}, codes.NotFound, ""},

		{"nothing", &update{Id: "active"}, codes.InvalidArgument, "status"},
		{"to expired", &update{Id: "active", Status: expired}, codes.InvalidArgument, "status"},
		{"to waiting", &update{Id: "active", Status: waiting}, codes.InvalidArgument, "status"},
		{"to an unknown status", &update{Id: "active", Status: 8}, codes.InvalidArgument, "status"},
		{"to a negative status", &update{Id: "active", Status: -1}, codes.InvalidArgument, "status"},
		{"to a status past a byte", &update{Id: "active", Status: 256 + released}, codes.InvalidArgument, "status"},
		{"to a negative status past a byte", &update{Id: "active", Status: active - 256}, codes.InvalidArgument, "status"},
		{"past a byte with a ttl", &update{Id: "active", Status: 256, Ttl: ptr(1.0)}, codes.InvalidArgument, "status"},
		{"final with a ttl", &update{Id: "active", Status: released, Ttl: ptr(1.0)}, codes.InvalidArgument, "ttl"},
		{"renew with a reason", &update{Id: "active", Ttl: ptr(1.0), Reason: "why"}, codes.InvalidArgument, "reason"},
		{"active with a reason", &update{Id: "active", Status: active, Reason: "why"}, codes.InvalidArgument, "reason"},
		{"abort as a server does", &update{Id: "active", Status: aborted, Reason: models.DeadlockReason + "a, b"}, codes.InvalidArgument, "reason"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				s.create(t, "r", "released", 60)
				s.end(t, "released", released)
				s.create(t, "r", "active", 60)
				s.create(t, "r", "waiting", 60)
				before := s.list(t, &models.ListClaimsRequest{})
				got, err := s.UpdateClaim(t.Context(), c.change)
				if status.Code(err) != c.code {
					t.Fatalf("got %v", err)
				}
				if err == nil {
					updated(t, got, c.change)
					return
				}
				if !proto.Equal(s.list(t, &models.ListClaimsRequest{}), before) {
					t.Error("what was refused left something behind")
				}
				switch c.code {
				case codes.Aborted:
					wantReason(t, err, "CLAIM_WAITS")
				case codes.FailedPrecondition:
					wantReason(t, err, "WRONG_STATUS")
					if got := models.ErrorInfoOf(err).GetMetadata()["status"]; got != c.change.GetId() {
						t.Errorf("metadata: status %q, want %q", got, c.change.GetId())
					}
				case codes.InvalidArgument:
					invalid(t, err, c.field)
				}
			})
		})
	}
}

// updated fails the test unless the answer shows the requested change.
func updated(t *testing.T, got *models.Claim, asked *models.UpdateClaimRequest) {
	t.Helper()
	if want := asked.GetStatus(); want != 0 && got.GetStatus() != want {
		t.Errorf("status %s, want %s", got.GetStatus(), want)
	}
	if asked.Ttl != nil && (got.Ttl == nil || got.GetTtl() != asked.GetTtl()) {
		t.Errorf("ttl %v, want %v", got.Ttl, asked.GetTtl())
	}
	if got.GetReason() != asked.GetReason() {
		t.Errorf("reason %q, want %q", got.GetReason(), asked.GetReason())
	}
}

// TestRenewalOfASessionsClaim: it has no TTL to renew, and trying to is not a server error.
func TestRenewalOfASessionsClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		id := s.open(t, "a").Lock("k", holding).GetClaim()
		for _, to := range []models.Status{models.Status_STATUS_UNSPECIFIED, active} {
			_, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Ttl: ptr(60.0), Status: to})
			invalid(t, err, "ttl")
		}
		_, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Status: active})
		must(t, err)
	})
}

// TestRepeatedEnd: repeating a final status changes nothing, the first reason included.
func TestRepeatedEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.create(t, "r", "a", 60)
		end := &models.UpdateClaimRequest{Id: "a", Status: aborted, Reason: "first"}
		first, err := s.UpdateClaim(t.Context(), end)
		must(t, err)
		time.Sleep(time.Second)
		end.Reason = "second"
		again, err := s.UpdateClaim(t.Context(), end)
		must(t, err)
		same(t, again, first)
	})
}

func TestAwait(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, s *server){
		"granted": func(t *testing.T, s *server) {
			answer := s.await(t, "b", 0)
			s.end(t, "a", released)
			answered(t, answer, active)
		},
		"ended": func(t *testing.T, s *server) {
			answer := s.await(t, "b", 0)
			s.end(t, "b", withdrawn)
			answered(t, answer, withdrawn)
		},
		"active already": func(t *testing.T, s *server) { answered(t, s.await(t, "a", 0), active) },
		"over already": func(t *testing.T, s *server) {
			s.end(t, "b", revoked)
			answered(t, s.await(t, "b", 0), revoked)
		},
		"the timeout returns the claim as it is": func(t *testing.T, s *server) {
			begin := time.Now()
			c := answered(t, s.await(t, "b", 2*time.Second), waiting)
			if took := time.Since(begin); took != 2*time.Second {
				t.Errorf("it took %s", took)
			}
			near(t, "waiting duration", c.GetWaitingDuration(), 2)
		},
		"granted before the timeout": func(t *testing.T, s *server) {
			answer := s.await(t, "b", 2*time.Second)
			s.end(t, "a", released)
			answered(t, answer, active)
		},
		"a timeout of nothing": func(t *testing.T, s *server) {
			c, err := s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "b", Timeout: durationpb.New(0)})
			must(t, err)
			if c.GetStatus() != waiting {
				t.Errorf("status %s", c.GetStatus())
			}
		},
		"the longest timeout": func(t *testing.T, s *server) {
			answer := s.await(t, "b", 1<<63-1)
			s.end(t, "a", released)
			answered(t, answer, active)
		},
		"a negative timeout": func(t *testing.T, s *server) {
			_, err := s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "b", Timeout: durationpb.New(-1)})
			invalid(t, err, "timeout")
		},
		"a timeout that is none": func(t *testing.T, s *server) {
			for _, d := range []*durationpb.Duration{{Seconds: 1 << 62}, {Seconds: 1, Nanos: -1}} {
				_, err := s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "b", Timeout: d})
				invalid(t, err, "timeout")
			}
		},
		"the caller's deadline": func(t *testing.T, s *server) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: "b"})
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("got %v", err)
			}
		},
		"the caller goes away": func(t *testing.T, s *server) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err := s.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: "b"})
			if status.Code(err) != codes.Canceled {
				t.Errorf("got %v", err)
			}
		},
		"the end of the server": func(t *testing.T, s *server) {
			answer := s.await(t, "b", 0)
			begin := time.Now()
			s.stop()
			err := (<-answer).err
			refused(t, err, codes.Unavailable, "the server is shutting down; ask again")
			wantReason(t, err, "SHUTTING_DOWN")
			if took := time.Since(begin); took > time.Second {
				t.Errorf("the end took %s", took)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				s.create(t, "r", "a", 600)
				s.create(t, "r", "b", 600)
				test(t, s)
			})
		})
	}
}

type answer struct {
	claim *models.Claim
	err   error
}

// await starts a call and returns when it waits in the server or has been answered. A timeout of 0 means none.
func (s *server) await(t *testing.T, id string, timeout time.Duration) <-chan answer {
	t.Helper()
	req := &models.AwaitClaimRequest{Id: id}
	if timeout != 0 {
		req.Timeout = durationpb.New(timeout)
	}
	answers := make(chan answer, 1)
	go func() {
		c, err := s.AwaitClaim(t.Context(), req)
		answers <- answer{c, err}
	}()
	synctest.Wait()
	return answers
}

func answered(t *testing.T, answers <-chan answer, want models.Status) *models.Claim {
	t.Helper()
	var got answer
	select {
	case got = <-answers:
	case <-time.After(time.Minute): // real time: none, servers run in bubbles
		t.Fatal("there was no answer")
	}
	must(t, got.err)
	if got.claim.GetStatus() != want {
		t.Errorf("status %s, want %s", got.claim.GetStatus(), want)
	}
	return got.claim
}

// TestAwaitInTurn: each of many waiters is notified at its turn, in the order of the queue.
func TestAwaitInTurn(t *testing.T) {
	const waiters = 50
	bubble(t, func(t *testing.T, s *server) {
		s.create(t, "r", "holder", 600)
		var (
			all   sync.WaitGroup
			mu    sync.Mutex
			order []*models.Claim
		)
		for i := range waiters {
			s.create(t, "r", number("c", i), 600)
		}
		for i := range waiters {
			all.Go(func() {
				c, err := s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: number("c", waiters-1-i)})
				if err != nil || c.GetStatus() != active {
					t.Errorf("got %v (%v)", c, err)
					return
				}
				mu.Lock()
				order = append(order, c)
				mu.Unlock()
				if _, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: c.GetId(), Status: released}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		s.end(t, "holder", released)
		all.Wait()
		for i, c := range order {
			if c.GetId() != number("c", i) {
				t.Fatalf("%s was number %d", c.GetId(), i)
			}
			if i > 0 && c.GetToken() <= order[i-1].GetToken() {
				t.Errorf("token %d after %d", c.GetToken(), order[i-1].GetToken())
			}
		}
	})
}
