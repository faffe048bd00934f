package rest_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// TestRESTContract shows that what docs/rest.md says beside the REST requirements is true. TestSoakRESTContract does it on MySQL.
func TestRESTContract(t *testing.T) {
	t.Parallel()
	holdsContract(t, harness.Embedded(t))
}

func holdsContract(t *testing.T, database string) {
	t.Helper()
	runSections(t, database, []section{
		{"A claim", contractClaim},
		{"Lists", contractLists},
		{"Paths", contractPaths},
		{"Names", contractNames},
		{"Repeats", contractRepeats},
		{"Leases", contractLeases},
		{"PUT and DELETE", contractPutDelete},
		{"Errors", contractErrors},
		{"Limits", contractLimits},
		{"Manners", contractManners},
	})
}

// The ways to write members.
const (
	aFloat     = `-?\d+\.\d+`
	aWhole     = `[1-9]\d*`
	aTime      = `"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"`
	aText      = `"[^"]+"`
	null       = `null`
	aHistory   = `\[.*\]`
	microLimit = time.Microsecond
)

// claimMembers are the members of every claim, written as for an active claim with the
// fewest parameters.
var claimMembers = map[string]string{
	"url": aText, "id": `"[a-z0-9]+"`, "resource": aText, "owner": null, "mode": `"exclusive"`, "type": `"lock"`, "value": null,
	"status": `"active"`, "status_history": aHistory, "created": aTime, "ttl": aFloat, "granted_ttl": aFloat, "active_duration": aFloat,
	"waiting_duration": `0\.0`, "user_data": null, "token": aWhole, "position": null, "version": aWhole, "reason": null,
	"identity": null, "ended_by": null, "session": null, "wait_ttl": null,
}

// written is how the members of other claims are written, where they differ.
var written = map[string]map[string]string{
	"waiting":   {"ttl": null, "granted_ttl": null, "active_duration": null, "waiting_duration": aFloat, "token": null, "position": "1"},
	"active":    {},
	"released":  {"ttl": null, "granted_ttl": null},
	"aborted":   {"ttl": null, "granted_ttl": null},
	"withdrawn": {"ttl": null, "granted_ttl": null},
	"revoked":   {"ttl": null, "granted_ttl": null},
	"expired":   {"ttl": null, "granted_ttl": null},
}

var contractClaim = []sentence{
	{"A claim has these members and no others, written in these ways", func(t *testing.T, s *restServer) {
		for status, differences := range written {
			c := inStatus(t, s, status)
			want := maps.Clone(claimMembers)
			maps.Copy(want, differences)
			want["status"] = `"` + status + `"`
			wantMembers(t, s.do(t, "GET", claimPath(c.ID), nil).members(t), want)
			want["position"] = null // in lists
			listed := s.do(t, "GET", "/v1/claims/?status="+status+"&resource="+url.QueryEscape(c.Resource), nil)
			var all []map[string]json.RawMessage
			listed.decode(t, &all)
			for _, members := range all {
				wantMembers(t, members, want)
			}
		}
	}},
	{"What the client said is in every answer", func(t *testing.T, s *restServer) {
		body := object{
			"resource": t.Name(), "ttl": 60, "owner": "me", "mode": "shared", "type": "presence", "value": "at 10.0.0.7",
			"user_data": 5, "id": "my-own.id_~1",
		}
		want := maps.Clone(claimMembers)
		maps.Copy(want, map[string]string{
			"url": `"` + s.url + `/v1/claims/my-own.id_~1/"`, "id": `"my-own.id_~1"`, "owner": `"me"`, "mode": `"shared"`,
			"type": `"presence"`, "value": `"at 10.0.0.7"`, "user_data": "5",
		})
		wantMembers(t, s.post(t, body).is(t, http.StatusCreated).members(t), want)
		wantMembers(t, s.patch(t, "my-own.id_~1", object{"ttl": 60}).is(t, http.StatusOK).members(t), want)
		s.patch(t, "my-own.id_~1", object{"status": "revoked", "reason": "it is late"}).is(t, http.StatusNoContent)
		maps.Copy(want, map[string]string{"ttl": null, "granted_ttl": null, "status": `"revoked"`, "reason": `"it is late"`})
		wantMembers(t, s.do(t, "GET", "/v1/claims/my-own.id_~1", nil).members(t), want)
	}},
	{"A claim with a wait TTL shows it, and is aborted when nobody asks about it for so long", func(t *testing.T, s *restServer) {
		const wait = 15 // seconds: a client asks in time on a busy machine too
		body := func(name string) object {
			s.hold(t, t.Name()+name)
			return object{"resource": t.Name() + name, "ttl": 60, "wait_ttl": wait, "id": name}
		}
		want := maps.Clone(claimMembers)
		maps.Copy(want, written["waiting"])
		names := []string{"asked", "awaited", "silent"} // the silent one last: its time is up after the others'
		bodies := make(map[string]object)
		for _, name := range names { // before the time of any of them begins
			bodies[name] = body(name)
		}
		for _, name := range names {
			maps.Copy(want, map[string]string{"id": `"` + name + `"`, "url": `"` + s.url + `/v1/claims/` + name + `/"`, "status": `"waiting"`, "wait_ttl": `15\.0`})
			wantMembers(t, s.post(t, bodies[name]).is(t, http.StatusAccepted).members(t), want)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		defer hangUp()
		s.send(ctx, "GET", "/v1/claims/awaited/", nil, "Prefer", "wait=3600")
		harness.Eventually(t, func() error {
			s.stands(t, "asked", "waiting")
			if listed := s.list(t, "status=aborted&resource="+url.QueryEscape(t.Name()+"silent")); len(listed) == 0 { // lists do not ask
				return errors.New("the claim that nobody asks about still waits")
			}
			return nil
		})
		s.stands(t, "asked", "waiting")
		s.stands(t, "awaited", "waiting")
		s.stands(t, "silent", "aborted")
		wrongly := body("wrong")
		for _, wrong := range []any{0, 0.9, -1, 1e10, "1", true} {
			wrongly["wait_ttl"] = wrong
			s.post(t, wrongly).refuses(t, http.StatusBadRequest, "wait_ttl")
		}
	}},
	{"The youngest claim of a deadlock is aborted, with its members, unless it allows deadlocks", func(t *testing.T, s *restServer) {
		first, second := t.Name()+"/1", t.Name()+"/2"
		s.post(t, object{"resource": first, "ttl": 60, "owner": "a"}).is(t, http.StatusCreated)
		s.post(t, object{"resource": second, "ttl": 60, "owner": "b"}).is(t, http.StatusCreated)
		s.post(t, object{"resource": second, "ttl": 60, "owner": "a", "id": "a2"}).is(t, http.StatusAccepted)
		last := object{"resource": first, "ttl": 60, "owner": "b", "id": "b1"}
		type refusal struct {
			Message  string
			Deadlock []struct{ Owner, Claim, Resource string }
		}
		refuses := func(a reply) {
			t.Helper()
			var refused refusal
			a.is(t, http.StatusConflict).decode(t, &refused)
			if len(refused.Deadlock) != 2 || refused.Deadlock[0].Claim != "b1" || refused.Deadlock[1].Owner != "a" || refused.Deadlock[1].Resource != second || refused.Message == "" {
				t.Errorf("%+v", refused)
			}
		}
		s.post(t, last).is(t, http.StatusAccepted)
		asked := s.send(t.Context(), "GET", "/v1/claims/b1/", nil, "Prefer", "wait=60")
		refuses(s.post(t, last, "Prefer", "wait=60"))
		refuses(<-asked)
		refuses(s.post(t, last))
		s.stands(t, "b1", "aborted")
		s.stands(t, "a2", "waiting")
		last["id"], last["allow_deadlock"] = "allowed", true
		s.post(t, last).is(t, http.StatusAccepted)
		var queue struct {
			Waits []struct {
				Resource string
				Waiter   struct{ Claim, Owner string }
				Holders  []struct{ Owner string }
			}
		}
		s.do(t, "GET", "/v1/resources/"+url.PathEscape(first)+"/", nil).is(t, http.StatusOK).decode(t, &queue)
		if len(queue.Waits) != 2 || queue.Waits[0].Resource != second || queue.Waits[0].Waiter.Claim != "a2" || queue.Waits[0].Holders[0].Owner != "b" {
			t.Errorf("%+v", queue)
		}
	}},
	{"null is the same as leaving a member out", func(t *testing.T, s *restServer) {
		body := `{"resource": "` + t.Name() + `", "ttl": 60, "user_data": null, "owner": null, "mode": null, "id": null, "type": null, "value": null, "wait_ttl": null}`
		wantMembers(t, s.post(t, body).is(t, http.StatusCreated).members(t), claimMembers)
	}},
	{"The history begins with waiting also when the claim is active at once, and is complete", func(t *testing.T, s *restServer) {
		at := s.hold(t, t.Name())
		if !slices.Equal(at.statuses(), []string{"waiting", "active"}) || !at.since(t, "waiting").Equal(at.Created) || at.WaitingDuration != 0 {
			t.Errorf("%v, created %v, waited for %v", at.StatusHistory, at.Created, at.WaitingDuration)
		}
		c := s.queue(t, t.Name())
		s.patch(t, at.ID, object{"ttl": 60}).is(t, http.StatusOK) // does not change the status
		s.end(t, at.ID, "aborted")
		s.end(t, c.ID, "released")
		s.end(t, c.ID, "released") // nor is this
		ended := s.get(t, c.ID)
		if !slices.Equal(ended.statuses(), []string{"waiting", "active", "released"}) {
			t.Errorf("it has been %v", ended.statuses())
		}
		if !slices.IsSortedFunc(ended.StatusHistory, func(a, b restChange) int { return a.Timestamp.Compare(b.Timestamp) }) {
			t.Errorf("the times do not rise: %v", ended.StatusHistory)
		}
	}},
	{"A line of the history has a status and a timestamp", func(t *testing.T, s *restServer) {
		a := s.post(t, object{"resource": t.Name(), "ttl": 60}).is(t, http.StatusCreated)
		var lines []map[string]json.RawMessage
		harness.Must(t, json.Unmarshal(a.members(t)["status_history"], &lines))
		for _, line := range lines {
			wantMembers(t, line, map[string]string{"status": `"waiting"|"active"`, "timestamp": aTime})
		}
	}},
	{"waiting_duration is frozen once the claim is active or has ended, active_duration once it has ended", func(t *testing.T, s *restServer) {
		holder, next, gone := s.hold(t, t.Name()), s.queue(t, t.Name()), s.queue(t, t.Name())
		time.Sleep(50 * time.Millisecond)
		s.end(t, gone.ID, "withdrawn")
		s.end(t, holder.ID, "released")
		before := []restClaim{s.get(t, holder.ID), s.get(t, next.ID), s.get(t, gone.ID)}
		time.Sleep(50 * time.Millisecond)
		for _, was := range before {
			is := s.get(t, was.ID)
			if is.WaitingDuration != was.WaitingDuration || is.Status != "active" && show(is.ActiveDuration) != show(was.ActiveDuration) {
				t.Errorf("a claim that is %s: waited %v, later %v; active %s, later %s",
					is.Status, was.WaitingDuration, is.WaitingDuration, show(was.ActiveDuration), show(is.ActiveDuration))
			}
			durationsMatchHistory(t, &is)
		}
	}},
	{"The token of a grant is larger than those before, and a renewal keeps it", func(t *testing.T, s *restServer) {
		var last uint64
		for range 5 {
			c := s.hold(t, t.Name())
			renewed := s.patch(t, c.ID, object{"ttl": 60}).is(t, http.StatusOK).claim(t)
			if *c.Token <= last || *renewed.Token != *c.Token {
				t.Errorf("token %d after %d, renewed %d", *c.Token, last, *renewed.Token)
			}
			last = *c.Token
			s.end(t, c.ID, "released")
			if ended := s.get(t, c.ID); !ptrEqual(ended.Token, last) {
				t.Errorf("once released the token is %s, not %d", show(ended.Token), last)
			}
		}
	}},
	{"The version rises with every change of the claim", func(t *testing.T, s *restServer) {
		holder, c := s.hold(t, t.Name()), s.queue(t, t.Name())
		versions := []uint64{c.Version}
		s.end(t, holder.ID, "released")
		versions = append(versions, s.get(t, c.ID).Version)
		versions = append(versions, s.patch(t, c.ID, object{"ttl": 60}).claim(t).Version, s.get(t, c.ID).Version)
		s.end(t, c.ID, "released")
		versions = append(versions, s.get(t, c.ID).Version)
		if versions[2] != versions[3] || !slices.IsSorted(versions) || len(slices.Compact(versions)) != 4 {
			t.Errorf("versions: %d; the third change was read twice", versions)
		}
	}},
	{"Shared claims are active together, and one that comes after a waiting exclusive claim waits", func(t *testing.T, s *restServer) {
		shared, exclusive := object{"resource": t.Name(), "ttl": 60, "mode": "shared"}, object{"resource": t.Name(), "ttl": 60, "mode": "exclusive"}
		a, b := s.post(t, shared).is(t, http.StatusCreated).claim(t), s.post(t, shared).is(t, http.StatusCreated).claim(t)
		alone := s.post(t, exclusive).is(t, http.StatusAccepted).claim(t)
		late := s.post(t, shared).is(t, http.StatusAccepted).claim(t)
		s.end(t, a.ID, "released")
		s.stands(t, alone.ID, "waiting")
		s.end(t, b.ID, "released")
		s.stands(t, alone.ID, "active")
		s.stands(t, late.ID, "waiting")
	}},
	{"url and Location are built from the Host of the request; X-Forwarded headers count only from trusted proxies", func(t *testing.T, s *restServer) {
		body := object{"resource": t.Name(), "ttl": 60}
		for _, test := range []struct{ host, proto, want string }{
			{"locks.localhost", "", "http://locks.localhost/v1/claims/"},
			{"localhost:8080", "https", "http://localhost:8080/v1/claims/"},
			{"[::1]:80", "http", "http://[::1]:80/v1/claims/"},
			{"10.1.2.3", "javascript", "http://10.1.2.3/v1/claims/"},
		} {
			a := s.post(t, body, "Host", test.host, "X-Forwarded-Proto", test.proto, "X-Forwarded-Host", "evil.example", "X-Forwarded-Prefix", "/evil")
			c := a.claim(t)
			if want := test.want + c.ID + "/"; c.URL != want || a.header.Get("Location") != want {
				t.Errorf("url %q, Location %q, want %q", c.URL, a.header.Get("Location"), want)
			}
		}
	}},
}

// wantMembers fails the test unless an object has exactly the members that are wanted,
// written in their ways.
func wantMembers(t *testing.T, members map[string]json.RawMessage, want map[string]string) {
	t.Helper()
	for name, text := range members {
		if way, ok := want[name]; !ok || !regexp.MustCompile(`^(`+way+`)$`).Match(text) {
			t.Errorf("%s is written %s, want %q", name, text, way)
		}
	}
	for name := range want {
		if _, ok := members[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}
}

// durationsMatchHistory checks the frozen durations of a claim against its history.
func durationsMatchHistory(t *testing.T, c *restClaim) {
	t.Helper()
	for i, change := range c.StatusHistory[:len(c.StatusHistory)-1] {
		took, stated := c.StatusHistory[i+1].Timestamp.Sub(change.Timestamp), c.WaitingDuration
		if change.Status == "active" {
			stated = *c.ActiveDuration
		}
		if off := took - time.Duration(stated*float64(time.Second)); off.Abs() > microLimit {
			t.Errorf("%s for %v says the history, %v the claim", change.Status, took, stated)
		}
	}
}

// With TLS the addresses in the answers are HTTPS addresses. A client certificate is required, unless the server is
// configured otherwise.
func TestRESTOverTLS(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	harness.Must(t, os.WriteFile(rules, []byte("rules:\n  - {identity: anonymous, may: [read, hold], resource_prefix: \"\"}\n"), 0o600))
	for client, args := range map[*tls.Config][]string{
		ca.ClientTLS(t):      nil,
		{RootCAs: ca.Pool()}: {"--http-anonymous", "--auth-rules", rules},
	} {
		server := harness.StartSecure(t, ca, append(args, "--tls-client-ca", ca.File)...)
		s := newREST(t, server, "https", &http.Transport{TLSClientConfig: client, ForceAttemptHTTP2: true})
		a := s.post(t, object{"resource": t.Name(), "ttl": 60}).is(t, http.StatusCreated)
		if location := a.header.Get("Location"); location != s.url+claimPath(a.claim(t).ID) {
			t.Errorf("%q: Location %q", args, location)
		}
		s.do(t, "GET", a.header.Get("Location"), nil).is(t, http.StatusOK)
	}
}
