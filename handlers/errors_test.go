package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// failing is a store with injected errors.
type failing struct {
	db.Store
	err atomic.Pointer[error]
}

func (s *failing) fail() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *failing) Transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	if err := s.fail(); err != nil {
		return db.Outcome{}, nil, err
	}
	return s.Store.Transact(ctx, batch)
}

func (s *failing) Get(ctx context.Context, id string, limit int) (claim.Claim, int, claim.Instant, error) {
	if err := s.fail(); err != nil {
		return claim.Claim{}, 0, claim.Instant{}, err
	}
	return s.Store.Get(ctx, id, limit)
}

func (s *failing) Holder(ctx context.Context, resource string) (claim.Claim, error) {
	if err := s.fail(); err != nil {
		return claim.Claim{}, err
	}
	return s.Store.Holder(ctx, resource)
}

func (s *failing) Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	if err := s.fail(); err != nil {
		return nil, err
	}
	return s.Store.Live(ctx, of, page)
}

func (s *failing) List(ctx context.Context, f db.Filter) ([]claim.Claim, claim.Instant, error) {
	if err := s.fail(); err != nil {
		return nil, claim.Instant{}, err
	}
	return s.Store.List(ctx, f)
}

func (s *failing) Resources(ctx context.Context, prefix, after string, limit int) ([]db.Resource, string, claim.Instant, error) {
	if err := s.fail(); err != nil {
		return nil, "", claim.Instant{}, err
	}
	return s.Store.Resources(ctx, prefix, after, limit)
}

func (s *failing) Contended(ctx context.Context, prefix string, after *db.Contention, limit int) ([]db.Resource, claim.Instant, error) {
	if err := s.fail(); err != nil {
		return nil, claim.Instant{}, err
	}
	return s.Store.Contended(ctx, prefix, after, limit)
}

func (s *failing) Queue(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
	if err := s.fail(); err != nil {
		return db.Snapshot{}, claim.Instant{}, err
	}
	return s.Store.Queue(ctx, resource, limit)
}

// TestDatabaseErrors: every method reports an error of the database in the same way, and unknown errors stay in the
// log.
func TestDatabaseErrors(t *testing.T) {
	store := &failing{}
	s := startWith(t, t.TempDir(), func(real db.Store) db.Store { store.Store = real; return store })
	calls := map[string]func() error{
		"Lock": func() error {
			_, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource("k", "o"), TtlInSeconds: 1})
			return err
		},
		"Release": func() error { return s.release(t, "k", "o", 0) },
		"Fetch":   func() error { _, err := s.Fetch(t.Context(), &models.FetchRequest{Key: "k"}); return err },
		"FetchAll": func() error {
			_, err := s.FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK})
			return err
		},
		"CreateClaim": func() error {
			_, err := s.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: "r", Ttl: ptr(1.0)})
			return err
		},
		"GetClaim":   func() error { _, err := s.GetClaim(t.Context(), &models.GetClaimRequest{Id: "a"}); return err },
		"ListClaims": func() error { _, err := s.ListClaims(t.Context(), &models.ListClaimsRequest{}); return err },
		"ListResources": func() error {
			_, err := s.ListResources(t.Context(), &models.ListResourcesRequest{})
			return err
		},
		"ListResources, most contended first": func() error {
			_, err := s.ListResources(t.Context(), &models.ListResourcesRequest{Order: models.ResourceOrder_RESOURCE_ORDER_CONTENDED})
			return err
		},
		"UpdateClaim": func() error {
			_, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: "a", Status: released})
			return err
		},
		"EndClaim":   func() error { _, err := s.EndClaim(t.Context(), &models.EndClaimRequest{Id: "a"}); return err },
		"GetQueue":   func() error { _, err := s.GetQueue(t.Context(), &models.GetQueueRequest{Resource: "r"}); return err },
		"AwaitClaim": func() error { _, err := s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "a"}); return err },
	}
	for _, c := range []struct {
		err    error
		code   codes.Code
		reason string
	}{
		{db.ErrUnavailable, codes.Unavailable, "DATABASE_UNAVAILABLE"},
		{db.ErrNoQuorum, codes.Unavailable, "NO_QUORUM"},
		{db.ErrListTooLong, codes.ResourceExhausted, "LIST_TOO_LONG"},
		{db.ErrConflict, codes.Unavailable, "DATABASE_UNAVAILABLE"},
		{db.ErrOutcomeUnknown, codes.Unavailable, "OUTCOME_UNKNOWN"},
		{db.ErrRowLocked, codes.Unavailable, "RESOURCE_LOCKED"},
		{fmt.Errorf("%w: %w", db.ErrUnavailable, context.DeadlineExceeded), codes.Unavailable, "DATABASE_UNAVAILABLE"},
		{errors.New("disk on fire"), codes.Internal, ""},
	} {
		wrapped := fmt.Errorf("at 10.1.2.3: %w", c.err)
		store.err.Store(&wrapped)
		for method, call := range calls {
			err := call()
			if status.Code(err) != c.code || strings.Contains(err.Error(), "10.1.2.3") {
				t.Errorf("%s after %q: %v", method, c.err, err)
			}
			if c.reason != "" {
				wantReason(t, err, c.reason)
			}
			if c.code == codes.Internal && status.Convert(err).Message() != "internal error" {
				t.Errorf("%s: %v", method, err)
			}
		}
	}
	if n := strings.Count(s.logs.String(), `msg="internal error" error="at 10.1.2.3: disk on fire"`); n != len(calls) {
		t.Errorf("%d internal errors were logged whole, of %d", n, len(calls))
	}
	if n := strings.Count(s.logs.String(), `msg="the database does not serve a request" error="at 10.1.2.3: `+db.ErrUnavailable.Error()); n != 3*len(calls) {
		t.Errorf("%d errors of the database were logged whole, of %d", n, 3*len(calls))
	}
	store.err.Store(nil)
	s.lock(t, "k", "o", 60)
}

// interrupted is a store whose reads fail like an interrupted engine's.
type interrupted struct {
	db.Store
	reads chan struct{}
}

func (s interrupted) Get(ctx context.Context, _ string, _ int) (claim.Claim, int, claim.Instant, error) {
	s.reads <- struct{}{}
	<-ctx.Done()
	return claim.Claim{}, 0, claim.Instant{}, fmt.Errorf("%w: %w", db.ErrUnavailable, ctx.Err())
}

// TestCallersWhoLeave: a read that is interrupted because its caller has left is not an error of the database.
func TestCallersWhoLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := make(chan struct{})
		s := startWith(t, t.TempDir(), func(real db.Store) db.Store { return interrupted{real, reads} })
		ctx, leave := context.WithCancel(t.Context())
		go func() { <-reads; leave() }()
		_, err := s.GetClaim(ctx, &models.GetClaimRequest{Id: "a"})
		if status.Code(err) != codes.Canceled {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		go func() { <-reads }()
		_, err = s.GetClaim(ctx, &models.GetClaimRequest{Id: "a"})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
		s.stop()
		logged := s.logs.String()
		if strings.Contains(logged, "code=Unavailable") || !strings.Contains(logged, "code=Canceled") {
			t.Errorf("logged:\n%s", logged)
		}
	})
}

// TestActivationOfAWaitingClaim: the error has the claim's position and a holder of the resource.
func TestActivationOfAWaitingClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		activate := func(id string) map[string]string {
			_, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Status: active})
			refused(t, err, codes.Aborted, "the claim waits for other claims")
			wantReason(t, err, "CLAIM_WAITS")
			return models.ErrorInfoOf(err).GetMetadata()
		}
		token := s.lock(t, "k", "jim", 60)
		holder := s.list(t, &models.ListClaimsRequest{}).GetClaims()[0].GetId()
		for _, id := range []string{"a", "b"} {
			s.create(t, "k", id, 60)
		}
		want := map[string]string{"position": "2", "holder": "jim", "claim_id": holder, "token": fmt.Sprint(token)}
		if got := activate("b"); !maps.Equal(got, want) {
			t.Errorf("metadata %v, want %v", got, want)
		}
		s.create(t, "r", "reader", 60, shared)
		s.create(t, "r", "writer", 60)
		if got := activate("writer"); !maps.Equal(got, map[string]string{"position": "1", "mode": "shared"}) {
			t.Errorf("metadata %v", got)
		}
	})
}

// TestPrivacy: neither the log nor the metrics contain values, user data or reasons, and the metrics no names; lines of
// level debug have the request id and the names.
func TestPrivacy(t *testing.T) {
	s := start(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "uuid", "request-one")
	private := &models.Resource{Key: "the-key", Owner: "the-owner", Value: "private-value"}
	for _, call := range []func() error{
		func() error {
			_, err := s.Lock(ctx, &models.LockRequest{Resource: private, TtlInSeconds: 60})
			return err
		},
		func() error { // collides
			_, err := s.Lock(ctx, &models.LockRequest{Resource: resource("the-key", "the-other"), TtlInSeconds: 60})
			return err
		},
		func() error { _, err := s.Lock(ctx, &models.LockRequest{Resource: private}); return err },
		func() error { _, err := s.Fetch(ctx, &models.FetchRequest{Key: "the-none"}); return err },
		func() error { _, err := s.Fetch(ctx, &models.FetchRequest{Key: "the\x00"}); return err },
		func() error { _, err := s.FetchAll(ctx, &models.FetchAllRequest{Type: "private-type"}); return err },
		func() error {
			_, err := s.CreateClaim(ctx, &models.CreateClaimRequest{
				Resource: "the-r", Owner: "the-o", UserData: ptr(`"private-data"`), Value: "private-v", Ttl: ptr(1.0), Id: "a",
			})
			return err
		},
		func() error {
			_, err := s.CreateClaim(ctx, &models.CreateClaimRequest{
				Resource: "the\x00", UserData: ptr("private-data"), Ttl: ptr(-1.0), Id: "the/id",
			})
			return err
		},
		func() error {
			_, err := s.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: "a", Status: withdrawn, Reason: "private-reason"})
			return err
		},
		func() error {
			_, err := s.ListClaims(ctx, &models.ListClaimsRequest{PageToken: "private", Resource: ptr("the-\x00")})
			return err
		},
		func() error {
			_, err := s.EndClaim(ctx, &models.EndClaimRequest{Id: "a", Reason: "private-reason\x00"})
			return err
		},
		func() error { _, err := s.GetQueue(ctx, &models.GetQueueRequest{Resource: "the-r"}); return err },
		func() error {
			_, err := s.GetQueue(ctx, &models.GetQueueRequest{Resource: "the-\x00"})
			return err
		},
		func() error { return s.raw(ctx, models.Locket_Fetch_FullMethodName, text(1, "private\xff")) },
	} {
		_ = call()
	}
	s.stop()
	logged := s.logs.String()
	if strings.Contains(logged, "private") {
		t.Errorf("logged:\n%s", logged)
	}
	for _, want := range []string{"method=Lock code=OK", "method=Lock code=AlreadyExists", "method=CreateClaim code=InvalidArgument", "request_id=request-one", "duration="} {
		if !strings.Contains(logged, want) {
			t.Errorf("no %s in\n%s", want, logged)
		}
	}
	families, err := s.registry.Gather()
	must(t, err)
	for _, family := range families {
		if strings.Contains(family.String(), "private") {
			t.Errorf("metric %s", family)
		}
	}
}

// TestWire checks the encoding of an answer: the fields of Cloud Foundry's Locket come first, ours follow.
func TestWire(t *testing.T) {
	s := start(t)
	s.lock(t, "k", "o", 60)
	var answer []byte
	must(t, s.conn.Invoke(t.Context(), models.Locket_Fetch_FullMethodName, text(1, "k"), &answer, grpc.ForceCodec(rawCodec{})))
	if want := text(1, string(append(append(text(1, "k"), text(2, "o")...), append(text(4, "lock"), 0x28, 0x01)...))); !strings.HasPrefix(string(answer), string(want)) {
		t.Errorf("answer %x, want %x and then the token", answer, want)
	}
}
