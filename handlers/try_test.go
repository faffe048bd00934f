package handlers_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/locket-service/locket/models"
)

func noWait(req *models.CreateClaimRequest) { req.NoWait = true }

// try makes a claim that does not wait.
func (s *server) try(ctx context.Context, resource, id string, mode models.Mode) (*models.Claim, error) {
	return s.CreateClaim(ctx, &models.CreateClaimRequest{Resource: resource, Id: id, Ttl: ptr(60.0), Owner: "owner of " + id, Mode: mode, NoWait: true})
}

const (
	exclusively = models.Mode_MODE_EXCLUSIVE
	together    = models.Mode_MODE_SHARED
)

// TestTry: a claim with no_wait holds at once, or is refused with the name of a holder and leaves nothing behind.
func TestTry(t *testing.T) {
	s := start(t)
	first, err := s.try(t.Context(), "r", "a", exclusively)
	must(t, err)
	if first.GetStatus() != active {
		t.Errorf("status %s", first.GetStatus())
	}
	for range 2 { // the second time it is repeated
		_, err = s.try(t.Context(), "r", "b", together)
		collides(t, err, "owner of a", first.GetToken())
	}
	if all := ids(s.list(t, &models.ListClaimsRequest{}).GetClaims()); all != "a " {
		t.Errorf("the claims are %q", all)
	}
	_, err = s.GetClaim(t.Context(), &models.GetClaimRequest{Id: "b"})
	wantReason(t, err, "CLAIM_NOT_FOUND")

	again, err := s.try(t.Context(), "r", "a", exclusively)
	must(t, err)
	same(t, again, withDurations(first, again))
	s.end(t, "a", released)
	if c := s.create(t, "r", "b", 60, shared, noWait, func(req *models.CreateClaimRequest) { req.Owner = "owner of b" }); c.GetStatus() != active {
		t.Errorf("the refused try, repeated when the resource is free: %s", c.GetStatus())
	}
	_, err = s.try(t.Context(), "r", "w", exclusively)
	isError(t, err, models.ErrLockCollision, "LOCK_COLLISION")
	if metadata := models.ErrorInfoOf(err).GetMetadata(); len(metadata) != 1 || metadata["mode"] != "shared" {
		t.Errorf("metadata %v", metadata)
	}
	if _, err = s.try(t.Context(), "r", "c", together); err != nil {
		t.Errorf("a shared try after a refused exclusive one: %v", err)
	}
}

// withDurations returns a claim with the durations of another.
func withDurations(c, other *models.Claim) *models.Claim {
	c.Ttl, c.ActiveDuration = other.Ttl, other.ActiveDuration
	return c
}

// TestTryOfAWaitingClaim: the id of a waiting claim belongs to another request.
func TestTryOfAWaitingClaim(t *testing.T) {
	s := start(t)
	s.create(t, "r", "a", 60)
	s.create(t, "r", "b", 60)
	_, err := s.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: "r", Id: "b", Ttl: ptr(60.0), NoWait: true})
	refused(t, err, codes.AlreadyExists, "the id names a claim that another request made")
	if c := s.get(t, "b"); c.GetStatus() != waiting {
		t.Errorf("the waiting claim is %s", c.GetStatus())
	}
}

// TestTriesAtOnce: of many concurrent tries one exclusive one succeeds, or all shared ones do, whatever else is tried
// concurrently.
func TestTriesAtOnce(t *testing.T) {
	const tries = 50
	for _, test := range []struct {
		name string
		mode models.Mode
		held int
	}{{"exclusive", exclusively, 1}, {"shared", together, tries}} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t)
			_, err := s.try(t.Context(), "r", "first", test.mode)
			must(t, err)
			var mu sync.Mutex
			var held []string
			var all sync.WaitGroup
			for i := range tries {
				all.Go(func() {
					if _, err := s.try(t.Context(), "r", fmt.Sprint("writer", i), exclusively); err == nil && test.mode == together {
						t.Error("an exclusive try holds beside shared claims")
					}
				})
				all.Go(func() {
					id := fmt.Sprint("try", i)
					if c, err := s.try(t.Context(), "r"+test.name, id, test.mode); err == nil && c.GetStatus() == active {
						mu.Lock()
						defer mu.Unlock()
						held = append(held, id)
					}
				})
				all.Go(func() {
					if _, err := s.try(t.Context(), "r", fmt.Sprint("reader", i), together); err != nil && test.mode == together {
						t.Errorf("a shared try beside a shared claim: %v", err)
					}
				})
			}
			all.Wait()
			if len(held) != test.held {
				t.Errorf("%d tries hold, want %d", len(held), test.held)
			}
			for _, c := range s.list(t, &models.ListClaimsRequest{Resource: ptr("r" + test.name), Limit: ptr(uint32(1000))}).GetClaims() {
				if !slices.Contains(held, c.GetId()) {
					t.Errorf("a refused try has left %v", c)
				}
			}
		})
	}
}
