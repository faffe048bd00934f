package auth_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// Without rules every authenticated caller may read and hold, and nobody may change another
// identity's claims.
func TestDefault(t *testing.T) {
	w := start(t, "", []string{"alice", "mallory"})
	s := scene{w, "r", "a", "b", ""}
	create := func(user, id string) (*models.Claim, error) {
		return w.CreateClaim(w.as(user), &models.CreateClaimRequest{Id: id, Resource: "r", Owner: "jim", Ttl: proto.Float64(600), UserData: proto.String(`"secret"`)})
	}
	made, err := create("alice", s.holder)
	must(t, err)
	if made.GetIdentity() != "credential:alice" || made.GetUserData() != `"secret"` {
		t.Errorf("made %s", made)
	}
	seen, err := w.GetClaim(w.as("mallory"), &models.GetClaimRequest{Id: "a"})
	must(t, err)
	if seen.GetOwner() != "jim" || seen.GetIdentity() != "credential:alice" || seen.UserData != nil {
		t.Errorf("another identity sees %s", seen)
	}
	for what, call := range map[string]func() error{
		"renew": func() error {
			_, err := w.UpdateClaim(w.as("mallory"), &models.UpdateClaimRequest{Id: "a", Ttl: proto.Float64(1)})
			return err
		},
		"revoke": func() error {
			_, err := w.UpdateClaim(w.as("mallory"), &models.UpdateClaimRequest{Id: "a", Status: models.Status_STATUS_REVOKED})
			return err
		},
		"end": func() error {
			_, err := w.EndClaim(w.as("mallory"), &models.EndClaimRequest{Id: "a"})
			return err
		},
		"release with the owner and the token": func() error {
			_, err := w.Release(w.as("mallory"), &models.ReleaseRequest{Resource: &models.Resource{Key: "r", Owner: "jim"}, Token: proto.Uint64(made.GetToken())})
			return err
		},
		"lock with the owner and the token": func() error {
			_, err := w.Lock(w.as("mallory"), &models.LockRequest{Resource: &models.Resource{Key: "r", Owner: "jim"}, TtlInSeconds: 1, Token: proto.Uint64(made.GetToken())})
			return err
		},
	} {
		err := call()
		info := models.ErrorInfoOf(err)
		if status.Code(err) != codes.PermissionDenied || info.GetReason() != models.ReasonPermissionDenied || info.GetMetadata()["resource"] != "r" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if after, err := w.GetClaim(w.as("alice"), &models.GetClaimRequest{Id: "a"}); err != nil || after.GetVersion() != made.GetVersion() {
		t.Errorf("it was changed: %s, %v", after, err)
	}
	_, err = w.EndClaim(w.as("alice"), &models.EndClaimRequest{Id: "a", Reason: "done"})
	must(t, err)
	ended, err := w.GetClaim(w.as("mallory"), &models.GetClaimRequest{Id: "a"})
	if err != nil || ended.GetEndedBy() != "credential:alice" {
		t.Errorf("%s, %v", ended, err)
	}
}

// A claim that was made before authentication was switched on belongs to every caller that may hold the resource.
func TestClaimsFromBefore(t *testing.T) {
	file, credentials := credentialsFile(t, "alice", "bob")
	server := fixtures.StartLocket(t, harness.Embedded(t))
	old, err := lock.Dial([]string{server.Address()})
	must(t, err)
	defer func() { _ = old.Close() }()
	_, err = models.NewLocketClient(old).Lock(t.Context(), &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "bbs"}, TtlInSeconds: 600})
	must(t, err)
	server.Terminate()
	server.Args = append(server.Args, "--auth-credentials", file)
	must(t, server.Start())
	conn, err := lock.Dial([]string{server.Address()}, conn.WithCredentialFile(write(t, "credential", credentials["alice"]+"\n")))
	must(t, err)
	defer func() { _ = conn.Close() }()
	client := models.NewLocketClient(conn)
	if _, err := client.Lock(t.Context(), &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "bbs"}, TtlInSeconds: 600}); err != nil {
		t.Errorf("renew: %v", err)
	}
	if _, err := client.Release(t.Context(), &models.ReleaseRequest{Resource: &models.Resource{Key: "k", Owner: "bbs"}}); err != nil {
		t.Errorf("release: %v", err)
	}
}

const shelves = `
rules:
  - {group: "credential:people", may: [hold], resource_prefix: ""}
  - {identity: "credential:alice", may: [read], resource_prefix: "a/"}
  - {identity: "credential:alice", may_not: [read], resource_prefix: "a/secret"}
  - {identity: "credential:all", may: [read], resource_prefix: ""}
`

// Lists show claims that the caller may read, and its own; pages and offsets count only these.
func TestLists(t *testing.T) {
	w := start(t, shelves, []string{"all", "alice", "writer"})
	var visible []string
	var created sync.WaitGroup
	room := make(chan struct{}, 20) // the page size
	for i := range 2100 {
		name := fmt.Sprintf("b/%d", i)
		if i%300 == 0 {
			name = fmt.Sprintf("a/%d", i)
			visible = append(visible, name)
		}
		if i == 500 {
			name = "a/secret"
		}
		user := "writer"
		if i == 1000 { // her own
			user = "alice"
			visible = append(visible, name)
		}
		room <- struct{}{}
		created.Go(func() {
			defer func() { <-room }()
			if _, err := w.CreateClaim(w.as(user), &models.CreateClaimRequest{Resource: name, Ttl: proto.Float64(600)}); err != nil {
				t.Error(err)
			}
		})
	}
	created.Wait()
	slices.Sort(visible)
	pages := func(list func(token string) (names []string, next string)) (all []string) {
		for token := ""; ; {
			names, next := list(token)
			all = append(all, names...)
			if len(names) > 3 {
				t.Errorf("a page of %d", len(names))
			}
			if token = next; token == "" {
				slices.Sort(all)
				return all
			}
		}
	}
	got := pages(func(token string) (names []string, next string) {
		list, err := w.ListClaims(w.as("alice"), &models.ListClaimsRequest{Limit: proto.Uint32(3), PageToken: token})
		must(t, err)
		for _, c := range list.GetClaims() {
			names = append(names, c.GetResource())
		}
		return names, list.GetNextPageToken()
	})
	if !slices.Equal(got, visible) {
		t.Errorf("claims %v, want %v", got, visible)
	}
	got = pages(func(token string) (names []string, next string) {
		page, err := w.FetchAll(w.as("alice"), &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK, Limit: proto.Uint32(3), PageToken: token})
		must(t, err)
		for _, r := range page.GetResources() {
			names = append(names, r.GetKey())
		}
		return names, page.GetNextPageToken()
	})
	if !slices.Equal(got, visible) {
		t.Errorf("locks %v, want %v", got, visible)
	}
	list, err := w.ListClaims(w.as("alice"), &models.ListClaimsRequest{Offset: 6, Limit: proto.Uint32(100)})
	if err != nil || len(list.GetClaims()) != len(visible)-6 {
		t.Errorf("after 6: %v, %v", list, err)
	}
	_, _, body := w.http("alice", "GET", "/v1/claims/?limit=1000", "")
	if n := strings.Count(body, `"resource"`); n != len(visible) || strings.Contains(body, "secret") {
		t.Errorf("over REST %d: %s", n, body)
	}
	all, err := w.ListClaims(w.as("all"), &models.ListClaimsRequest{Limit: proto.Uint32(1000)})
	if err != nil || len(all.GetClaims()) != 1000 {
		t.Errorf("who may read all: %d, %v", len(all.GetClaims()), err)
	}
	// A collision reveals the holder, and that holders share the resource, to callers that may read it.
	_, err = w.CreateClaim(w.as("writer"), &models.CreateClaimRequest{Resource: "b/shared", Mode: models.Mode_MODE_SHARED, Ttl: proto.Float64(600)})
	must(t, err)
	for user, want := range map[string]map[string]string{"all": {"mode": "shared"}, "alice": nil} {
		resource := &models.Resource{Key: "b/shared", Owner: user}
		_, locked := w.Lock(w.as(user), &models.LockRequest{Resource: resource, TtlInSeconds: 1})
		_, released := w.Release(w.as(user), &models.ReleaseRequest{Resource: resource})
		_, created := w.CreateClaim(w.as(user), &models.CreateClaimRequest{Resource: "b/shared", NoWait: true, Ttl: proto.Float64(1)})
		for _, err := range []error{locked, released, created} {
			if got := models.ErrorInfoOf(err).GetMetadata(); status.Code(err) != codes.AlreadyExists || !maps.Equal(got, want) {
				t.Errorf("%s learns %v of shared holders (%v)", user, got, err)
			}
		}
	}
	for user, want := range map[string]string{"all": "writer's", "alice": ""} {
		_, _ = w.Lock(w.as("writer"), &models.LockRequest{Resource: &models.Resource{Key: "b/held", Owner: "writer's"}, TtlInSeconds: 600})
		_, err := w.Lock(w.as(user), &models.LockRequest{Resource: &models.Resource{Key: "b/held", Owner: user}, TtlInSeconds: 1})
		if got := models.ErrorInfoOf(err).GetMetadata()["holder"]; status.Code(err) != codes.AlreadyExists || got != want {
			t.Errorf("%s learns of the holder %q (%v)", user, got, err)
		}
	}
}

// Changed rules are loaded; while the file is invalid the last valid rules stay in use, and readiness reports that.
func TestRulesThatChange(t *testing.T) {
	t.Parallel()
	rules := func(right string) string {
		return `rules: [{identity: "credential:alice", may: [` + right + `], resource_prefix: ""}]` + "\n"
	}
	w := startOn(t, harness.OneServer(t), rules("read"), []string{"alice"}) // each server reads the file when its turn comes
	file := w.Args[len(w.Args)-1]
	becomes := func(what string, want bool, is func() bool) {
		t.Helper()
		harness.Until(t, fmt.Sprint(what, want), func() bool { return is() == want })
	}
	may := func() bool {
		code, _, _ := w.http("alice", "POST", "/v1/claims/", `{"resource": "r", "ttl": 60}`)
		return code < 300
	}
	warned := func() bool {
		code, _, body := w.http("", "GET", "/readyz", "")
		return code == http.StatusOK && strings.Contains(body, "warning: --auth-rules: the file is invalid")
	}
	becomes("hold", false, may)
	must(t, os.WriteFile(file, []byte(rules("hold")), 0o600))
	becomes("hold", true, may)
	must(t, os.WriteFile(file, []byte(rules("hold, write")), 0o600))
	becomes("a warning", true, warned)
	if !may() {
		t.Error("the last good rules are not in force")
	}
	logs(t, w, `unknown right \"write\"`)
	must(t, os.Remove(file))
	becomes("a warning", true, warned)
	must(t, os.WriteFile(file, []byte(rules("read")), 0o600))
	becomes("hold", false, may)
	becomes("a warning", false, warned)
}

func TestCredentialsOverREST(t *testing.T) {
	w := start(t, "", []string{"alice"})
	basic := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+w.credentials["alice"]))
	if code, _, body := w.http("", "GET", "/v1/whoami", "", basic); code != 200 || !strings.Contains(body, `"credential:alice"`) {
		t.Errorf("basic: %d %s", code, body)
	}
	for _, query := range []string{"access_token", "ACCESS_TOKEN", "token", "api_key", "authorization"} {
		for _, user := range []string{"", "alice"} { // with a good header too
			code, _, body := w.http(user, "GET", "/v1/claims/?"+query+"="+w.credentials["alice"], "")
			if code != http.StatusBadRequest || strings.Contains(body, w.credentials["alice"]) || !strings.Contains(body, "credentials do not belong into an address") {
				t.Errorf("%s: %d %s", query, code, body)
			}
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/docs": 200, "/openapi.json": 200} {
		if code, _, _ := w.http("", "GET", path, ""); code != want {
			t.Errorf("%s: %d", path, code)
		}
	}
	if strings.Contains(w.Log(), w.credentials["alice"]) {
		t.Error("a credential is in the log")
	}
}

// A proxy's headers, and clients that forge them. The client's header may come before or after
// the proxy's.
func TestSmuggling(t *testing.T) {
	file, credentials := credentialsFile(t, "alice")
	server := fixtures.StartLocket(t, harness.Embedded(t), "--auth-credentials", file, "--auth-proxies", "loopback", "--auth-proxy-groups-header", "X-Remote-Groups")
	url := "http://" + server.HTTPAddress() + "/v1/whoami"
	for _, c := range []struct {
		headers []string
		code    int
		body    string
	}{
		{[]string{"X-Remote-User: bob", "X-Remote-Groups: a,b"}, 200, `{"name":"proxy:bob","groups":["proxy:a","proxy:b"],"authentication":true}`},
		{[]string{"x-remote-user: bob"}, 200, `"proxy:bob"`},
		{[]string{"X-REMOTE-USER: bob"}, 200, `"proxy:bob"`},
		{[]string{"X-Remote-User: bob", "X-Remote-User: root"}, 401, ""},
		{[]string{"X-Remote-User: bob", "x-remote-user: root"}, 401, ""},
		{[]string{"X_Remote_User: root"}, 401, ""},
		{[]string{"X-Remote_User: root"}, 401, ""},
		{[]string{"Remote-User: root"}, 401, ""},
		{[]string{"Grpc-Metadata-X-Remote-User: root"}, 401, ""},
		{[]string{"X-Remote-User: bob", "Grpc-Metadata-X-Remote-User: root"}, 200, `"proxy:bob"`},
		{[]string{"Grpc-Metadata-Authorization: Bearer " + credentials["alice"]}, 401, ""},
		{[]string{"X-Forwarded-User: root"}, 401, ""},
		{[]string{"X-Remote-User: "}, 401, ""},
		{[]string{"X-Remote-User: bob\u00a0"}, 401, ""},
		{[]string{"Connection: X-Remote-User", "X-Remote-User: bob"}, 200, `"proxy:bob"`}, // it is the proxy's to take out
		{[]string{"X-Remote-User: bob", "Authorization: Bearer " + credentials["alice"]}, 200, `"proxy:bob"`},
		{[]string{"Authorization: Bearer " + credentials["alice"]}, 200, `"credential:alice"`},
		{[]string{"Authorization: Bearer " + credentials["alice"], "Authorization: Bearer x"}, 401, ""},
	} {
		code, _, body := request(t, http.DefaultClient, "GET", url, "", c.headers...)
		if code != c.code || !strings.Contains(body, c.body) {
			t.Errorf("%q: %d %s", c.headers, code, body)
		}
	}
	// The header of anybody but the proxy is ignored, also over gRPC.
	w := start(t, "", []string{"alice"})
	if code, _, _ := w.http("", "GET", "/v1/whoami", "", "X-Remote-User: root"); code != 401 {
		t.Errorf("without a proxy: %d", code)
	}
	ctx := metadata.AppendToOutgoingContext(w.as("alice"), "x-remote-user", "root")
	if id, err := w.WhoAmI(ctx, &models.WhoAmIRequest{}); err != nil || id.GetName() != "credential:alice" {
		t.Errorf("over gRPC: %s, %v", id, err)
	}
}

func TestCommandLine(t *testing.T) {
	run := func(args ...string) (stdout, stderr string, status int) {
		cmd := exec.CommandContext(t.Context(), fixtures.LocketProgram(t), args...)
		var out, problems strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &problems
		_ = cmd.Run()
		return out.String(), problems.String(), cmd.ProcessState.ExitCode()
	}
	credentials := write(t, "credentials.yaml", "")
	credential, _, code := run("credential", "new", "ci", "--groups", "builders", "--file", credentials)
	other, _, _ := run("credential", "new", "other", "--file", credentials)
	if code != 0 || !strings.HasPrefix(credential, "locket_") || credential == other {
		t.Fatalf("%d %s", code, credential)
	}
	if text, err := os.ReadFile(credentials); err != nil || strings.Contains(string(text), strings.TrimSpace(credential)) {
		t.Errorf("the credentials file: %s, %v", text, err)
	}
	rules := write(t, "rules.yaml", `
rules:
  - {group: "credential:builders", may: [hold, read], resource_prefix: "deploy/"}
examples:
  - {identity: "credential:ci", groups: ["credential:builders"], may: [hold], resource: "deploy/prod"}
  - {identity: "credential:ci", groups: ["credential:builders"], may_not: [hold], resource: "prod"}
`)
	if out, problems, code := run("rules", "check", rules); code != 0 || !strings.Contains(out, "1 rules, 2 examples: good") {
		t.Errorf("%d %s %s", code, out, problems)
	}
	wrong := write(t, "wrong.yaml", "rules: []\nexamples: [{identity: a, may: [hold], resource: x}]\n")
	if _, problems, code := run("rules", "check", wrong); code != 1 || !strings.Contains(problems, "no rule says anything") {
		t.Errorf("%d %s", code, problems)
	}
	server := fixtures.StartLocket(t, harness.Embedded(t), "--auth-credentials", credentials, "--auth-rules", rules)
	with := func(args ...string) []string {
		return append(args, "--address", server.Address(), "--credential-file", write(t, "credential", credential))
	}
	for _, c := range []struct {
		args []string
		code int
		out  string
	}{
		{with("whoami"), 0, "credential:ci"},
		{with("whoami", "-o", "name"), 0, "credential:ci\n"},
		{with("can-i", "hold", "deploy/prod"), 0, "yes, by line 3 of the rules"},
		{with("can-i", "revoke", "deploy/prod"), 6, "no"},
		{with("can-i", "write", "deploy/prod"), 2, ""},
		{with("lock", "deploy/prod", "--owner", "me"), 0, ""},
		{with("lock", "prod", "--owner", "me"), 6, ""},
		{with("get", "none"), 4, ""},
		{[]string{"whoami", "--address", server.Address()}, 6, ""},
	} {
		if out, problems, code := run(c.args...); code != c.code || !strings.Contains(out, c.out) {
			t.Errorf("%v: %d %s %s", c.args[:2], code, out, problems)
		}
	}
	for _, args := range [][]string{{"elect", "prod"}, {"elect", "prod", "--observe"}} {
		if _, problems, code := run(with(args...)...); code != 6 || !strings.Contains(problems, "locket: no rule allows credential:ci to ") {
			t.Errorf("%v: %d %s", args, code, problems)
		}
	}
}

// The command line does not mention a holder that the server does not name.
func TestHiddenHolderAtTheCommandLine(t *testing.T) {
	t.Parallel()
	w := start(t, `
rules:
  - {everybody: true, may: [hold], resource_prefix: ""}
`, []string{"a", "b"})
	run := func(caller string, args ...string) (problems string, code int) {
		args = append(args, "--address", w.Address(), "--credential-file", write(t, "credential", w.credentials[caller]))
		_, problems, code = harness.RunLocket(t, nil, args...)
		return problems, code
	}
	if problems, code := run("a", "lock", "secret", "--owner", "a", "--ttl", "5m"); code != 0 {
		t.Fatal(problems)
	}
	for _, args := range [][]string{{"lock", "secret", "--owner", "b"}, {"claim", "secret", "--no-wait"}, {"release", "secret", "--owner", "b"}} {
		if problems, code := run("b", args...); code != 3 || !strings.Contains(problems, `"secret" is held by others; to see`) {
			t.Errorf("%v: %d %s", args, code, problems)
		}
	}
}
