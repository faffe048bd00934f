package handlers_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// TestWaitTTL: every way to ask about a claim keeps it waiting, and a claim that nobody asks about is aborted.
func TestWaitTTL(t *testing.T) {
	const wait = 10.0
	for name, ask := range map[string]func(t *testing.T, s *server){
		"get": func(t *testing.T, s *server) {
			if _, err := s.GetClaim(t.Context(), &models.GetClaimRequest{Id: "w"}); err != nil {
				t.Error(err)
			}
		},
		"await": func(t *testing.T, s *server) {
			if _, err := s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "w", Timeout: durationpb.New(time.Second)}); err != nil {
				t.Error(err)
			}
		},
		"update": func(t *testing.T, s *server) {
			_, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: "w", Status: models.Status_STATUS_ACTIVE})
			if status.Code(err) != codes.Aborted {
				t.Error(err)
			}
		},
		"create": func(t *testing.T, s *server) {
			if _, err := s.CreateClaim(t.Context(), &models.CreateClaimRequest{Id: "w", Resource: "r", Ttl: ptr(60.0), WaitTtl: ptr(wait)}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				for _, id := range []string{"h", "w"} {
					c, err := s.CreateClaim(t.Context(), &models.CreateClaimRequest{Id: id, Resource: "r", Ttl: ptr(3600.0), WaitTtl: ptr(wait)})
					if err != nil || c.GetWaitTtl() != wait {
						t.Fatalf("%v, %v", c, err)
					}
				}
				for range 10 {
					time.Sleep(6 * time.Second)
					ask(t, s)
				}
				time.Sleep(8 * time.Second) // a question that came soon after another one counts with that
				if c, err := s.GetClaim(t.Context(), &models.GetClaimRequest{Id: "w"}); err != nil || c.GetStatus() != models.Status_STATUS_WAITING {
					t.Fatalf("%v, %v", c, err)
				}
				time.Sleep(10500 * time.Millisecond)
				c, err := s.GetClaim(t.Context(), &models.GetClaimRequest{Id: "w"})
				if err != nil || c.GetStatus() != models.Status_STATUS_ABORTED || c.GetReason() != claim.ReasonAbandoned || c.GetReason() != models.AbandonedReason {
					t.Errorf("%v, %v", c, err)
				}
			})
		})
	}
}

// TestAskedEarly: a question counts even if it comes early in the wait TTL, and the next one late.
func TestAskedEarly(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		for _, id := range []string{"h", "w"} {
			if _, err := s.CreateClaim(t.Context(), &models.CreateClaimRequest{Id: id, Resource: "r", Ttl: ptr(3600.0), WaitTtl: ptr(80.0)}); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			time.Sleep(12 * time.Second)
			s.get(t, "w")
			time.Sleep(68 * time.Second)
			if c := s.get(t, "w"); c.GetStatus() != waiting {
				t.Fatalf("asked about 68 s ago: %v", c)
			}
		}
	})
}

// TestGrantWithinWaitTTL: the TTL in the answer to a waiting client is the grant's.
func TestGrantWithinWaitTTL(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		for _, id := range []string{"h", "w"} {
			if _, err := s.CreateClaim(t.Context(), &models.CreateClaimRequest{Id: id, Resource: "r", Ttl: ptr(3600.0), WaitTtl: ptr(10.0)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(4 * time.Second)
		if _, err := s.EndClaim(t.Context(), &models.EndClaimRequest{Id: "h"}); err != nil {
			t.Fatal(err)
		}
		c, err := s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "w"})
		if err != nil || c.GetTtl() > 6 || c.GetTtl() < 5.9 {
			t.Errorf("%v, %v", c, err)
		}
		if c, err = s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: "w", Ttl: ptr(60.0)}); err != nil || c.GetTtl() != 60 {
			t.Errorf("%v, %v", c, err)
		}
	})
}

// keepStore calls before, unless it is nil, before it keeps claims waiting.
type keepStore struct {
	db.Store
	before func(db.Store) error
}

func (s *keepStore) Transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	keeps := slices.ContainsFunc(batch.Requests, func(r claim.Request) bool { _, is := r.Command.(claim.KeepWaiting); return is })
	if keeps && s.before != nil {
		if err := s.before(s.Store); err != nil {
			return db.Outcome{}, nil, err
		}
	}
	return s.Store.Transact(ctx, batch)
}

// TestQuestionThatIsNotRecorded: an answer that says that a claim waits keeps it waiting. The claim may be granted before that, and
// the store may be unable to record the question.
func TestQuestionThatIsNotRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		before func(db.Store) error
		want   codes.Code
	}{
		"granted": {want: codes.OK, before: func(s db.Store) error {
			_, err := db.Transact(context.Background(), s, db.Batch{Requests: []claim.Request{{Command: claim.End{ID: "h"}}}})
			return err
		}},
		"unavailable": {func(db.Store) error { return db.ErrUnavailable }, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &keepStore{}
				s := startWith(t, t.TempDir(), func(real db.Store) db.Store { store.Store = real; return store })
				for _, id := range []string{"h", "w"} {
					_, err := s.CreateClaim(t.Context(), &models.CreateClaimRequest{Id: id, Resource: "r", Ttl: ptr(3600.0), WaitTtl: ptr(10.0)})
					must(t, err)
				}
				time.Sleep(4 * time.Second)
				store.before = c.before
				got, err := s.GetClaim(t.Context(), &models.GetClaimRequest{Id: "w"})
				if status.Code(err) != c.want || err == nil && got.GetStatus() != models.Status_STATUS_ACTIVE {
					t.Errorf("%v, %v", got, err)
				}
				store.before = nil
			})
		})
	}
}
