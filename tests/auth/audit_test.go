package auth_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// line is a line of the audit log.
type line map[string]any

// audited returns the lines of an audit log.
func audited(t *testing.T, file string) (lines []line) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	for one := range strings.Lines(string(text)) {
		var l line
		must(t, json.Unmarshal([]byte(one), &l))
		lines = append(lines, l)
	}
	return lines
}

// calls returns the lines about calls.
func calls(t *testing.T, file string) []line {
	t.Helper()
	return slices.DeleteFunc(audited(t, file), func(l line) bool { return l["msg"] != "call" })
}

func TestAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	w := start(t, "", []string{"alice", "mallory"}, "--audit-log", file)
	private := func(c *models.CreateClaimRequest) *models.CreateClaimRequest {
		c.UserData, c.Value, c.Ttl = proto.String(`"private"`), "private", proto.Float64(60)
		return c
	}
	_, err := w.CreateClaim(w.as("alice"), private(&models.CreateClaimRequest{Id: "a", Resource: "r", Owner: "me"}))
	must(t, err)
	_, _ = w.EndClaim(w.as("mallory"), &models.EndClaimRequest{Id: "a", Reason: "private"})
	_, _ = w.CreateClaim(w.as(""), private(&models.CreateClaimRequest{Resource: "r"}))
	_, err = w.GetClaim(w.as("alice"), &models.GetClaimRequest{Id: "a"}) // no line
	must(t, err)
	code, _, body := w.http("alice", "DELETE", "/v1/claims/a/?reason=private", "", "X-Request-Id: mine")
	if code != 204 {
		t.Fatal(body)
	}
	lines := calls(t, file)
	want := []line{
		{"method": "/models.Locket/CreateClaim", "identity": "token:alice", "outcome": "OK", "asked_resource": "r", "owner": "me", "claim": "a", "status": "STATUS_ACTIVE"},
		{"method": "/models.Locket/EndClaim", "identity": "token:mallory", "outcome": "PermissionDenied", "reason": "PERMISSION_DENIED", "asked_claim": "a"},
		{"method": "/models.Locket/CreateClaim", "identity": "", "outcome": "Unauthenticated", "reason": "UNAUTHENTICATED"},
		{"method": "/models.Locket/EndClaim", "identity": "token:alice", "outcome": "OK", "claim": "a", "resource": "r", "status": "STATUS_RELEASED", "request_id": "mine"},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for i := range want {
		for name, value := range want[i] {
			if lines[i][name] != value {
				t.Errorf("line %d: %s is %v, want %v", i, name, lines[i][name], value)
			}
		}
		if from, _ := lines[i]["from"].(string); !strings.HasPrefix(from, "127.0.0.1:") {
			t.Errorf("line %d comes from %v", i, lines[i]["from"])
		}
	}
	if text, _ := os.ReadFile(file); strings.Contains(string(text), "private") || strings.Contains(string(text), w.tokens["alice"]) {
		t.Errorf("the log has private data:\n%s", text)
	}

	must(t, os.Rename(file, file+".1"))
	must(t, w.Signal(syscall.SIGHUP))
	for begin := time.Now(); !strings.Contains(w.Log(), "the audit log was opened again"); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 5*time.Second {
			t.Fatal("the signal did nothing")
		}
	}
	_, err = w.Lock(w.as("alice"), &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "o"}, TtlInSeconds: 5})
	must(t, err)
	if n := len(calls(t, file)); n != 1 || len(calls(t, file+".1")) != len(want) {
		t.Errorf("%d lines after it was opened again", n)
	}
}

// SIGHUP without an audit log means nothing.
func TestHangupWithoutAuditLog(t *testing.T) {
	w := start(t, "", []string{"alice"})
	for range 3 {
		must(t, w.Signal(syscall.SIGHUP))
		if _, err := w.Wait(200 * time.Millisecond); err == nil {
			t.Fatal("the server has ended")
		}
	}
	_, err := w.Lock(w.as("alice"), &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "o"}, TtlInSeconds: 5})
	must(t, err)
}
