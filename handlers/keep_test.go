package handlers_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

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
