package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var contractLists = []sentence{
	{"An array, oldest first, of 10 unless limit says otherwise", func(t *testing.T, s *restServer) {
		made := s.makeMany(t, 25)
		query := "owner=" + url.QueryEscape(t.Name())
		for _, test := range []struct {
			query    string
			from, to int
		}{
			{"", 0, 10},
			{"&limit=1", 0, 1},
			{"&limit=10", 0, 10},
			{"&limit=25", 0, 25},
			{"&limit=1000", 0, 25},
			{"&offset=0", 0, 10},
			{"&offset=3", 3, 13},
			{"&offset=20", 20, 25},
			{"&offset=24&limit=5", 24, 25},
			{"&limit=4&offset=7", 7, 11},
			{"&offset=25", 25, 25},
			{"&offset=1000", 25, 25},
		} {
			if found := idsOf(s.list(t, query+test.query)); !slices.Equal(found, made[test.from:test.to]) {
				t.Errorf("%q: %d claims, %v; want the %d from number %d", test.query, len(found), found, test.to-test.from, test.from)
			}
		}
	}},
	{"Without any filter a list has the oldest of all claims", func(t *testing.T, s *restServer) {
		s.makeMany(t, 11)
		found := s.list(t, "")
		if len(found) != 10 || !slices.IsSortedFunc(found, func(a, b restClaim) int { return a.Created.Compare(b.Created) }) {
			t.Errorf("%d claims, created %v", len(found), found)
		}
	}},
	{"A list of nothing is an empty array", func(t *testing.T, s *restServer) {
		a := s.do(t, "GET", "/v1/claims/?resource=nosuch", nil).is(t, http.StatusOK)
		if strings.TrimSpace(string(a.body)) != "[]" {
			t.Errorf("got %s", a.body)
		}
	}},
	{"The filters owner and mode", func(t *testing.T, s *restServer) {
		body := object{"resource": t.Name(), "ttl": 60, "owner": t.Name(), "mode": "shared"}
		shared := s.post(t, body).claim(t)
		body["mode"] = "exclusive"
		exclusive := s.post(t, body).claim(t)
		body["owner"] = t.Name() + " "
		other := s.post(t, body).claim(t)
		resource := "resource=" + url.QueryEscape(t.Name())
		for query, want := range map[string][]string{
			"&mode=shared":                              {shared.ID},
			"&mode=exclusive":                           {exclusive.ID, other.ID},
			"&owner=" + url.QueryEscape(t.Name()):       {shared.ID, exclusive.ID},
			"&owner=" + url.QueryEscape(t.Name()) + "+": {other.ID},
			"&owner=nobody":                             {},
		} {
			if found := idsOf(s.list(t, resource+query)); !slices.Equal(found, want) {
				t.Errorf("%s: %v, want %v", query, found, want)
			}
		}
	}},
	{"Prefix, several statuses, and the newest first", func(t *testing.T, s *restServer) {
		made := s.makeMany(t, 5)
		own := "&owner=" + url.QueryEscape(t.Name())
		s.do(t, "DELETE", claimPath(made[1]), nil).is(t, http.StatusNoContent)
		s.do(t, "PATCH", claimPath(made[3]), object{"status": "revoked"}).is(t, http.StatusNoContent)
		back := slices.Clone(made)
		slices.Reverse(back)
		for query, want := range map[string][]string{
			"status=active,waiting":                   {made[0], made[2], made[4]},
			"status=revoked,released":                 {made[1], made[3]},
			"status=released":                         {made[1]},
			"order=oldest":                            made,
			"order=newest":                            back,
			"order=newest&status=active":              {made[4], made[2], made[0]},
			"order=newest&limit=2":                    back[:2],
			"prefix=nothing-begins-so":                {},
			"prefix=" + url.QueryEscape(t.Name()[:4]): made,
		} {
			if found := idsOf(s.list(t, query+own)); !slices.Equal(found, want) {
				t.Errorf("%s: %v, want %v", query, found, want)
			}
		}
		for _, limit := range []int{1, 2, 5, 6} {
			if _, found := s.follow(t, fmt.Sprintf("order=newest&limit=%d%s", limit, own)); !slices.Equal(found, back) {
				t.Errorf("newest first, %d at a time: %v, want %v", limit, found, back)
			}
		}
	}},
	{"The next page is found by the header Link", func(t *testing.T, s *restServer) {
		made := s.makeMany(t, 25)
		query := "owner=" + url.QueryEscape(t.Name()) + "&status=active"
		for _, limit := range []int{1, 7, 10, 24, 25, 26} {
			pages, found := s.follow(t, fmt.Sprintf("%s&limit=%d", query, limit))
			if want := (25 + limit - 1) / limit; pages != want || !slices.Equal(found, made) {
				t.Errorf("limit %d: %d claims on %d pages, want 25 on %d; %v", limit, len(found), pages, want, found)
			}
		}
		if pages, found := s.follow(t, query+"&offset=5"); pages != 2 || !slices.Equal(found, made[5:]) {
			t.Errorf("from an offset on: %d claims on %d pages", len(found), pages)
		}
	}},
	{"Unknown and ill-typed filters are 400", func(t *testing.T, s *restServer) {
		for query, names := range map[string][]string{
			"colour=red":                         {"colour"},
			"colour=red&limit=x":                 {"colour", "limit"},
			"limit=0":                            {"limit"},
			"limit=-1":                           {"limit"},
			"limit=1001":                         {"limit"},
			"limit=1.5":                          {"limit"},
			"limit=":                             {"limit"},
			"limit=99999999999999999999":         {"limit"},
			"offset=-1":                          {"offset"},
			"offset=x":                           {"offset"},
			"offset=1048577":                     {"offset"},
			"status=nonsense":                    {"status"},
			"status=":                            {"status"},
			"status=active&status=waiting":       {"status"},
			"status=active,":                     {"status"},
			"status=active,nonsense":             {"status"},
			"status=active,+waiting":             {"status"},
			"order=":                             {"order"},
			"order=oldest,newest":                {"order"},
			"prefix=a%00":                        {"prefix"},
			"prefix=%FF":                         {"prefix"},
			"mode=both":                          {"mode"},
			"minimum_ttl=x":                      {"minimum_ttl"},
			"minimum_ttl=":                       {"minimum_ttl"},
			"maximum_ttl=NaN":                    {"maximum_ttl"},
			"maximum_ttl=Infinity":               {"maximum_ttl"},
			"maximum_ttl=1e309":                  {"maximum_ttl"},
			"minimum_ttl=%221%22":                {"minimum_ttl"},
			"minimum_ttl=0x10":                   {"minimum_ttl"},
			"minimum_active_duration=x":          {"minimum_active_duration"},
			"maximum_active_duration=null":       {"maximum_active_duration"},
			"minimum_waiting_duration=true":      {"minimum_waiting_duration"},
			"maximum_waiting_duration=%5B1%5D":   {"maximum_waiting_duration"},
			"minimum_created=yesterday":          {"minimum_created"},
			"maximum_created=2026-01-01":         {"maximum_created"},
			"maximum_created=1795283222":         {"maximum_created"},
			"minimum_created=":                   {"minimum_created"},
			"page_token=nonsense":                {"page_token"},
			"resource=%00":                       {"resource"},
			"resource=%FF":                       {"resource"},
			"owner=" + strings.Repeat("a", 1025): {"owner"},
			"resource=a&resource=b":              {"resource"},
		} {
			s.do(t, "GET", "/v1/claims/?"+query, nil).refuses(t, http.StatusBadRequest, names...)
		}
		s.do(t, "GET", "/v1/claims/?limit=%zz", nil).refuses(t, http.StatusBadRequest, "message")
	}},
}

// makeMany makes claims of one owner, each on a resource of its own, and returns their ids.
func (s *restServer) makeMany(t *testing.T, n int) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, s.own(t, fmt.Sprint(i), 600).ID)
	}
	return ids
}

var nextPage = regexp.MustCompile(`^<([^>]+)>; rel="next"$`)

// follow reads all pages of a list.
func (s *restServer) follow(t *testing.T, query string) (pages int, ids []string) {
	t.Helper()
	address := s.url + "/v1/claims/?" + query
	for {
		a := s.do(t, "GET", address, nil).is(t, http.StatusOK)
		pages++
		ids = append(ids, idsOf(a.claims(t))...)
		link := a.header.Get("Link")
		if link == "" || pages > 100 {
			return pages, ids
		}
		next := nextPage.FindStringSubmatch(link)
		if next == nil || !strings.HasPrefix(next[1], s.url) {
			t.Fatalf("Link: %q", link)
		}
		address = next[1]
	}
}
