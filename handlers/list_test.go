package handlers_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/models"
)

// TestFilters lists the claims of a small world, whose times are exact:
//
//	id  resource  owner  mode       created  status after 8 s
//	a   r1        jim    exclusive  0 s      released at 4 s, active for 4 s
//	b   r1        joe    exclusive  1 s      active since 4 s (waited 3 s), 96 s left
//	c   r1        jim    shared     2 s      waiting for 6 s
//	d   r1        -      exclusive  3 s      withdrawn at 5 s, having waited 2 s
//	e   r2        jim    shared     6 s      active since 6 s, 48 s left
func TestFilters(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		begin := time.Now()
		owned := func(owner string) func(*models.CreateClaimRequest) {
			return func(req *models.CreateClaimRequest) { req.Owner = owner }
		}
		at := func(second int) { time.Sleep(time.Until(begin.Add(time.Duration(second) * time.Second))) }
		s.create(t, "r1", "a", 100, owned("jim"))
		at(1)
		s.create(t, "r1", "b", 100, owned("joe"))
		at(2)
		s.create(t, "r1", "c", 100, owned("jim"), shared)
		at(3)
		s.create(t, "r1", "d", 100)
		at(4)
		s.end(t, "a", released)
		at(5)
		s.end(t, "d", withdrawn)
		at(6)
		s.create(t, "r2", "e", 50, owned("jim"), shared)
		at(8)

		type filter = models.ListClaimsRequest
		second := func(n int) *timestamppb.Timestamp { return timestamppb.New(begin.Add(time.Duration(n) * time.Second)) }
		for _, c := range []struct {
			name   string
			filter *filter
			want   string
		}{
			{"none", &filter{}, "a b c d e "},
			{"resource", &filter{Resource: ptr("r1")}, "a b c d "},
			{"no such resource", &filter{Resource: ptr("R1")}, ""},
			{"empty resource", &filter{Resource: ptr("")}, ""},
			{"owner", &filter{Owner: ptr("jim")}, "a c e "},
			{"no owner", &filter{Owner: ptr("")}, "d "},
			{"exclusive", &filter{Mode: ptr(models.Mode_MODE_EXCLUSIVE)}, "a b d "},
			{"shared", &filter{Mode: ptr(models.Mode_MODE_SHARED)}, "c e "},
			{"waiting", &filter{Status: []models.Status{waiting}}, "c "},
			{"active", &filter{Status: []models.Status{active}}, "b e "},
			{"released", &filter{Status: []models.Status{released}}, "a "},
			{"live", &filter{Status: []models.Status{waiting, active}}, "b c e "},
			{"ended", &filter{Status: []models.Status{released, withdrawn, released}}, "a d "},
			{"some of both", &filter{Status: []models.Status{released, waiting}}, "a c "},
			{"prefix", &filter{Prefix: "r"}, "a b c d e "},
			{"whole name as prefix", &filter{Prefix: "r1"}, "a b c d "},
			{"no such prefix", &filter{Prefix: "R"}, ""},
			{"live of a prefix", &filter{Prefix: "r1", Status: []models.Status{waiting, active}}, "b c "},
			{"newest first", &filter{Order: newest}, "e d c b a "},
			{"newest live first", &filter{Order: newest, Status: []models.Status{waiting, active}}, "e c b "},
			{"the newest", &filter{Order: newest, Limit: ptr(uint32(2))}, "e d "},
			{"the newest but one", &filter{Order: newest, Limit: ptr(uint32(1)), Offset: 1}, "d "},
			{"withdrawn", &filter{Status: []models.Status{withdrawn}}, "d "},
			{"expired", &filter{Status: []models.Status{expired}}, ""},

			{"active for so long at least", &filter{MinimumActiveDuration: ptr(4.0)}, "a b "},
			{"active for longer", &filter{MinimumActiveDuration: ptr(4.000001)}, ""},
			{"active for so long at most", &filter{MaximumActiveDuration: ptr(2.0)}, "e "},
			{"ever active", &filter{MinimumActiveDuration: ptr(0.0)}, "a b e "},
			{"active for less than nothing", &filter{MaximumActiveDuration: ptr(-1.0)}, ""},
			{"waited for so long at least", &filter{MinimumWaitingDuration: ptr(3.0)}, "b c "},
			{"waited for so long at most", &filter{MaximumWaitingDuration: ptr(2.0)}, "a d e "},
			{"waited between", &filter{MinimumWaitingDuration: ptr(1.0), MaximumWaitingDuration: ptr(5.5)}, "b d "},
			{"ttl at least", &filter{MinimumTtl: ptr(96.0)}, "b "},
			{"ttl more", &filter{MinimumTtl: ptr(96.5)}, ""},
			{"ttl at most", &filter{MaximumTtl: ptr(95.0)}, "e "},
			{"any ttl", &filter{MinimumTtl: ptr(-5.0)}, "b e "},
			{"created from", &filter{MinimumCreated: second(2)}, "c d e "},
			{"created until", &filter{MaximumCreated: second(2)}, "a b c "},
			{"created between", &filter{MinimumCreated: second(1), MaximumCreated: second(3)}, "b c d "},
			{"created long ago", &filter{MaximumCreated: &timestamppb.Timestamp{Seconds: -62135596800}}, ""},

			{"all together", &filter{
				Resource: ptr("r1"), Owner: ptr("joe"), Mode: ptr(models.Mode_MODE_EXCLUSIVE), Status: []models.Status{active},
				MinimumTtl: ptr(90.0), MinimumWaitingDuration: ptr(3.0), MaximumCreated: second(1),
			}, "b "},
			{"limit", &filter{Limit: ptr(uint32(2))}, "a b "},
			{"offset", &filter{Offset: 3}, "d e "},
			{"limit and offset", &filter{Limit: ptr(uint32(2)), Offset: 1}, "b c "},
			{"limit, offset and filter", &filter{Limit: ptr(uint32(1)), Offset: 1, Owner: ptr("jim")}, "c "},
			{"past the end", &filter{Offset: 5}, ""},
		} {
			if got := ids(s.list(t, c.filter).GetClaims()); got != c.want {
				t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			}
		}
	})
}

// TestPages: 25 claims, some of them made in the same microsecond, are listed alike by
// pages, by offsets and at once.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		for i := range 25 {
			s.create(t, number("r", i*7%25), number("c", i*11%25), 60)
			if i%10 == 9 {
				time.Sleep(time.Millisecond)
			}
		}
		all := ids(s.list(t, &models.ListClaimsRequest{Limit: ptr(uint32(1000))}).GetClaims())
		byOffset := ""
		for offset := uint32(0); offset < 25; offset += 10 {
			byOffset += ids(s.list(t, &models.ListClaimsRequest{Offset: offset}).GetClaims())
		}
		if byOffset != all {
			t.Errorf("by offset %q, at once %q", byOffset, all)
		}
		for _, limit := range []uint32{1, 4, 5, 10, 25, 26} {
			if got := s.walk(t, limit, oldest, nil); got != all {
				t.Errorf("by pages of %d %q, at once %q", limit, got, all)
			}
			back := strings.Fields(s.walk(t, limit, newest, nil))
			if slices.Reverse(back); strings.Join(back, " ")+" " != all {
				t.Errorf("newest first by pages of %d %q, at once %q", limit, back, all)
			}
		}
		n := 0
		newer := func() {
			s.create(t, "new", number("newer", n), 60)
			n++
		}
		before := s.walk(t, 1000, newest, nil)
		if got := s.walk(t, 5, newest, newer); got != before {
			t.Errorf("newest first by pages, while claims are made, %q, before %q", got, before)
		}
		time.Sleep(time.Second)
		all = s.walk(t, 1000, oldest, nil)
		got := s.walk(t, 5, oldest, func() {
			s.create(t, "new", number("new", n), 60)
			n++
		})
		if len(got) <= len(all) || got[:len(all)] != all {
			t.Errorf("by pages, while claims are made, %q, before %q", got, all)
		}
	})
}

const oldest, newest = models.Order_ORDER_OLDEST, models.Order_ORDER_NEWEST

// walk lists all claims page by page. between is called after each page, five times at most.
func (s *server) walk(t *testing.T, limit uint32, order models.Order, between func()) (listed string) {
	t.Helper()
	req := &models.ListClaimsRequest{Limit: &limit, Order: order}
	for page := 0; ; page++ {
		resp := s.list(t, req)
		listed += ids(resp.GetClaims())
		if len(resp.GetClaims()) > int(limit) {
			t.Fatalf("%d claims on a page of %d", len(resp.GetClaims()), limit)
		}
		if resp.GetNextPageToken() == "" {
			return listed
		}
		req.PageToken = resp.GetNextPageToken()
		if between != nil && page < 5 {
			between()
		}
		if page > 50 {
			t.Fatal("the pages do not end")
		}
	}
}

// TestLastPage: a last page that is full has no token.
func TestLastPage(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		for n := range 4 {
			s.create(t, "r", number("c", n), 100)
		}
		if page := s.list(t, &models.ListClaimsRequest{Limit: ptr(uint32(3))}); len(page.GetClaims()) != 3 || page.GetNextPageToken() == "" {
			t.Errorf("%d of four claims, next page %q", len(page.GetClaims()), page.GetNextPageToken())
		}
		if page := s.list(t, &models.ListClaimsRequest{Limit: ptr(uint32(4))}); len(page.GetClaims()) != 4 || page.GetNextPageToken() != "" {
			t.Errorf("%d of four claims, next page %q", len(page.GetClaims()), page.GetNextPageToken())
		}
	})
}

// TestLargePages: pages of large claims have fewer claims, stay below the message limit of clients, and miss none.
func TestLargePages(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		const claims = 100
		for n := range claims {
			s.create(t, "r", number("c", n), 100, func(req *models.CreateClaimRequest) { req.Value = strings.Repeat("x", 64<<10) })
		}
		seen, pages := 0, 0
		for req := (&models.ListClaimsRequest{Limit: ptr(uint32(1000))}); ; pages++ {
			page := s.list(t, req)
			seen += len(page.GetClaims())
			if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		if seen != claims || pages < 1 {
			t.Errorf("%d claims on %d pages", seen, pages+1)
		}
	})
}
