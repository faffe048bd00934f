package rest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/tests/harness"
)

// oddNames are names that need care in a path.
var oddNames = []string{
	"plain", "a/b", "a b", " a ", "ü", "☃🔒", "100%", "%41", "%2F", "a+b", "a?b=c", "a#b", "tail/", "/lead", "a//b", "//", "/", "a;b=c",
	"a:b", "a&b", "a=b", "*", "**", "{a}", "$", "'", `"`, `\`, "a\nb", "a\tb", "\u007f", "a\u0301", "<b>", "[1]", "|", "~a", "@", "é.json", "a.", ".a", "...",
}

var contractNames = []sentence{
	{"NAME is percent-encoded", func(t *testing.T, s *restServer) {
		for _, odd := range oddNames {
			for kind, name := range map[string]string{"lock": odd, "presence": odd + t.Name() + odd} {
				c := s.post(t, object{"resource": name, "ttl": 60, "type": kind}).is(t, http.StatusCreated).claim(t)
				findByName(t, s, name, kind, c)
			}
		}
	}},
	{"The names . and .. are names like others", func(t *testing.T, s *restServer) {
		for _, name := range []string{".", ".."} {
			c := s.hold(t, name)
			for _, path := range []string{"/v1/resources/" + name, "/v1/resources/" + url.PathEscape(name) + "/", "/v1/resources/?name=" + name, "/v1/resources?limit=1&name=" + name} {
				var q restQueue
				s.do(t, "GET", path, nil).is(t, http.StatusOK).decode(t, &q)
				if q.URL != s.url+"/v1/resources/?name="+name || q.Resource != name || len(q.Holders) != 1 || q.Holders[0].ID != c.ID {
					t.Errorf("%q: %v", path, q)
				}
			}
		}
	}},
	{"A name may be in the query: where that is so, how often, and of what", func(t *testing.T, s *restServer) {
		for _, path := range []string{"/v1/resources/?name=", "/v1/resources/?name=a&name=b", "/v1/claims/?name=a", "/v1/whoami/?name=a", "/v1/resources/a/?name=b", "/v1/sessions/?name=a"} {
			s.do(t, "GET", path, nil).refuses(t, http.StatusBadRequest, "name")
		}
		s.do(t, "GET", "/v1/permissions/?right=hold&name=..", nil).is(t, http.StatusOK)
		s.do(t, "GET", "/v1/resources/?name=a%00b", nil).refuses(t, http.StatusBadRequest, "resource")
		s.do(t, "GET", "/v1/resources/?name=%FF", nil).refuses(t, http.StatusBadRequest, "resource")
		s.do(t, "GET", "/v1/resources/?name=a&limit=0", nil).refuses(t, http.StatusBadRequest, "limit")
		s.do(t, "POST", "/v1/resources/?name=a", object{}).is(t, http.StatusMethodNotAllowed)
	}},
	{"Who holds a resource, who waits, in order", func(t *testing.T, s *restServer) {
		holder := s.post(t, object{"resource": t.Name(), "ttl": 60, "owner": "me", "user_data": 1, "value": "v"}).claim(t)
		time.Sleep(2 * time.Millisecond)
		waiters := []restClaim{s.queue(t, t.Name()), s.queue(t, t.Name()), s.queue(t, t.Name())}
		q := s.resource(t, url.PathEscape(t.Name()))
		if q.Resource != t.Name() || q.URL != s.url+"/v1/resources/"+url.PathEscape(t.Name())+"/" || q.Waiting != 3 || !ptrEqual(q.Token, *holder.Token) {
			t.Errorf("got %v", q)
		}
		if !slices.Equal(idsOf(q.Holders), []string{holder.ID}) || !slices.Equal(idsOf(q.Waiters), idsOf(waiters)) {
			t.Errorf("held by %v, waited for by %v", idsOf(q.Holders), idsOf(q.Waiters))
		}
		if since := q.Holders[0].Since; !since.Equal(holder.since(t, "active")) {
			t.Errorf("held since %v, want %v", since, holder.StatusHistory)
		}
		for i, c := range q.Waiters {
			if !ptrEqual(c.Position, i+1) || !c.Since.Equal(waiters[i].Created) || c.Status != "waiting" {
				t.Errorf("number %d waits at %s, %s since %v", i+1, show(c.Position), c.Status, c.Since)
			}
		}
	}},
	{"A list of resources says who holds each and how many wait, and leads on page by page", func(t *testing.T, s *restServer) {
		prefix := t.Name() + "/"
		for _, name := range []string{"a/b", "c d", "é", "z"} {
			s.hold(t, prefix+name)
		}
		s.queue(t, prefix+"z")
		s.queue(t, prefix+"z")
		s.queue(t, prefix+"c d")
		s.end(t, s.hold(t, prefix+"free").ID, "released")
		query := "/v1/resources/?prefix=" + url.QueryEscape(prefix)
		for order, want := range map[string][]string{"name": {"a/b", "c d", "z", "é"}, "contended": {"z", "c d", "a/b", "é"}} {
			for _, limit := range []int{1, 3, 4, 5} {
				found, address := []string{}, fmt.Sprintf("%s%s&order=%s&limit=%d", s.url, query, order, limit)
				for address != "" {
					a := s.do(t, "GET", address, nil).is(t, http.StatusOK)
					var page []restQueue
					a.decode(t, &page)
					for _, r := range page {
						found = append(found, strings.TrimPrefix(r.Resource, prefix))
						if r.URL != s.url+"/v1/resources/"+url.PathEscape(r.Resource)+"/" {
							t.Errorf("the address of %q is %s", r.Resource, r.URL)
						}
					}
					address = ""
					if next := nextPage.FindStringSubmatch(a.header.Get("Link")); next != nil {
						address = next[1]
					}
					if len(found) > 10 {
						t.Fatalf("the pages do not end: %q", found)
					}
				}
				if !slices.Equal(found, want) {
					t.Errorf("%s, %d at a time: %q, want %q", order, limit, found, want)
				}
			}
		}
		var list []map[string]json.RawMessage
		s.do(t, "GET", query+"&order=contended&limit=2", nil).is(t, http.StatusOK).decode(t, &list)
		wantMembers(t, list[0], map[string]string{
			"url": aText, "resource": aText, "folder": "false", "version": aWhole, "holding": "1", "holder": `\{.*\}`, "waiting": "2", "oldest_wait": aFloat, "deadlock": "false",
		})
	}},
	{"The queue has these members and no others, written in these ways", func(t *testing.T, s *restServer) {
		s.hold(t, t.Name())
		s.queue(t, t.Name())
		members := s.do(t, "GET", "/v1/resources/"+url.PathEscape(t.Name())+"/", nil).is(t, http.StatusOK).members(t)
		wantMembers(t, members, map[string]string{
			"url": aText, "resource": aText, "version": aWhole, "token": aWhole, "holders": `\[.*\]`, "waiting": "1", "waiters": `\[.*\]`, "waits": `\[\]`,
		})
		for list, differences := range map[string]map[string]string{
			"holders": {},
			"waiters": {"status": `"waiting"`, "ttl": null, "active_duration": null, "waiting_duration": aFloat, "token": null, "position": "1"},
		} {
			want := maps.Clone(claimMembers)
			for _, left := range []string{"resource", "status_history", "created", "user_data", "granted_ttl", "ended_by"} {
				delete(want, left)
			}
			want["since"] = aTime
			maps.Copy(want, differences)
			var places []map[string]json.RawMessage
			harness.Must(t, json.Unmarshal(members[list], &places))
			delete(want, "reason")
			for _, place := range places {
				delete(place, "reason") // nobody that is in a queue has one
				wantMembers(t, place, want)
			}
		}
	}},
	{"?limit= bounds the waiters", func(t *testing.T, s *restServer) {
		s.hold(t, t.Name())
		for range 3 {
			s.queue(t, t.Name())
		}
		path := "/v1/resources/" + url.PathEscape(t.Name()) + "/"
		for limit, want := range map[int]int{1: 1, 2: 2, 3: 3, 1000: 3} {
			var q restQueue
			s.do(t, "GET", fmt.Sprintf("%s?limit=%d", path, limit), nil).is(t, http.StatusOK).decode(t, &q)
			if len(q.Waiters) != want || len(q.Holders) != 1 || q.Waiting != 3 {
				t.Errorf("limit %d: %d waiters of %d", limit, len(q.Waiters), q.Waiting)
			}
		}
		for _, limit := range []string{"0", "1001", "-1", "x", "1.5", ""} {
			s.do(t, "GET", path+"?limit="+limit, nil).refuses(t, http.StatusBadRequest, "limit")
		}
		s.do(t, "GET", path+"?offset=1", nil).refuses(t, http.StatusBadRequest, "offset")
	}},
	{"A name that nobody uses is a free resource: version 0", func(t *testing.T, s *restServer) {
		members := s.do(t, "GET", "/v1/resources/nobody-uses-it/", nil).is(t, http.StatusOK).members(t)
		wantMembers(t, members, map[string]string{
			"url": aText, "resource": `"nobody-uses-it"`, "version": "0", "token": null, "holders": `\[\]`, "waiting": "0", "waits": `\[\]`, "waiters": `\[\]`,
		})
	}},
	{"The version of a queue rises with every change", func(t *testing.T, s *restServer) {
		last := uint64(0)
		rises := func(what string) {
			t.Helper()
			q := s.resource(t, url.PathEscape(t.Name()))
			if q.Version <= last {
				t.Errorf("after %s: version %d after %d", what, q.Version, last)
			}
			if again := s.resource(t, url.PathEscape(t.Name())); again.Version != q.Version {
				t.Errorf("after %s: version %d, then %d", what, q.Version, again.Version)
			}
			last = q.Version
		}
		holder := s.hold(t, t.Name())
		rises("a claim")
		waiter := s.queue(t, t.Name())
		rises("a claim that waits")
		s.patch(t, holder.ID, object{"ttl": 60})
		rises("a renewal")
		s.end(t, holder.ID, "released")
		rises("a release")
		s.end(t, waiter.ID, "aborted")
		rises("the last release")
	}},
	{"Every lock, every presence that is held, and no other", func(t *testing.T, s *restServer) {
		for _, kind := range []string{"lock", "presence"} {
			name := t.Name() + kind
			c := s.post(t, object{"resource": name, "ttl": 60, "type": kind, "owner": "me", "value": "here"}).claim(t)
			listed := s.held(t, kind, 1000)
			i := slices.IndexFunc(listed, func(l map[string]json.RawMessage) bool { return string(l["key"]) == `"`+name+`"` })
			if i < 0 {
				t.Fatalf("%s is not listed", name)
			}
			want := map[string]string{"url": aText, "key": aText, "owner": `"me"`, "value": `"here"`, "type": `"` + kind + `"`}
			wantMembers(t, listed[i], want)
			want["token"] = fmt.Sprint(*c.Token)
			path := "/v1/" + kind + "s/" + url.PathEscape(name)
			wantMembers(t, s.do(t, "GET", path, nil).is(t, http.StatusOK).members(t), want)
			s.end(t, c.ID, "released")
			s.do(t, "GET", path, nil).refuses(t, http.StatusNotFound, "message")
		}
	}},
	{"limit and the header Link page through locks and presences", func(t *testing.T, s *restServer) {
		for _, kind := range []string{"lock", "presence"} {
			for i := range 25 {
				s.post(t, object{"resource": fmt.Sprint(t.Name(), kind, i), "ttl": 600, "type": kind}).is(t, http.StatusCreated)
			}
			for _, limit := range []int{10, 1000} {
				seen := make(map[string]int)
				for _, l := range s.held(t, kind, limit) {
					seen[string(l["key"])]++
				}
				for i := range 25 {
					if name := fmt.Sprint(t.Name(), kind, i); seen[`"`+name+`"`] != 1 {
						t.Errorf("in pages of %d: %s is there %d times", limit, name, seen[`"`+name+`"`])
					}
				}
			}
			s.do(t, "GET", "/v1/"+kind+"s/?limit=1001&page_token=!", nil).refuses(t, http.StatusBadRequest, "limit", "page_token")
			s.do(t, "GET", "/v1/"+kind+"s/?offset=1", nil).refuses(t, http.StatusBadRequest, "offset")
		}
	}},
	{"A lock is no presence, nor the other way round", func(t *testing.T, s *restServer) {
		s.hold(t, t.Name())
		s.do(t, "GET", "/v1/presences/"+url.PathEscape(t.Name()), nil).refuses(t, http.StatusNotFound, "message")
		s.post(t, object{"resource": t.Name() + "p", "ttl": 60, "type": "presence"}).is(t, http.StatusCreated)
		s.do(t, "GET", "/v1/locks/"+url.PathEscape(t.Name()+"p"), nil).refuses(t, http.StatusNotFound, "message")
	}},
	{"A lock that was taken over gRPC is seen, waited for and listed over HTTP", func(t *testing.T, s *restServer) {
		token := harness.Lock(t, s.Client(t), t.Name(), "somebody", time.Minute)
		waiter := s.queue(t, t.Name())
		q := s.resource(t, url.PathEscape(t.Name()))
		if !ptrEqual(q.Token, token) || len(q.Holders) != 1 || !ptrEqual(q.Holders[0].Owner, "somebody") || !slices.Equal(idsOf(q.Waiters), []string{waiter.ID}) {
			t.Errorf("token %d: %v", token, q)
		}
		if found := s.list(t, "status=active&resource="+url.QueryEscape(t.Name())); len(found) != 1 || !ptrEqual(found[0].Token, token) {
			t.Errorf("listed: %v", found)
		}
	}},
	{"Names that are none", func(t *testing.T, s *restServer) {
		for _, name := range []string{"%00", "a%00b", "%FF", fmt.Sprintf("%01025d", 0)} {
			s.do(t, "GET", "/v1/resources/"+name+"/", nil).refuses(t, http.StatusBadRequest, "resource")
			s.do(t, "GET", "/v1/locks/"+name+"/", nil).refuses(t, http.StatusBadRequest, "key")
			s.do(t, "GET", "/v1/presences/"+name+"/", nil).refuses(t, http.StatusBadRequest, "key")
		}
	}},
}

// held reads all pages of the list of locks or presences.
func (s *restServer) held(t *testing.T, kind string, limit int) (all []map[string]json.RawMessage) {
	t.Helper()
	for address := fmt.Sprintf("%s/v1/%ss/?limit=%d", s.url, kind, limit); address != ""; {
		a := s.do(t, "GET", address, nil).is(t, http.StatusOK)
		var page []map[string]json.RawMessage
		if a.decode(t, &page); len(page) > limit {
			t.Errorf("%s: %d on a page", a.request, len(page))
		}
		all, address = append(all, page...), ""
		if next := nextPage.FindStringSubmatch(a.header.Get("Link")); next != nil {
			address = next[1]
		}
	}
	return all
}

// resource returns the queue of a resource, by its encoded name.
func (s *restServer) resource(t *testing.T, escaped string) (q restQueue) {
	t.Helper()
	s.do(t, "GET", "/v1/resources/"+escaped+"/", nil).is(t, http.StatusOK).decode(t, &q)
	return q
}

// findByName finds a claim by the name of its resource, with and without a final slash, and
// by the addresses in the answers.
func findByName(t *testing.T, s *restServer, name, kind string, c restClaim) {
	t.Helper()
	escaped := url.PathEscape(name)
	for _, path := range []string{"/v1/resources/" + escaped, "/v1/resources/" + escaped + "/", "/v1/resources/?name=" + url.QueryEscape(name)} {
		var q restQueue
		s.do(t, "GET", path, nil).is(t, http.StatusOK).decode(t, &q)
		if q.Resource != name || len(q.Holders) != 1 || q.Holders[0].ID != c.ID {
			t.Errorf("%q: %v", name, q)
		}
		s.do(t, "GET", q.URL, nil).is(t, http.StatusOK).decode(t, &q)
		if q.Resource != name || len(q.Holders) != 1 {
			t.Errorf("%q at %s: %v", name, q.URL, q)
		}
	}
	for _, path := range []string{"/v1/" + kind + "s/" + escaped, "/v1/" + kind + "s/" + escaped + "/"} {
		var held struct {
			URL, Key string
			Token    uint64
		}
		s.do(t, "GET", path, nil).is(t, http.StatusOK).decode(t, &held)
		if held.Key != name || held.Token != *c.Token {
			t.Errorf("%q: %v", name, held)
		}
		s.do(t, "GET", held.URL, nil).is(t, http.StatusOK).decode(t, &held)
		if held.Key != name {
			t.Errorf("%q at %s: %v", name, held.URL, held)
		}
	}
}
