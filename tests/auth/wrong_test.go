package auth_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
	"github.com/locket-service/locket/tests/harness"
)

const guardedRules = `
rules:
  - {identity: "credential:root", may: [all], resource_prefix: ""}
  - {identity: "oidc:root", may: [all], resource_prefix: ""}
  - {identity: "cert:root", may: [all], resource_prefix: ""}
  - {identity: "proxy:root", may: [all], resource_prefix: ""}
  - {identity: "spiffe://own.example/root", may: [all], resource_prefix: ""}
  - {group: "cert:ops", may: [all], resource_prefix: ""}
  - {identity: "credential:owner", may: [read, hold], resource_prefix: ""}
  - {identity: "credential:elsewhere", may: [all], resource_prefix: "other/"}
`

// guarded is a server with all ways of authentication.
type guarded struct {
	*fixtures.Locket
	ca, own, partner *fixtures.CA // the authorities of clients, and of two trust domains
	issuer           *issuer
	credentials      map[string]string
	hash             string // of a credential
	revoked          *tls.Certificate
	audit            string

	mu      sync.Mutex
	refused map[string]int // lines that the audit log must have about refusals, by identity
}

func startGuarded(t *testing.T) *guarded {
	t.Helper()
	w := &guarded{
		ca: fixtures.NewCA(t), own: fixtures.NewCA(t), partner: fixtures.NewCA(t), issuer: newIssuer(t),
		audit: filepath.Join(t.TempDir(), "audit.log"), refused: make(map[string]int),
	}
	credential, hash := auth.NewCredential()
	entries := "credentials:\n  - {name: root, hash: \"" + hash + "\", expires: 2001-02-03T04:05:06Z}\n"
	w.credentials, w.hash = map[string]string{"expired": credential}, hash
	for _, name := range []string{"root", "owner", "nobody", "elsewhere"} {
		credential, hash := auth.NewCredential()
		w.credentials[name] = credential
		entries += fmt.Sprintf("  - {name: %s, hash: %q}\n", name, hash)
	}
	credential, hash = auth.NewCredential()
	w.credentials["withdrawn"] = credential
	file := write(t, "credentials.yaml", entries+fmt.Sprintf("  - {name: root, hash: %q}\n", hash))
	certFile, keyFile := w.ca.Issue(t, "root")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	must(t, err)
	w.revoked = &pair
	crl := filepath.Join(t.TempDir(), "crl")
	w.ca.Revoke(t, crl, certFile)
	w.Locket = harness.StartSecure(t, w.ca, "--tls-client-ca", w.ca.File, "--tls-crl", crl, "--spiffe-bundles", "own.example="+w.own.File+",partner.example="+w.partner.File,
		"--auth-credentials", file, "--auth-proxies", "cert:proxy", "--auth-proxy-groups-header", "X-Remote-Groups",
		"--oidc-issuers", issuerURL, "--oidc-audience", audience, "--oidc-groups-claim", "groups", "--oidc-keys", write(t, "keys.json", w.issuer.keys()),
		"--oidc-console-client-id", "console", "--auth-rules", write(t, "rules.yaml", guardedRules), "--audit-log", w.audit)
	must(t, os.WriteFile(file, []byte(entries), 0o600))
	harness.Until(t, "the credential is withdrawn", func() bool {
		code, _, _ := request(t, w.client(nil), http.MethodGet, w.base()+"/v1/whoami", "", "Authorization: Bearer "+w.credentials["withdrawn"])
		if code == http.StatusUnauthorized {
			w.refused[""]++
		}
		return code == http.StatusUnauthorized
	})
	return w
}

func (w *guarded) base() string { return "https://" + w.HTTPAddress() }

func (w *guarded) tls(cert *tls.Certificate) *tls.Config {
	config := &tls.Config{RootCAs: w.ca.Pool(), MinVersion: tls.VersionTLS12}
	if cert != nil { // also one that the server does not accept
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return config
}

func (w *guarded) client(cert *tls.Certificate) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: w.tls(cert)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// as returns a context with a credential of the file.
func (w *guarded) as(ctx context.Context, name string) context.Context {
	return metadata.NewOutgoingContext(ctx, metadataOf(bearer(w.credentials[name])))
}

// prepare makes a target of the owner, whose session stays open until the test ends.
func (w *guarded) prepare(t *testing.T, conn grpc.ClientConnInterface, name string) target {
	t.Helper()
	about := target{name: name, resource: "resource-" + name, holder: "holder-" + name, waiter: "waiter-" + name, session: "session-0123456789-" + name}
	client := models.NewLocketClient(conn)
	for _, id := range []string{about.holder, about.waiter} {
		_, err := client.CreateClaim(w.as(t.Context(), "owner"), &models.CreateClaimRequest{
			Id: id, Resource: about.resource, Owner: "jim", Ttl: proto.Float64(600), UserData: proto.String(`"secret"`),
		})
		must(t, err)
	}
	stream, err := client.Session(w.as(t.Context(), "owner"))
	must(t, err)
	must(t, stream.Send(&models.SessionRequest{Sequence: 1, Command: &models.SessionRequest_Open{Open: &models.OpenSession{
		Id: about.session, Secret: "0123456789abcdef", Owner: "jim", Ttl: 600,
	}}}))
	_, err = stream.Recv()
	must(t, err)
	return about
}

// state returns the server's claims and sessions, as text.
func (w *guarded) state(t *testing.T, conn grpc.ClientConnInterface) string {
	t.Helper()
	ctx, client, text := w.as(t.Context(), "root"), models.NewLocketClient(conn), ""
	claims, err := client.ListClaims(ctx, &models.ListClaimsRequest{Limit: proto.Uint32(1000)})
	must(t, err)
	for _, c := range claims.GetClaims() {
		text += fmt.Sprintln(c.GetId(), c.GetStatus(), c.GetVersion())
	}
	sessions, err := client.ListSessions(ctx, &models.ListSessionsRequest{Limit: proto.Uint32(1000)})
	must(t, err)
	for _, s := range sessions.GetSessions() {
		if strings.HasPrefix(s.GetId(), "opened-") {
			continue // a caller with rights on other names
		}
		text += fmt.Sprintln(s.GetId(), s.GetServer(), s.GetHolding(), s.GetWaiting())
	}
	return text
}

// everyCall makes every call with a credential, over gRPC and REST, and has each outcome checked.
type everyCall struct {
	w      *guarded
	rpcs   []rpc
	routes []route
	made   int
}

func (c *everyCall) with(t *testing.T, a attempt, about target, byRPC func(rpc, string, error), byRoute func(route, int, http.Header, string, error)) {
	t.Helper()
	client := c.w.client(a.cert)
	defer client.CloseIdleConnections()
	for _, route := range c.routes {
		code, header, body, err := route.do(t.Context(), client, c.w.base(), about, a.headers)
		byRoute(route, code, header, body, err)
		c.made++
	}
	if a.overREST {
		return
	}
	conn := dialTLS(t, c.w.Address(), c.w.tls(a.cert))
	defer func() { _ = conn.Close() }()
	for _, rpc := range c.rpcs {
		answer, err := rpc.do(metadata.NewOutgoingContext(t.Context(), metadataOf(a.headers)), conn, rpc.message(t, about))
		byRPC(rpc, answer, err)
		c.made++
	}
}

func (w *guarded) expectLine(identity string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused[identity]++
}

// recorded waits until the audit log has a line for each refusal, or counts it.
func (w *guarded) recorded(t *testing.T) {
	t.Helper()
	got := make(map[string]int)
	defer func() {
		if t.Failed() {
			for identity := range w.refused {
				t.Logf("the audit log has %d refusals of %q, want %d", got[identity], identity, w.refused[identity])
			}
		}
	}()
	harness.Until(t, "each refusal in the audit log", func() bool {
		clear(got)
		for _, l := range audited(t, w.audit) {
			identity, _ := l["identity"].(string)
			switch n, _ := l["refusals"].(float64); {
			case l["msg"] == "left out":
				got[identity] += int(n)
			case l["outcome"] == codes.Unauthenticated.String() || l["outcome"] == codes.PermissionDenied.String():
				got[identity]++
			}
		}
		return maps.Equal(got, w.refused)
	})
}

// TestWrongCredentials makes every call that a server has with every kind of wrong credential. The calls come from the
// services that the server lists and from its OpenAPI document, so a new one is among them; what a caller without rights
// gets follows from the table of methods. Each credential would be an administrator's, except for its fault, and for an
// administrator the same calls succeed.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	w := startGuarded(t)
	conn := dialTLS(t, w.Address(), w.tls(nil))
	c := &everyCall{w: w, rpcs: rpcs(t, conn, func(ctx context.Context) context.Context { return w.as(ctx, "root") })}
	c.routes = append(routes(t, w.client(nil), w.base()), route{id: "metrics", method: http.MethodGet, path: "/metrics"})
	for _, name := range methods.Names() {
		if !slices.ContainsFunc(c.rpcs, func(r rpc) bool { return r.name() == "/models.Locket/"+name }) {
			t.Errorf("the server does not list %s", name)
		}
	}
	for _, r := range c.routes {
		if r.rpc == "" && r.id != "metrics" {
			t.Errorf("no RPC is known of %s", r)
		}
	}
	about := w.prepare(t, conn, "0")
	before := w.state(t, conn)
	kinds := 0
	for _, a := range w.wrong(t) {
		kinds++
		w.unauthenticated(t, c, a, about)
	}
	for what, cert := range w.refusedCertificates(t) {
		kinds++
		w.noConnection(t, c, attempt{what: "a certificate " + what, cert: cert}, about)
	}
	for _, a := range w.powerless(t) {
		kinds++
		w.mayNothing(t, c, a, about, false)
	}
	w.mayNothing(t, c, attempt{what: "rights on other names", headers: bearer(w.credentials["elsewhere"])}, about, true)
	if after := w.state(t, conn); after != before {
		t.Errorf("something was changed:\n%sbefore it was\n%s", after, before)
	}
	w.recorded(t)
	t.Logf("%d calls with %d kinds of wrong credentials; %d RPCs, %d routes", c.made, kinds+1, len(c.rpcs), len(c.routes))
	for i, a := range w.powerful(t) {
		w.mayAll(t, c, conn, a, fmt.Sprint(i+1))
	}
}

// unauthenticated checks that an attempt is refused everywhere, and learns only what is accepted.
func (w *guarded) unauthenticated(t *testing.T, c *everyCall, a attempt, about target) {
	t.Helper()
	c.with(t, a, about, func(r rpc, answer string, err error) {
		w.expectLine("")
		if reasonOf(err) != "Unauthenticated "+models.ReasonUnauthenticated || answer != "" || !strings.Contains(err.Error(), "accepted is a bearer credential of "+issuerURL) {
			t.Errorf("%s with %s: %v %s", r.name(), a.what, err, answer)
		}
	}, func(r route, code int, header http.Header, body string, err error) {
		w.expectLine("")
		challenges := strings.Join(header.Values("Www-Authenticate"), ", ")
		if err != nil || code != http.StatusUnauthorized || !strings.Contains(challenges, "Bearer") || !strings.Contains(challenges, "Certificate") || reveals(body, about) {
			t.Errorf("%s with %s: %d %s %s, %v", r, a.what, code, challenges, body, err)
		}
	})
}

// noConnection checks that no call is answered.
func (w *guarded) noConnection(t *testing.T, c *everyCall, a attempt, about target) {
	t.Helper()
	c.with(t, a, about, func(r rpc, answer string, err error) {
		if status.Code(err) != codes.Unavailable || models.ReasonOf(err) != "" || answer != "" {
			t.Errorf("%s with %s: %v %s", r.name(), a.what, err, answer)
		}
	}, func(r route, code int, _ http.Header, body string, err error) {
		if err == nil {
			t.Errorf("%s with %s: %d %s", r, a.what, code, body)
		}
	})
}

// mayNothing checks by the table of methods that an authenticated caller without rights gets nothing. A caller with
// rights on other names gets streams that stay empty.
func (w *guarded) mayNothing(t *testing.T, c *everyCall, a attempt, about target, elsewhere bool) {
	t.Helper()
	identity := w.identityOf(t, a)
	c.with(t, a, about, func(r rpc, answer string, err error) {
		if status.Code(err) == codes.PermissionDenied {
			w.expectLine(identity)
		}
		if want := outcomesOf(r.name(), r.streams(), elsewhere); !slices.Contains(want, reasonOf(err)) || err == nil && reveals(answer, about) {
			t.Errorf("%s with %s: %v %s, want one of %q", r.name(), a.what, err, answer, want)
		}
	}, func(r route, code int, _ http.Header, body string, err error) {
		if code == http.StatusForbidden {
			w.expectLine(identity)
		}
		want := make(map[int]bool)
		for _, outcome := range outcomesOf(r.rpc, r.rpc == models.Locket_Watch_FullMethodName, elsewhere) {
			name, _, _ := strings.Cut(outcome, " ")
			want[map[string]int{"OK": http.StatusOK, "NotFound": http.StatusNotFound, "PermissionDenied": http.StatusForbidden}[name]] = true
		}
		if err != nil || !want[code] || code < 300 && reveals(body, about) {
			t.Errorf("%s with %s: %d %s, %v; want one of %v", r, a.what, code, body, err, want)
		}
	})
}

// identityOf returns the identity of an attempt.
func (w *guarded) identityOf(t *testing.T, a attempt) string {
	t.Helper()
	conn := dialTLS(t, w.Address(), w.tls(a.cert))
	defer func() { _ = conn.Close() }()
	id, err := models.NewLocketClient(conn).WhoAmI(metadata.NewOutgoingContext(t.Context(), metadataOf(a.headers)), &models.WhoAmIRequest{})
	must(t, err)
	return id.GetName()
}

// outcomesOf returns how a method, "" for the page of the metrics, may end for a caller that has no rights on the
// target.
func outcomesOf(name string, streams, elsewhere bool) []string {
	denied, hidden, nothing := "PermissionDenied "+models.ReasonPermissionDenied, []string{"NotFound " + models.ReasonClaimNotFound, "NotFound " + models.ReasonSessionEnded}, []string{"OK"}
	method, known := methods.Of(name)
	switch {
	case streams && !elsewhere, name == "":
		return []string{denied}
	case method.Access == methods.Everything, method.Access == methods.ByName && method.Lasts != methods.Session, len(method.Rights) > 0 && method.Lasts != methods.Session:
		return []string{denied}
	case method.Access == methods.ByClaim:
		return hidden
	case method.Access == methods.Filtered && !streams:
		return append(nothing, hidden...)
	case !known, method.Access == methods.Anybody, streams:
		return nothing
	}
	return nil
}

// reveals reports whether a text has something of a target.
func reveals(text string, about target) bool {
	return slices.ContainsFunc([]string{about.resource, about.holder, about.waiter, about.session, "jim", "secret"}, func(s string) bool { return strings.Contains(text, s) })
}

// mayAll checks that an administrator's calls succeed, so the refused calls of the others were valid ones.
func (w *guarded) mayAll(t *testing.T, c *everyCall, conn grpc.ClientConnInterface, a attempt, name string) {
	t.Helper()
	all := *c
	for i, r := range c.routes {
		all.rpcs, all.routes = nil, []route{r}
		all.with(t, a, w.prepare(t, conn, fmt.Sprintf("%s-route-%d", name, i)), nil, func(r route, code int, _ http.Header, body string, err error) {
			if err != nil || code >= 300 && (code != http.StatusNotFound || !strings.Contains(r.path, "/presences/")) { // there is none
				t.Errorf("%s with %s: %d %s, %v", r, a.what, code, body, err)
			}
		})
	}
	for i, r := range c.rpcs {
		all.rpcs, all.routes = []rpc{r}, nil
		all.with(t, a, w.prepare(t, conn, fmt.Sprintf("%s-rpc-%d", name, i)), func(r rpc, _ string, err error) {
			if err != nil {
				t.Errorf("%s with %s: %v", r.name(), a.what, err)
			}
		}, nil)
	}
}
