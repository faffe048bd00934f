package handlers_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/db"
	whole "github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// pages returns the keys of all locks, page by page, and the number of pages.
func (s *server) pages(t *testing.T, limit uint32) (keys []string, pages int) {
	t.Helper()
	for req := (&models.FetchAllRequest{TypeCode: models.TypeCode_LOCK, Limit: &limit}); ; {
		page, err := s.FetchAll(t.Context(), req)
		must(t, err)
		pages++
		for _, r := range page.GetResources() {
			keys = append(keys, r.GetKey())
		}
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			slices.Sort(keys)
			return keys, pages
		}
	}
}

// TestFetchAllPages: every lock is on one page, whatever the page size, and the last page has no token.
func TestFetchAllPages(t *testing.T) {
	s := start(t)
	var want []string
	for i := range 20 {
		s.lock(t, number("k", i), "o", 60)
		want = append(want, number("k", i))
	}
	for limit, n := range map[uint32]int{1: 20, 7: 3, 10: 2, 20: 1, 1000: 1} {
		if keys, pages := s.pages(t, limit); !slices.Equal(keys, want) || pages != n {
			t.Errorf("in pages of %d: %d pages, %q", limit, pages, keys)
		}
	}
	for name, req := range map[string]*models.FetchAllRequest{
		"limit":      {TypeCode: models.TypeCode_LOCK, Limit: ptr(uint32(0))},
		"page_token": {TypeCode: models.TypeCode_LOCK, PageToken: "MQ"},
	} {
		_, err := s.FetchAll(t.Context(), req)
		wantReason(t, err, "INVALID_FIELD")
		if !strings.HasPrefix(status.Convert(err).Message(), name) {
			t.Errorf("%v", err)
		}
	}
	_, err := s.FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK, Limit: ptr(uint32(1)), PageToken: "!"})
	wantReason(t, err, "INVALID_FIELD")
	_, err = s.FetchAll(t.Context(), &models.FetchAllRequest{Limit: ptr(uint32(1))})
	isError(t, err, models.ErrInvalidType, "INVALID_TYPE")
}

// TestFetchAllTooLarge: an answer that is too large for clients is refused, and works page by page. TestFetchAllTooLargeSoak has one that is too
// large for the server to read.
func TestFetchAllTooLarge(t *testing.T) {
	s := start(t)
	all := &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK}
	large := func(req *models.CreateClaimRequest) { req.Value = strings.Repeat("v", 64<<10) }
	var want []string
	for i := range 63 {
		s.create(t, number("r", i), number("c", i), 3600, large)
		want = append(want, number("r", i))
	}
	resp, err := s.FetchAll(t.Context(), all)
	must(t, err)
	if len(resp.GetResources()) != 63 || proto.Size(resp) > 4<<20 {
		t.Errorf("%d locks, %d bytes", len(resp.GetResources()), proto.Size(resp))
	}
	s.create(t, number("r", 63), number("c", 63), 3600, large)
	want = append(want, number("r", 63))
	_, err = s.FetchAll(t.Context(), all)
	if wantReason(t, err, "ANSWER_TOO_LARGE"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "limit") {
		t.Errorf("%v", err)
	}
	if keys, pages := s.pages(t, 1000); !slices.Equal(keys, want) || pages < 2 {
		t.Errorf("%d pages: %q", pages, keys)
	}
}

// budgeted records the limits of bytes of reads.
type budgeted struct {
	db.Store
	list, held *int
}

func (s budgeted) List(ctx context.Context, f db.Filter) ([]claim.Claim, claim.Instant, error) {
	*s.list = f.Bytes
	return s.Store.List(ctx, f)
}

func (s budgeted) Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	if of.Held != nil {
		*s.held = page.Bytes
	}
	return s.Store.Live(ctx, of, page)
}

// TestReadsHaveABudget: the store already limits what it reads for an answer.
func TestReadsHaveABudget(t *testing.T) {
	var list, held int
	s := startWith(t, t.TempDir(), func(real db.Store) db.Store { return budgeted{real, &list, &held} })
	s.list(t, &models.ListClaimsRequest{Limit: ptr(uint32(1000))})
	s.pages(t, 1000)
	if list != 3<<20 || held != 3<<20 {
		t.Errorf("a page may read %d bytes of claims, %d of locks", list, held)
	}
	_, err := s.FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK})
	must(t, err)
	if held != 16<<20 {
		t.Errorf("all locks may read %d bytes", held)
	}
}

// TestTooManyWaiting: a call beyond the limit of waiting calls is refused at once, the others continue, and there is
// room again when one has ended.
func TestTooManyWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, _ *server) {
		s := startWith(t, t.TempDir(), func(real db.Store) db.Store { return real }, func(c *whole.Config) { c.MaxWaiting = 2 })
		s.create(t, "r", "holder", 3600)
		s.create(t, "r", "w", 3600)
		await := func() error {
			_, err := s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "w", Timeout: durationpb.New(time.Minute)})
			return err
		}
		ended := make(chan error)
		for range 2 {
			go func() { ended <- await() }()
		}
		time.Sleep(time.Second)
		err := await()
		if wantReason(t, err, "TOO_MANY_WAITING"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%v", err)
		}
		must(t, <-ended)
		must(t, <-ended)
		must(t, await())
	})
}

// TestFetchAllAtOnce: large pages, whose memory is used again and again, have each their own locks, however many callers there are.
func TestFetchAllAtOnce(t *testing.T) {
	s := start(t)
	const locks = 250
	for i := range locks {
		s.lock(t, number("lock", i), number("owner", i), 3600)
		presence := resource(number("presence", i), number("host", i))
		presence.TypeCode = models.TypeCode_PRESENCE
		_, err := s.Lock(t.Context(), &models.LockRequest{Resource: presence, TtlInSeconds: 3600})
		must(t, err)
	}
	var callers sync.WaitGroup
	for caller := range 4 {
		kind, key, owner := models.TypeCode_LOCK, "lock", "owner"
		if caller%2 == 1 {
			kind, key, owner = models.TypeCode_PRESENCE, "presence", "host"
		}
		callers.Go(func() {
			for range 20 {
				seen, limit := 0, uint32(110+20*caller)
				for req := (&models.FetchAllRequest{TypeCode: kind, Limit: &limit}); ; {
					page, err := s.FetchAll(t.Context(), req)
					if err != nil {
						t.Error(err)
						return
					}
					for _, r := range page.GetResources() {
						number, is := strings.CutPrefix(r.GetKey(), key)
						if seen++; !is || r.GetOwner() != owner+number || r.GetTypeCode() != kind {
							t.Errorf("among the %v is %v", kind, r)
						}
					}
					if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
						break
					}
				}
				if seen != locks {
					t.Errorf("%d are listed, want %d", seen, locks)
				}
			}
		})
	}
	callers.Wait()
}
