package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/models"
)

// giveUp ends a claim in the way that its status allows.
func (s *server) giveUp(t testing.TB, id, reason string) *models.Claim {
	t.Helper()
	c, err := s.EndClaim(t.Context(), &models.EndClaimRequest{Id: id, Reason: reason})
	must(t, err)
	return c
}

// queue reads a queue; a limit of 0 means none.
func (s *server) queue(t testing.TB, resource string, limit uint32) *models.Queue {
	t.Helper()
	req := &models.GetQueueRequest{Resource: resource}
	if limit != 0 {
		req.Limit = &limit
	}
	q, err := s.GetQueue(t.Context(), req)
	must(t, err)
	return q
}

// TestEndClaim: the status decides how a claim ends, and an end is final.
func TestEndClaim(t *testing.T) {
	for id, want := range map[string]models.Status{
		"active": released, "waiting": withdrawn, "due": released,
		"released": released, "aborted": aborted, "withdrawn": withdrawn, "revoked": revoked, "expired": expired,
	} {
		t.Run(id, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				for _, over := range []models.Status{released, aborted, withdrawn, revoked} {
					name := strings.ToLower(strings.TrimPrefix(over.String(), "STATUS_"))
					s.create(t, "r", name, 600)
					s.end(t, name, over)
				}
				s.create(t, "r", "expired", 1)
				time.Sleep(3 * time.Second)
				s.create(t, "r", "active", 600)
				s.create(t, "r", "waiting", 600)
				s.create(t, "q", "due", 1)
				time.Sleep(time.Second)
				before := s.get(t, id)
				got := s.giveUp(t, id, "why")
				if got.GetStatus() != want {
					t.Errorf("status %s, want %s", got.GetStatus(), want)
				}
				if before.GetStatus() != active && before.GetStatus() != waiting {
					same(t, got, before)
				} else if got.GetReason() != "why" || got.Ttl != nil || got.Position != nil {
					t.Errorf("ended as %v", got)
				}
				// A retry sees the end of the first attempt.
				time.Sleep(time.Second)
				same(t, s.giveUp(t, id, "another"), got)
				same(t, s.get(t, id), got)
			})
		})
	}
}

// TestEndClaimHandsOn: the next waiter is granted a resource that is released.
func TestEndClaimHandsOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		first := s.create(t, "r", "a", 600)
		s.create(t, "r", "b", 600)
		s.create(t, "r", "c", 600)
		b, c := s.await(t, "b", 0), s.await(t, "c", 0)
		s.giveUp(t, "b", "")
		answered(t, b, withdrawn)
		s.giveUp(t, "a", "")
		if next := answered(t, c, active); next.GetToken() <= first.GetToken() {
			t.Errorf("token %d after %d", next.GetToken(), first.GetToken())
		}
	})
}

// TestGetQueue follows a queue from start to end.
func TestGetQueue(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		same := func(when string, want *models.Queue) {
			t.Helper()
			if got := s.queue(t, "r", 0); !proto.Equal(got, want) {
				t.Errorf("%s:\n%v, want\n%v", when, got, want)
			}
		}
		same("at first", &models.Queue{Resource: "r"})

		begin := time.Now()
		data := func(req *models.CreateClaimRequest) {
			req.Owner, req.UserData, req.Value = "jim", ptr(`{"n":1}`), "v"
		}
		holder := s.create(t, "r", "b", 600, data)
		first, second := s.create(t, "r", "c", 600, data), s.create(t, "r", "a", 600, shared)
		time.Sleep(time.Second)
		at := timestamppb.New(begin)
		same("held", &models.Queue{
			Resource: "r", Version: second.GetVersion(), Token: holder.GetToken(), Waiting: 2,
			Holders: []*models.Claim{{
				Id: "b", Resource: "r", Owner: "jim", Status: active, StatusHistory: history(begin, waiting, begin, active),
				Created: at, Ttl: ptr(599.0), GrantedTtl: ptr(600.0), ActiveDuration: ptr(1.0), Value: "v", TypeCode: models.TypeCode_LOCK,
				Token: holder.GetToken(), Version: holder.GetVersion(),
			}},
			Waiters: []*models.Claim{{
				Id: "c", Resource: "r", Owner: "jim", Status: waiting, StatusHistory: history(begin, waiting), Value: "v",
				Created: at, WaitingDuration: 1, TypeCode: models.TypeCode_LOCK, Version: first.GetVersion(), Position: ptr(uint32(1)),
			}, {
				Id: "a", Resource: "r", Mode: models.Mode_MODE_SHARED, Status: waiting, StatusHistory: history(begin, waiting),
				Created: at, WaitingDuration: 1, TypeCode: models.TypeCode_LOCK, Version: second.GetVersion(), Position: ptr(uint32(2)),
			}},
		})

		s.giveUp(t, "b", "")
		s.giveUp(t, "c", "")
		s.create(t, "r", "0", 600, shared)
		got := s.queue(t, "r", 0)
		if ids(got.GetHolders()) != "a 0 " || len(got.GetWaiters()) != 0 || got.GetWaiting() != 0 {
			t.Errorf("shared: %v", got)
		}
		if last := s.get(t, "0"); got.GetToken() != last.GetToken() || got.GetVersion() != last.GetVersion() {
			t.Errorf("token %d, version %d of %v", got.GetToken(), got.GetVersion(), last)
		}

		s.giveUp(t, "a", "")
		over := s.giveUp(t, "0", "")
		same("at last", &models.Queue{Resource: "r", Version: over.GetVersion()})
	})
}

// filled returns a folder with a database after some commands.
func filled(t testing.TB, cmds ...claim.Command) (folder string) {
	t.Helper()
	folder = t.TempDir()
	store, err := replica.Open(filepath.Join(folder, "data"))
	must(t, err)
	for batch := range slices.Chunk(cmds, committer.DefaultBatch) {
		dbtest.Do(t, store, batch...)
	}
	must(t, store.Close())
	return folder
}

// crowd makes claims that share a resource, and as many claims that wait for it.
func crowd(n int, resource, owner string) (cmds []claim.Command) {
	for i := range 2 * n {
		cmd := claim.Create{ID: fmt.Sprint("shared", i), Resource: resource, Owner: owner, Units: claim.Shared, TTL: time.Hour}
		if i >= n {
			cmd.ID, cmd.Units = fmt.Sprint("w", i-n+1), claim.Exclusive
		}
		cmds = append(cmds, cmd)
	}
	return cmds
}

// TestLongQueue: holders and waiters are listed up to a limit; the number of waiters is always included.
func TestLongQueue(t *testing.T) {
	const n = 1005
	store := &counted{}
	s := startWith(t, filled(t, append(crowd(n, "r", "o"), claim.Create{ID: "alone", Resource: "q", TTL: time.Hour})...), store.wrap)
	for limit, want := range map[uint32]int{0: 100, 1: 1, 99: 99, 1000: 1000} {
		got := s.queue(t, "r", limit)
		if len(got.GetHolders()) != 1000 || len(got.GetWaiters()) != want || got.GetWaiting() != n {
			t.Fatalf("limit %d: %d holders, %d waiters of %d", limit, len(got.GetHolders()), len(got.GetWaiters()), got.GetWaiting())
		}
		if last := got.GetHolders()[999]; last.GetId() != "shared999" || got.GetToken() != last.GetToken() {
			t.Errorf("limit %d: token %d, the last of the holders %v", limit, got.GetToken(), last)
		}
		for i, c := range got.GetWaiters() {
			if c.GetId() != fmt.Sprint("w", i+1) || c.GetPosition() != uint32(i+1) {
				t.Fatalf("limit %d: waiter %d is %v", limit, i, c)
			}
		}
	}
	store.take()
	s.queue(t, "r", 1000)
	s.queue(t, "q", 1)
	if queues, places := store.take(); queues != 2 || places != 0 {
		t.Errorf("two queues took %d reads, and %d of places", queues, places)
	}

	place := func(id string, want uint32) {
		t.Helper()
		if c := s.get(t, id); c.GetPosition() != want || (c.Position == nil) != (want == 0) {
			t.Errorf("place %v of %s, want %d", c.Position, id, want)
		}
	}
	place("w1", 1)
	place("w1000", 1000)
	place("w1001", 0)
	s.giveUp(t, "w500", "")
	place("w499", 499)
	place("w501", 500)
	place("w1001", 1000)
	place("w1002", 0)
}

// TestLargeQueue: with the longest names a queue stays below the message limit of clients.
func TestLargeQueue(t *testing.T) {
	name := strings.Repeat("n", maxName)
	s := startIn(t, filled(t, crowd(1000, name, name)...))
	got := s.queue(t, name, 1000)
	if len(got.GetHolders()) != 1000 || len(got.GetWaiters()) < 100 || got.GetWaiting() != 1000 {
		t.Errorf("%d holders, %d waiters of %d", len(got.GetHolders()), len(got.GetWaiters()), got.GetWaiting())
	}
	if size := proto.Size(got); size > 4<<20-1<<16 {
		t.Errorf("%d bytes", size)
	}
}

// TestPlace: the answer about a waiting claim has its position. It is read with the claim, costs a read of its own after a
// commit, and none if the claim is the last of its line by that commit. Other claims have none.
func TestPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{}
		s := startWith(t, t.TempDir(), store.wrap)
		checkReads := func(what string, c *models.Claim, want uint32, reads int) {
			t.Helper()
			if c.GetPosition() != want || (c.Position == nil) != (want == 0) {
				t.Errorf("%s: place %v, want %d", what, c.Position, want)
			}
			if _, places := store.take(); places != reads {
				t.Errorf("%s: %d reads of places", what, places)
			}
		}
		check := func(what string, c *models.Claim, want uint32) {
			t.Helper()
			checkReads(what, c, want, min(int(want), 1))
		}
		check("a, created", s.create(t, "r", "a", 600), 0)
		checkReads("b, created", s.create(t, "r", "b", 600), 1, 0)
		checkReads("c, created", s.create(t, "r", "c", 600, shared), 2, 0)
		checkReads("d, created", s.create(t, "r", "d", 600, shared), 3, 0)
		check("another queue", s.create(t, "q", "x", 600), 0)
		check("c, created again", s.create(t, "r", "c", 600, shared), 2)
		checkReads("a, read", s.get(t, "a"), 0, 1)
		check("d, read", s.get(t, "d"), 3)
		c, err := s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "d", Timeout: durationpb.New(0)})
		must(t, err)
		check("d, awaited for nothing", c, 3)
		check("d, awaited", answered(t, s.await(t, "d", time.Second), waiting), 3)
		for _, c := range s.list(t, &models.ListClaimsRequest{}).GetClaims() {
			check("listed", c, 0)
		}

		check("b, given up", s.giveUp(t, "b", ""), 0)
		check("d, one place on", s.get(t, "d"), 2)
		answers := s.await(t, "d", 0)
		check("a, ended", s.end(t, "a", released), 0)
		check("d, granted", answered(t, answers, active), 0)
		check("d, awaited when it is active", answered(t, s.await(t, "d", 0), active), 0)
		checkReads("b, over", s.get(t, "b"), 0, 1)
		check("b, created again", s.create(t, "r", "b", 600), 0)
	})
}

// TestPlaceUnknown: an answer has no position if it cannot be read, or not in time.
func TestPlaceUnknown(t *testing.T) {
	for name, store := range map[string]*counted{
		"an error":        {err: db.ErrUnavailable},
		"no such claim":   {err: claim.ErrNotFound},
		"no answer":       {hang: true},
		"a strange fault": {err: errors.New("disk on fire")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startWith(t, t.TempDir(), store.wrap)
				s.create(t, "r", "a", 600)
				s.create(t, "r", "b", 600)
				s.create(t, "r", "c", 600)
				begin := time.Now()
				if c := s.create(t, "r", "b", 600); c.GetStatus() != waiting || c.Position != nil { // a repetition
					t.Errorf("got %v", c)
				}
				if took := time.Since(begin); took > 2*time.Second {
					t.Errorf("it took %s", took)
				}
				if got := s.queue(t, "r", 0).GetWaiters()[0].GetPosition(); got != 1 {
					t.Errorf("place %d in the queue", got)
				}
			})
		})
	}
}

// counted counts reads of queues and of positions by calls, not by the tasks of the server. Reads of positions can be
// made to fail, or to hang until the caller has gone.
type counted struct {
	db.Store
	err  error
	hang bool

	mu             sync.Mutex
	queues, places int
}

func (s *counted) wrap(real db.Store) db.Store { s.Store = real; return s }

// take returns the counts since the last call.
func (s *counted) take() (queues, places int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	queues, places = s.queues, s.places
	s.queues, s.places = 0, 0
	return queues, places
}

func (s *counted) Queue(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
	if _, called := peer.FromContext(ctx); called {
		s.mu.Lock()
		s.queues++
		s.mu.Unlock()
	}
	return s.Store.Queue(ctx, resource, limit)
}

func (s *counted) Get(ctx context.Context, id string, limit int) (claim.Claim, int, claim.Instant, error) {
	if limit == 0 {
		return s.Store.Get(ctx, id, limit)
	}
	s.mu.Lock()
	s.places++
	s.mu.Unlock()
	if s.hang {
		<-ctx.Done()
		return claim.Claim{}, 0, claim.Instant{}, ctx.Err()
	}
	if s.err != nil {
		return claim.Claim{}, 0, claim.Instant{}, s.err
	}
	return s.Store.Get(ctx, id, limit)
}
