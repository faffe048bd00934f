package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// line is a line of the audit log.
type line map[string]any

// audited returns the lines of an audit log. The last one may not be written whole yet.
func audited(t *testing.T, file string) (lines []line) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	for one := range strings.Lines(string(text)) {
		if !strings.HasSuffix(one, "\n") {
			break
		}
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
	want := []line{
		{"method": "/models.Locket/CreateClaim", "identity": "credential:alice", "outcome": "OK", "asked_resource": "r", "owner": "me", "claim": "a", "status": "STATUS_ACTIVE"},
		{"method": "/models.Locket/EndClaim", "identity": "credential:mallory", "outcome": "PermissionDenied", "reason": "PERMISSION_DENIED", "asked_claim": "a", "why": `no rule allows credential:mallory to revoke "r"`},
		{"method": "/models.Locket/CreateClaim", "identity": "", "outcome": "Unauthenticated", "reason": "UNAUTHENTICATED", "why": "the call has no credentials"},
		{"method": "/models.Locket/EndClaim", "identity": "credential:alice", "outcome": "OK", "claim": "a", "resource": "r", "status": "STATUS_RELEASED", "request_id": "mine"},
	}
	var lines []line
	harness.Until(t, "the lines", func() bool { lines = calls(t, file); return len(lines) >= len(want) })
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for i := range want {
		for name, value := range want[i] {
			if lines[i][name] != value {
				t.Errorf("line %d: %s is %v, want %v", i, name, lines[i][name], value)
			}
		}
		if id, _ := lines[i]["credential"].(string); (len(id) == 12) != (want[i]["identity"] != "") {
			t.Errorf("line %d: the credential is %q", i, id)
		}
		if from, _ := lines[i]["from"].(string); !strings.HasPrefix(from, "127.0.0.1:") {
			t.Errorf("line %d comes from %v", i, lines[i]["from"])
		}
	}
	if text, _ := os.ReadFile(file); strings.Contains(string(text), "private") || strings.Contains(string(text), w.credentials["alice"]) {
		t.Errorf("the log has private data:\n%s", text)
	}

	must(t, os.Rename(file, file+".1"))
	must(t, w.Signal(syscall.SIGHUP))
	harness.Until(t, "effect of the signal", func() bool { return strings.Contains(w.Log(), "the audit log was opened again") })
	_, err = w.Lock(w.as("alice"), &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "o"}, TtlInSeconds: 5})
	must(t, err)
	harness.Until(t, "the line after it was opened again", func() bool { return len(calls(t, file)) == 1 })
	if n := len(calls(t, file+".1")); n != len(want) {
		t.Errorf("%d lines in the file that was renamed", n)
	}
}

// SIGHUP without an audit log has no effect.
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

// The lines about refusals of an identity are bounded, including callers without one, and commands of a session. Other
// lines say how many refusals were left out.
func TestAuditOfRefusals(t *testing.T) {
	const each, callers = 100, 20
	file := filepath.Join(t.TempDir(), "audit.log")
	ops := "127.0.0.1:" + strconv.Itoa(fixtures.FreePort(t))
	w := startOn(t, harness.OneServer(t), `rules: [{everybody: true, may: [hold], resource: "k"}]`, []string{"alice", "mallory"}, "--audit-log", file, "--ops-address", ops)
	begin := time.Now()
	var flood sync.WaitGroup // faster than the limit on a busy machine too
	for i := range callers {
		flood.Go(func() {
			for range each {
				if _, err := w.Lock(w.as(""), &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "o"}, TtlInSeconds: 5}); status.Code(err) != codes.Unauthenticated {
					t.Error(err)
				}
			}
		})
		flood.Go(func() { w.refusedCommands("mallory", fmt.Sprintf("session-%d-of-mallory", i), each) })
	}
	flood.Wait()
	_, err := w.Lock(w.as("alice"), &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "o"}, TtlInSeconds: 5})
	must(t, err)
	counted := func(identity, outcome string) (lines, left int) {
		for _, l := range audited(t, file) {
			switch n, _ := l["refusals"].(float64); {
			case l["identity"] != identity:
			case l["msg"] == "left out":
				left += int(n)
			case l["outcome"] == outcome:
				lines++
			}
		}
		return lines, left
	}
	for identity, outcome := range map[string]string{"": "Unauthenticated", "credential:mallory": "PermissionDenied"} {
		harness.Until(t, fmt.Sprintf("each refusal of %q in the audit log", identity), func() bool {
			lines, left := counted(identity, outcome)
			return lines+left == each*callers
		})
		took := time.Since(begin).Seconds() // real time: the limit is 10 a second after the first 100
		if lines, _ := counted(identity, outcome); float64(lines) > 100+10*took+2 {
			t.Errorf("%q has %d lines in %.1f s", identity, lines, took)
		}
	}
	if lines, left := counted("credential:alice", "OK"); lines != 1 || left != 0 {
		t.Errorf("alice has %d lines, and %d were left out", lines, left)
	}
	_, _, metrics := request(t, http.DefaultClient, "GET", "http://"+ops+"/metrics", "")
	if strings.Contains(metrics, "locket_audit_left_out_total 0") || !strings.Contains(metrics, "locket_audit_left_out_total") {
		t.Error("none is counted")
	}
}

// refusedCommands opens a session, and sends commands that no rule allows.
func (w *world) refusedCommands(user, id string, commands int) {
	w.t.Helper()
	stream, err := w.Session(w.as(user))
	must(w.t, err)
	_ = stream.Send(&models.SessionRequest{Sequence: 1, Command: &models.SessionRequest_Open{Open: &models.OpenSession{Id: id, Secret: "0123456789abcdef", Ttl: 600}}})
	for i := range commands {
		_ = stream.Send(&models.SessionRequest{Sequence: uint64(i) + 2, Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: "forbidden"}}})
	}
	must(w.t, stream.CloseSend())
	refused := 0
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		must(w.t, err)
		if codes.Code(response.GetError().GetCode()) == codes.PermissionDenied {
			refused++
		}
	}
	if refused != commands {
		w.t.Errorf("%d of %d commands were refused", refused, commands)
	}
}

// The client's address is the last one before the trusted proxies, whatever the client's header says.
func TestAuditBehindProxies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	w := start(t, "", []string{"alice"}, "--audit-log", file, "--trusted-proxies", "127.0.0.1,10.0.0.0/8")
	other := filepath.Join(t.TempDir(), "audit.log")
	direct := start(t, "", []string{"alice"}, "--audit-log", other)
	for i, c := range []struct{ header, client string }{
		{"192.0.2.7", "192.0.2.7"},
		{"203.0.113.1, 192.0.2.7, 10.1.1.1", "192.0.2.7"}, // the first was there when the outer proxy got it
		{"2001:db8::1", "2001:db8::1"},
		{"10.1.1.1", ""},
		{"192.0.2.7, not an address", ""},
		{"", ""},
	} {
		headers := []string{}
		if c.header != "" {
			headers = append(headers, "X-Forwarded-For: "+c.header)
		}
		if code, _, body := w.http("alice", "POST", "/v1/claims/", `{"resource": "r", "ttl": 60}`, headers...); code >= 300 {
			t.Fatal(body)
		}
		var lines []line
		harness.Until(t, "a line", func() bool { lines = calls(t, file); return len(lines) == i+1 })
		got, _ := lines[i]["client"].(string)
		if from, _ := lines[i]["from"].(string); got != c.client || !strings.HasPrefix(from, "127.0.0.1:") {
			t.Errorf("%q: the client is %q, from %q; want %q", c.header, got, from, c.client)
		}
	}
	_, _, _ = direct.http("alice", "POST", "/v1/claims/", `{"resource": "r", "ttl": 60}`, "X-Forwarded-For: 192.0.2.7")
	harness.Until(t, "a line", func() bool { return len(calls(t, other)) == 1 })
	if got := calls(t, other)[0]["client"]; got != nil {
		t.Errorf("without trusted proxies the client is %v", got)
	}
}

// A full disk is detected, and with --audit-required the server refuses calls that would change something. Calls that
// were completed before are logged when there is space again.
func TestAuditOnAFullDisk(t *testing.T) {
	for _, required := range []bool{true, false} {
		folder := t.TempDir()
		file := filepath.Join(folder, "audit.log")
		must(t, os.Symlink("/dev/full", file))
		w := start(t, "", []string{"alice"}, "--audit-log", file, "--audit-required="+strconv.FormatBool(required))
		done := 0
		lock := func() error {
			_, err := w.Lock(w.as("alice"), &models.LockRequest{Resource: &models.Resource{Key: strconv.Itoa(done), Owner: "o"}, TtlInSeconds: 600})
			if err == nil {
				done++
			}
			return err
		}
		page := func() (int, string) {
			code, _, body := w.http("", "GET", "/readyz", "")
			return code, body
		}
		if required {
			harness.Until(t, "a refusal", func() bool {
				err := lock()
				return status.Code(err) == codes.Unavailable && models.ReasonOf(err) == models.ReasonAuditUnavailable
			})
			_, err := w.Fetch(w.as("alice"), &models.FetchRequest{Key: strconv.Itoa(done)})
			if status.Code(err) != codes.NotFound { // reads still work, and nothing was changed
				t.Errorf("what was refused: %v", err)
			}
			session, err := w.Session(w.as("alice"))
			must(t, err)
			must(t, session.Send(&models.SessionRequest{Sequence: 1, Command: &models.SessionRequest_Open{Open: &models.OpenSession{Ttl: 10}}}))
			if _, err := session.Recv(); models.ReasonOf(err) != models.ReasonAuditUnavailable {
				t.Errorf("a session: %v", err)
			}
			if code, body := page(); code != http.StatusServiceUnavailable || !strings.Contains(body, "the audit log cannot be written") {
				t.Errorf("%d %s", code, body)
			}
		} else {
			must(t, lock())
			harness.Until(t, "a warning", func() bool {
				code, body := page()
				return code == http.StatusOK && strings.Contains(body, "warning: --audit-log: ")
			})
			must(t, lock())
		}
		must(t, os.Remove(file))
		must(t, w.Signal(syscall.SIGHUP))
		harness.Until(t, "the end of it", func() bool {
			code, body := page()
			return code == http.StatusOK && !strings.Contains(body, "--audit-log")
		})
		must(t, lock())
		harness.Until(t, "the lines", func() bool {
			recorded := slices.DeleteFunc(calls(t, file), func(l line) bool { return l["outcome"] != "OK" })
			return len(recorded) == done
		})
		logs(t, w, "the audit log cannot be written")
		logs(t, w, "can be written again")
	}
}

// A log file that hangs delays no call, and not the end of the server.
func TestAuditThatHangs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.log")
	w := start(t, "", []string{"alice"}, "--audit-log", file)
	hang(t, file) // once it is opened again
	must(t, w.Signal(syscall.SIGHUP))
	harness.Until(t, "a warning", func() bool {
		ctx, cancel := context.WithTimeout(w.as("alice"), harness.HangTimeout)
		defer cancel()
		_, err := w.Lock(ctx, &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "o"}, TtlInSeconds: 5})
		must(t, err)
		_, _, body := w.http("", "GET", "/readyz", "")
		return strings.Contains(body, "warning: --audit-log: ")
	})
	if code, took := w.Terminate(); code != 0 {
		t.Errorf("it ended with %d after %v", code, took)
	}
}

// A credential that has expired is refused, and the audit log says which, and why.
func TestAuditOfAnExpiredCredential(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	credential, hash := auth.NewCredential()
	credentials := write(t, "credentials.yaml", "credentials: [{name: ci, hash: \""+hash+"\", expires: 2001-02-03T04:05:06Z}]\n")
	w := &world{t: t, credentials: map[string]string{"ci": credential}, Locket: fixtures.StartLocket(t, harness.Embedded(t), "--auth-credentials", credentials, "--audit-log", file)}
	if code, _, body := w.http("ci", "GET", "/v1/whoami", ""); code != http.StatusUnauthorized || strings.Contains(body, "expired") {
		t.Errorf("%d %s", code, body)
	}
	var lines []line
	harness.Until(t, "a line", func() bool { lines = calls(t, file); return len(lines) == 1 })
	want := "the credential " + hash[7:19] + " of credential:ci expired at 2001-02-03T04:05:06Z"
	if why, _ := lines[0]["why"].(string); !strings.Contains(why, want) {
		t.Errorf("why: %q", why)
	}
}
