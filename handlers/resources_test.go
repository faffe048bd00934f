package handlers_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

const contended = models.ResourceOrder_RESOURCE_ORDER_CONTENDED

// resources lists all resources that a request asks for, page by page.
func (s *server) resources(t *testing.T, req *models.ListResourcesRequest) (list []*models.ResourceInfo) {
	t.Helper()
	for range 100 {
		page, err := s.ListResources(t.Context(), req)
		if err != nil {
			t.Fatalf("%v: %v", req, err)
		}
		if req.Limit != nil && len(page.GetResources()) > int(req.GetLimit()) {
			t.Fatalf("%d resources on a page of %d", len(page.GetResources()), req.GetLimit())
		}
		list = append(list, page.GetResources()...)
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			return list
		}
	}
	t.Fatal("the pages do not end")
	return nil
}

func resourceNames(list []*models.ResourceInfo) (names string) {
	for _, r := range list {
		names += r.GetResource() + " "
	}
	return names
}

// TestResources checks the data of each resource.
func TestResources(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		share := func(req *models.CreateClaimRequest) { req.Mode = models.Mode_MODE_SHARED }
		s.create(t, "free", "f", 60)
		s.end(t, "f", released)
		s.create(t, "jobs/held", "h", 60, func(req *models.CreateClaimRequest) { req.Owner, req.UserData, req.Value = "jim", ptr("{}"), "v" })
		s.create(t, "jobs/shared", "s1", 60, share)
		time.Sleep(time.Second)
		s.create(t, "jobs/shared", "s2", 60, share)
		s.create(t, "jobs/held", "w1", 60)
		time.Sleep(2 * time.Second)
		s.create(t, "jobs/held", "w2", 60)
		s.create(t, "other", "o", 60)

		list := s.resources(t, &models.ListResourcesRequest{Prefix: "jobs/"})
		if got := resourceNames(list); got != "jobs/held jobs/shared " {
			t.Fatalf("got %s", got)
		}
		held, shared := list[0], list[1]
		holder := held.GetHolder()
		if holder.GetId() != "h" || holder.GetOwner() != "jim" || holder.GetToken() == 0 || len(holder.GetStatusHistory()) != 2 || holder.UserData != nil || holder.GetValue() != "" {
			t.Errorf("the holder: %s", holder)
		}
		queue, err := s.GetQueue(t.Context(), &models.GetQueueRequest{Resource: "jobs/held"})
		if err != nil || queue.GetVersion() != held.GetVersion() || held.GetVersion() == 0 {
			t.Errorf("version %d of %s (%v)", held.GetVersion(), queue, err)
		}
		if held.GetHolding() != 1 || held.GetWaiting() != 2 || held.GetOldestWait() != 2 {
			t.Errorf("held: %s", held)
		}
		if shared.GetHolding() != 2 || shared.GetWaiting() != 0 || shared.OldestWait != nil || shared.GetHolder().GetId() != "s1" {
			t.Errorf("shared: %s", shared)
		}
		s.end(t, "w1", withdrawn)
		if left := s.resources(t, &models.ListResourcesRequest{Prefix: "jobs/held"}); left[0].GetWaiting() != 1 || left[0].GetOldestWait() != 0 {
			t.Errorf("after the first in line has left: %s", left[0])
		}
	})
}

// freed is a store where nobody holds a resource, as in a quarantine.
type freed struct{ db.Store }

func (f freed) Resources(ctx context.Context, prefix, after string, limit int) ([]db.Resource, string, claim.Instant, error) {
	list, next, now, err := f.Store.Resources(ctx, prefix, after, limit)
	for i := range list {
		list[i].Holder, list[i].First = "", claim.Claim{}
	}
	return list, next, now, err
}

// TestFreeResourceInList: a resource with waiting claims and no holder is listed without a holder.
func TestFreeResourceInList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startWith(t, t.TempDir(), func(s db.Store) db.Store { return freed{s} })
		s.create(t, "r", "h", 60)
		s.create(t, "r", "w", 60)
		list := s.resources(t, &models.ListResourcesRequest{})
		if len(list) != 1 || list[0].GetHolding() != 0 || list[0].GetHolder() != nil || list[0].GetWaiting() != 1 {
			t.Errorf("got %v", list)
		}
	})
}

// TestResourcePages pages through resources, some of them free, in both orders.
func TestResourcePages(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		var byName, crowded, quiet []string
		waiters := map[string]int{"r03": 2, "r11": 5, "r20": 2, "r21": 1}
		for i := range 25 {
			name := fmt.Sprintf("r%02d", i)
			s.create(t, name, name, 60)
			if i%7 == 1 {
				s.end(t, name, released)
				continue
			}
			for n := range waiters[name] {
				s.create(t, name, fmt.Sprint(name, "-", n), 60)
			}
			byName = append(byName, name)
			if waiters[name] == 0 {
				quiet = append(quiet, name)
			} else {
				crowded = append(crowded, name)
			}
		}
		slices.SortStableFunc(crowded, func(a, b string) int { return waiters[b] - waiters[a] })
		for order, want := range map[models.ResourceOrder][]string{0: byName, contended: append(crowded, quiet...)} {
			for _, limit := range []uint32{1, 2, 3, 4, 5, 21, 22, 1000} {
				got := resourceNames(s.resources(t, &models.ListResourcesRequest{Order: order, Limit: &limit}))
				if want := strings.Join(want, " ") + " "; got != want {
					t.Errorf("%s, pages of %d: %s, want %s", order, limit, got, want)
				}
			}
		}
	})
}

// TestResourceFolders: with a delimiter a list is one level of a tree, on pages of any size, however many resources a
// folder has.
func TestResourceFolders(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		names := []string{"a", "a/", "a/1", "a/2/3", "a0", "b//x", "b/y", "c/free", "d/\U0010ffff", "d0", "e", "e::f", "z/" + strings.Repeat("\U0010ffff", 255), "z0"}
		for i := range 40 {
			names = append(names, fmt.Sprintf("many/%03d/x", i), fmt.Sprintf("many/%03d/y", i), fmt.Sprint("one/", i))
		}
		for i, name := range names {
			s.create(t, name, fmt.Sprint(i), 3600)
			if name == "c/free" {
				s.end(t, fmt.Sprint(i), released)
			}
		}
		slices.Sort(names)
		for _, list := range []struct{ prefix, delimiter string }{{"", "/"}, {"a/", "/"}, {"a", "/"}, {"b/", "/"}, {"many/", "/"}, {"m", "/"}, {"many/039/", "/"}, {"e", "::"}, {"", "any"}, {"none/", "/"}, {"one", "/1"}} {
			want := []string{}
			for _, name := range names {
				rest, below := strings.CutPrefix(name, list.prefix)
				before, _, in := strings.Cut(rest, list.delimiter)
				switch folder := list.prefix + before + list.delimiter + " (folder)"; {
				case !below || name == "c/free":
				case !in:
					want = append(want, name)
				case !slices.Contains(want, folder):
					want = append(want, folder)
				}
			}
			for _, limit := range []uint32{1, 2, 7, 19, 1000} {
				got := []string{}
				for _, r := range s.resources(t, &models.ListResourcesRequest{Prefix: list.prefix, Delimiter: list.delimiter, Limit: &limit}) {
					name := r.GetResource()
					if r.GetFolder() {
						name += " (folder)"
						if !proto.Equal(r, &models.ResourceInfo{Resource: r.GetResource(), Folder: true}) {
							t.Errorf("a folder: %v", r)
						}
					} else if r.GetHolder().GetResource() != r.GetResource() {
						t.Errorf("a resource: %v", r)
					}
					got = append(got, name)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%q, pages of %d: %q, want %q", list, limit, got, want)
				}
			}
		}
	})
}

// counting is a store that counts the resources that are read.
type counting struct {
	db.Store
	read atomic.Int64
}

func (s *counting) Resources(ctx context.Context, prefix, after string, limit int) ([]db.Resource, string, claim.Instant, error) {
	list, next, now, err := s.Store.Resources(ctx, prefix, after, limit)
	s.read.Add(int64(len(list)))
	return list, next, now, err
}

// TestLargeFolders: a list of folders reads no more when there is more in them.
func TestLargeFolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{}
		s := startWith(t, t.TempDir(), func(real db.Store) db.Store { store.Store = real; return store })
		const folders = 5
		s.createAll(t, folders*200, func(i int) *models.CreateClaimRequest {
			return &models.CreateClaimRequest{Resource: fmt.Sprintf("%d/%d", i%folders, i), Ttl: ptr(3600.0)}
		})
		store.read.Store(0)
		list := s.resources(t, &models.ListResourcesRequest{Delimiter: "/", Limit: ptr(uint32(1000))})
		if read := store.read.Load(); len(list) != folders || read > 20*(folders+1) {
			t.Errorf("%d folders, %d resources read", len(list), read)
		}
	})
}

// TestLargeResourcePages: a page of long names stays below the message limit of clients.
func TestLargeResourcePages(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		const n = 1500
		long := strings.Repeat("x", 1000)
		s.createAll(t, n, func(i int) *models.CreateClaimRequest {
			return &models.CreateClaimRequest{Resource: fmt.Sprintf("%04d%s", i, long), Owner: long, Ttl: ptr(60.0)}
		})
		for _, order := range []models.ResourceOrder{0, contended} {
			if list := s.resources(t, &models.ListResourcesRequest{Order: order, Limit: ptr(uint32(1000))}); len(list) != n {
				t.Errorf("%s: %d of %d", order, len(list), n)
			}
		}
	})
}

// TestWrongResourceLists: errors name the field, and a page token is valid for its order only.
func TestWrongResourceLists(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.create(t, "a", "a", 60)
		s.create(t, "b", "b", 60)
		token := func(order models.ResourceOrder) string {
			page, err := s.ListResources(t.Context(), &models.ListResourcesRequest{Limit: ptr(uint32(1)), Order: order})
			if err != nil || page.GetNextPageToken() == "" {
				t.Fatalf("%v, %v", page, err)
			}
			return page.GetNextPageToken()
		}
		raw := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
		for name, c := range map[string]struct {
			req   *models.ListResourcesRequest
			field string
		}{
			"limit 0":                {&models.ListResourcesRequest{Limit: ptr(uint32(0))}, "limit"},
			"limit 1001":             {&models.ListResourcesRequest{Limit: ptr(uint32(1001))}, "limit"},
			"order":                  {&models.ListResourcesRequest{Order: 2}, "order"},
			"delimiter":              {&models.ListResourcesRequest{Delimiter: "a\x00"}, "delimiter"},
			"long delimiter":         {&models.ListResourcesRequest{Delimiter: strings.Repeat("/", 1025)}, "delimiter"},
			"contended folders":      {&models.ListResourcesRequest{Delimiter: "/", Order: contended}, "delimiter"},
			"prefix":                 {&models.ListResourcesRequest{Prefix: "a\x00"}, "prefix"},
			"token":                  {&models.ListResourcesRequest{PageToken: "!"}, "page_token"},
			"empty token":            {&models.ListResourcesRequest{PageToken: raw("x")}, "page_token"},
			"token of the contended": {&models.ListResourcesRequest{PageToken: token(contended)}, "page_token"},
			"token by name":          {&models.ListResourcesRequest{Order: contended, PageToken: token(0)}, "page_token"},
			"token without number":   {&models.ListResourcesRequest{Order: contended, PageToken: raw("c a")}, "page_token"},
			"token without name":     {&models.ListResourcesRequest{Order: contended, PageToken: raw("c1 ")}, "page_token"},
			"token with NUL":         {&models.ListResourcesRequest{PageToken: raw("na\x00")}, "page_token"},
		} {
			if _, err := s.ListResources(t.Context(), c.req); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.field+":") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestEndSession: a session that is ended has its claims revoked, and its stream ends.
func TestEndSession(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.open(t, "a"), s.open(t, "b")
		a.Lock("k", holding)
		a.Lock("other", holding)
		b.Lock("k", inLine)
		found, err := s.GetSession(t.Context(), &models.GetSessionRequest{Id: a.ID})
		if err != nil || found.GetId() != a.ID || found.GetHolding() != 2 || found.GetWaiting() != 0 || found.GetServer() == "" || found.EndsIn != nil {
			t.Errorf("got %v, %v", found, err)
		}
		list, err := s.ListSessions(t.Context(), &models.ListSessionsRequest{})
		if err != nil || len(list.GetSessions()) != 2 {
			t.Errorf("got %v, %v", list, err)
		}
		if _, err := s.EndSession(t.Context(), &models.EndSessionRequest{Id: a.ID}); err != nil {
			t.Fatal(err)
		}
		b.Hears("k", inLine, holding)
		for _, c := range s.list(t, &models.ListClaimsRequest{Owner: &found.Owner}).GetClaims() {
			if c.GetStatus() != models.Status_STATUS_REVOKED || c.GetReason() == "" {
				t.Errorf("a claim of the session: %s", c)
			}
		}
		for name, call := range map[string]func() error{
			"end": func() error {
				_, err := s.EndSession(t.Context(), &models.EndSessionRequest{Id: a.ID})
				return err
			},
			"get": func() error { _, err := s.GetSession(t.Context(), &models.GetSessionRequest{Id: a.ID}); return err },
		} {
			err := call()
			if status.Code(err) != codes.NotFound {
				t.Errorf("%s of a session that has ended: %v", name, err)
			}
			wantReason(t, err, "SESSION_ENDED")
		}
	})
}

// TestStatus: the answer has all its parts, and a healthy server reports no problem.
func TestStatus(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.create(t, "r", "a", 60)
		time.Sleep(time.Second)
		got, err := s.GetStatus(t.Context(), &models.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		self := got.GetServers()[0]
		if len(got.GetProblems()) > 0 || self.GetName() == "" || self.GetVersion() == "" || self.GetStarted() == nil || self.GetSilent() != 0 {
			t.Errorf("got %s", got)
		}
		if got.GetDatabase().GetEngine() != "embedded" || !strings.HasPrefix(got.GetDatabase().GetVersion(), "record format ") {
			t.Errorf("the database: %s", got.GetDatabase())
		}
		if clock := got.GetClock(); !clock.GetLeaseTimeRuns() || clock.GetReason() != "" || clock.GetAhead() != 0 {
			t.Errorf("the clock while there is a lease: %s", clock)
		}
		s.end(t, "a", released)
		time.Sleep(time.Minute)
		if got, err = s.GetStatus(t.Context(), &models.GetStatusRequest{}); err != nil || got.GetClock().GetLeaseTimeRuns() || got.GetClock().GetReason() == "" {
			t.Errorf("the clock without a lease: %v, %v", got, err)
		}
	})
}
