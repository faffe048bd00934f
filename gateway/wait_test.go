package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// waiters reads how many calls wait for a claim.
func (s *server) waiters(t *testing.T, c *http.Client) string {
	t.Helper()
	_, after, _ := strings.Cut(do(t, c, "GET", s.url+"/metrics", "").body, "\nlocket_waiters ")
	count, _, _ := strings.Cut(after, "\n")
	return count
}

// awaitWaiters returns when a number of calls wait.
func (s *server) awaitWaiters(t *testing.T, c *http.Client, want string) {
	t.Helper()
	harness.Until(t, want+" calls wait", func() bool { return s.waiters(t, c) == want })
}

// TestHangUp: a client that hangs up ends its wait, and leaves its claim in the queue.
func TestHangUp(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims", claimOfR)
	for method, call := range map[string]struct{ path, body string }{
		"POST":  {"/v1/claims/", `{"resource": "r", "ttl": 60, "id": "w"}`},
		"GET":   {"/v1/claims/w/", ""},
		"PATCH": {"/v1/claims/w/", `{"status": "active"}`},
		"PUT":   {"/v1/claims/w/", `{"status": "active", "ttl": 5}`},
	} {
		do(t, c, "POST", s.url+"/v1/claims", `{"resource": "r", "ttl": 60, "id": "w"}`)
		ctx, hangUp := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, method, s.url+call.path, strings.NewReader(call.body))
		must(t, err)
		req.Header.Set("Prefer", "wait=60")
		req.Header.Set("Content-Type", "application/json")
		gone := make(chan error, 1)
		go func() {
			resp, err := c.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			gone <- err
		}()
		s.awaitWaiters(t, c, "1")
		hangUp()
		if err := <-gone; err == nil {
			t.Errorf("%s was answered", method)
		}
		s.awaitWaiters(t, c, "0")
	}
	do(t, c, "GET", s.url+"/v1/claims/w/", "").says(t, 200, `"status":"waiting"`)
}

// TestWaitIfMatch: a claim with a condition on its version becomes active when its turn comes; the grant itself does
// not count as a change.
func TestWaitIfMatch(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims", claimOfR)
	for method, body := range map[string]string{"PATCH": `{"status": "active"}`, "PUT": `{"status": "active", "ttl": 50}`} {
		const waiter = `{"resource": "r", "ttl": 60, "id": "w", "wait_ttl": 60}`
		tag := do(t, c, "POST", s.url+"/v1/claims", strings.Replace(waiter, `"w"`, `"w-`+method+`"`, 1)).header.Get("ETag")
		answered := make(chan answer, 1)
		go func() {
			answered <- do(t, c, method, s.url+"/v1/claims/w-"+method+"/", body, "If-Match: "+tag, "Prefer: wait=20")
		}()
		s.awaitWaiters(t, c, "1")
		for _, id := range []string{"c", "w-PATCH", "w-PUT"} { // the holder of the two
			if id != "w-"+method {
				do(t, c, "DELETE", s.url+"/v1/claims/"+id+"/", "")
			}
		}
		harness.Await(t, method, answered).says(t, 200, `"status":"active"`)
		do(t, c, method, s.url+"/v1/claims/w-"+method+"/", body, "If-Match: "+tag).says(t, 412, "version")
	}
}

// renewing changes the TTL of each claim that was waited for, between its grant and the answer.
type renewing struct{ grpc.ClientConnInterface }

func (r renewing) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	err := r.ClientConnInterface.Invoke(ctx, method, in, out, opts...)
	if await, ok := in.(*models.AwaitClaimRequest); ok && err == nil {
		renewal := &models.UpdateClaimRequest{Id: await.GetId(), Ttl: proto.Float64(3600)}
		if _, err := models.NewLocketClient(r.ClientConnInterface).UpdateClaim(ctx, renewal); err != nil {
			return err
		}
		return r.ClientConnInterface.Invoke(ctx, method, in, out, opts...)
	}
	return err
}

// TestWaitIfMatchChanged: a change after the grant that was waited for is one that refuses the request.
func TestWaitIfMatchChanged(t *testing.T) {
	s, c := startAs(t, func(c *gateway.Config) { c.Service = renewing{c.Service} }), client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims", claimOfR)
	tag := do(t, c, "POST", s.url+"/v1/claims", `{"resource": "r", "ttl": 60, "id": "w"}`).header.Get("ETag")
	answered := make(chan answer, 1)
	go func() {
		answered <- do(t, c, "PUT", s.url+"/v1/claims/w/", `{"status": "active", "ttl": 50}`, "If-Match: "+tag, "Prefer: wait=20")
	}()
	s.awaitWaiters(t, c, "1")
	do(t, c, "DELETE", s.url+"/v1/claims/c/", "")
	harness.Await(t, "PUT", answered).says(t, 412, "version")
	do(t, c, "GET", s.url+"/v1/claims/w/", "").says(t, 200, `"ttl":3`) // an hour, less what has passed
}

// TestPreferences: valid preferences are applied, others are ignored.
func TestPreferences(t *testing.T) {
	s, c := start(t, nil), client(t, nil)
	do(t, c, "POST", s.url+"/v1/claims", claimOfR)
	for prefer, applied := range map[string]string{
		"wait=1":                     "wait=1",
		`respond-async, Wait = "1"`:  "wait=1",
		"wait=1; reason=test":        "wait=1",
		"return=minimal":             "",
		"wait":                       "",
		"wait=":                      "",
		"wait=0":                     "",
		"wait=-1":                    "",
		"wait=1.5":                   "",
		"wait=forever":               "",
		"wait=99999999999999999999":  "",
		"":                           "",
		"waiting=1":                  "",
		"wait=1000000000000, wait=1": "",
	} {
		a := do(t, c, "GET", s.url+"/v1/claims/c/", "", "Prefer: "+prefer)
		if got := a.header.Get("Preference-Applied"); got != applied || a.code != 200 {
			t.Errorf("%q: %d, applied %q, want %q", prefer, a.code, got, applied)
		}
	}
	for _, path := range []string{"/v1/claims/", "/v1/resources/r/", "/v1/locks/r"} {
		if got := do(t, c, "GET", s.url+path, "", "Prefer: wait=1").header.Get("Preference-Applied"); got != "" {
			t.Errorf("%s: applied %q", path, got)
		}
	}
	if got := do(t, c, "GET", s.url+"/v1/claims/c/", "", "Prefer: wait=86400").header.Get("Preference-Applied"); got != "wait=3600" {
		t.Errorf("a day: applied %q", got)
	}
	do(t, c, "DELETE", s.url+"/v1/claims/c/", "", "Prefer: wait=1").says(t, 204, "")
}
