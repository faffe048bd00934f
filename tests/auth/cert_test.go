package auth_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// spiffe gives a certificate a SPIFFE id.
func spiffe(t *testing.T, id string) fixtures.CertOption {
	u, err := url.Parse(id)
	must(t, err)
	return func(c *x509.Certificate) { c.URIs = []*url.URL{u} }
}

// dial connects with a certificate of a name, "" for none.
func dial(t *testing.T, ca *fixtures.CA, server *fixtures.Locket, name string, options ...fixtures.CertOption) models.LocketClient {
	t.Helper()
	return dialAs(t, ca, ca, server, name, options...)
}

// dialAs is dial with a certificate of another authority than the server's.
func dialAs(t *testing.T, ca, by *fixtures.CA, server *fixtures.Locket, name string, options ...fixtures.CertOption) models.LocketClient {
	t.Helper()
	files := conn.Files{CA: ca.File}
	if name != "" {
		files.Cert, files.Key = by.Issue(t, name, options...)
	}
	conn, err := lock.Dial([]string{server.Address()}, conn.WithTLSFiles(files))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return models.NewLocketClient(conn)
}

// Cloud Foundry's clients, with certificates and without rules: each locks, renews, fetches and releases
// its own locks, also from a second process with the same certificate.
func TestCertificates(t *testing.T) {
	ca := fixtures.NewCA(t)
	server := harness.StartSecure(t, ca, "--tls-client-ca", ca.File)
	bbs, again, auctioneer := dial(t, ca, server, "bbs"), dial(t, ca, server, "bbs"), dial(t, ca, server, "auctioneer")
	resource := &models.Resource{Key: "bbs", Owner: "guid-1", Value: "https://bbs", Type: "lock"}
	for _, client := range []models.LocketClient{bbs, bbs, again} {
		_, err := client.Lock(t.Context(), &models.LockRequest{Resource: resource, TtlInSeconds: 600})
		must(t, err)
	}
	other := proto.Clone(resource).(*models.Resource)
	other.Owner = "guid-2"
	_, err := again.Lock(t.Context(), &models.LockRequest{Resource: other, TtlInSeconds: 600})
	if status.Code(err) != codes.AlreadyExists {
		t.Errorf("another owner: %v", err)
	}
	for _, client := range []models.LocketClient{bbs, auctioneer} {
		found, err := client.Fetch(t.Context(), &models.FetchRequest{Key: "bbs"})
		if err != nil || found.GetResource().GetOwner() != "guid-1" {
			t.Errorf("fetch: %s, %v", found, err)
		}
		all, err := client.FetchAll(t.Context(), &models.FetchAllRequest{Type: "lock"})
		if err != nil || len(all.GetResources()) != 1 {
			t.Errorf("fetch all: %s, %v", all, err)
		}
	}
	if _, err := auctioneer.Release(t.Context(), &models.ReleaseRequest{Resource: resource}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another identity releases: %v", err)
	}
	if _, err := again.Release(t.Context(), &models.ReleaseRequest{Resource: resource}); err != nil {
		t.Errorf("release: %v", err)
	}
	spiffeClient := dial(t, ca, server, "ignored", spiffe(t, "spiffe://example.org/batch/1"))
	if id, err := spiffeClient.WhoAmI(t.Context(), &models.WhoAmIRequest{}); err != nil || id.GetName() != "spiffe://example.org/batch/1" {
		t.Errorf("%s, %v", id, err)
	}
	if id, err := auctioneer.WhoAmI(t.Context(), &models.WhoAmIRequest{}); err != nil || id.GetName() != "cert:auctioneer" {
		t.Errorf("%s, %v", id, err)
	}
	claims, err := bbs.ListClaims(t.Context(), &models.ListClaimsRequest{})
	if err != nil || claims.GetClaims()[0].GetIdentity() != "cert:bbs" || claims.GetClaims()[0].GetEndedBy() != "cert:bbs" {
		t.Errorf("%s, %v", claims, err)
	}
}

// httpsClient returns a client with a certificate of a name, "" for none.
func httpsClient(t *testing.T, ca *fixtures.CA, name string) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(ca.Issue(t, name))
		must(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
}

func TestCertificatesBesideCredentials(t *testing.T) {
	ca := fixtures.NewCA(t)
	file, credentials := credentialsFile(t, "alice")
	server := harness.StartSecure(t, ca, "--tls-client-ca", ca.File, "--auth-credentials", file, "--auth-proxies", "cert:proxy")
	whoami := "https://" + server.HTTPAddress() + "/v1/whoami"
	bearer := "Authorization: Bearer " + credentials["alice"]
	for _, c := range []struct {
		cert    string
		headers []string
		code    int
		want    string
	}{
		{"", nil, 401, "a credential of the server's credentials file, or a client certificate"},
		{"", []string{bearer}, 200, `"credential:alice"`},
		{"bbs", nil, 200, `"cert:bbs"`},
		{"bbs", []string{bearer}, 200, `"credential:alice"`},
		{"bbs", []string{"X-Remote-User: root"}, 200, `"cert:bbs"`},
		{"proxy", []string{"X-Remote-User: bob"}, 200, `"proxy:bob"`},
		{"proxy", nil, 401, ""},
		{"proxy", []string{bearer}, 200, `"credential:alice"`},
	} {
		code, _, body := request(t, httpsClient(t, ca, c.cert), "GET", whoami, "", c.headers...)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("certificate %q, %q: %d %s", c.cert, c.headers, code, body)
		}
	}
	stranger := fixtures.NewCA(t) // the server does not trust it
	client := httpsClient(t, stranger, "bbs")
	client.Transport.(*http.Transport).TLSClientConfig.RootCAs = ca.Pool()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, whoami, nil)
	must(t, err)
	if response, err := client.Do(req); err == nil {
		_ = response.Body.Close()
		t.Errorf("a certificate of a stranger: %d", response.StatusCode)
	}
	anonymous := harness.StartSecure(t, ca, "--tls-client-ca", ca.File, "--http-anonymous")
	url := "https://" + anonymous.HTTPAddress()
	if code, _, body := request(t, httpsClient(t, ca, ""), "GET", url+"/v1/whoami", ""); code != 200 || !strings.Contains(body, `"anonymous"`) {
		t.Errorf("anonymous: %d %s", code, body)
	}
	code, _, body := request(t, httpsClient(t, ca, "bbs"), "POST", url+"/v1/claims", `{"id": "c", "resource": "r", "ttl": 60}`)
	if code != 201 {
		t.Errorf("%d %s", code, body)
	}
	if code, _, body := request(t, httpsClient(t, ca, ""), "DELETE", url+"/v1/claims/c", ""); code != 404 {
		t.Errorf("nobody ends a claim of cert:bbs: %d %s", code, body)
	}
}

// TLS without client certificates, with credentials: the client's credential file is read for every call.
func TestCredentialFileOfAClient(t *testing.T) {
	ca := fixtures.NewCA(t)
	file, credentials := credentialsFile(t, "alice", "bob")
	server := fixtures.NewLocket(t, harness.Embedded(t), "--auth-credentials", file)
	cert, key := ca.Issue(t, "server")
	server.Args = append(server.Args, "--tls-cert", cert, "--tls-key", key)
	server.ClientTLS = &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	must(t, server.Start())
	credential := filepath.Join(t.TempDir(), "credential")
	must(t, os.WriteFile(credential, []byte(credentials["alice"]+"\n"), 0o600))
	caller, err := lock.Dial([]string{server.Address()}, conn.WithTLSFiles(conn.Files{CA: ca.File}), conn.WithCredentialFile(credential))
	must(t, err)
	defer func() { _ = caller.Close() }()
	client := models.NewLocketClient(caller)
	is := func(want string) {
		t.Helper()
		if id, err := client.WhoAmI(t.Context(), &models.WhoAmIRequest{}); err != nil || id.GetName() != want {
			t.Errorf("%s, %v; want %s", id, err, want)
		}
	}
	is("credential:alice")
	must(t, os.WriteFile(credential, []byte(credentials["bob"]), 0o600))
	is("credential:bob")
	must(t, os.WriteFile(credential, nil, 0o600)) // while it is being replaced
	is("credential:bob")
	hang(t, credential)
	is("credential:bob")
	must(t, os.Remove(credential))
	is("credential:bob")
	if _, err := lock.Dial([]string{server.Address()}, conn.WithCredentialFile(credential)); err == nil || !strings.Contains(err.Error(), credential) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := lock.Dial([]string{"example.com:1"}, conn.WithCredentialFile(file)); err == nil {
		t.Error("a credential in plain text to another machine")
	}
}

// The authority of a partner's trust domain cannot place its members in the groups of other certificates.
func TestGroupsOfTrustDomains(t *testing.T) {
	ca, own, partner := fixtures.NewCA(t), fixtures.NewCA(t), fixtures.NewCA(t)
	rules := write(t, "rules.yaml", `
rules:
  - {group: "cert:ops", may: [hold], resource_prefix: ""}
  - {group: "spiffe://own.example/ops", may: [hold], resource_prefix: ""}
  - {group: "spiffe://partner.example/ops", may: [hold], resource_prefix: "partner/"}
`)
	server := harness.StartSecure(t, ca, "--tls-client-ca", ca.File, "--auth-rules", rules,
		"--spiffe-bundles", "own.example="+own.File+",partner.example="+partner.File)
	for _, c := range []struct {
		by               *fixtures.CA
		id, organisation string
		may, mayBelow    bool
	}{
		{ca, "", "ops", true, true},
		{own, "spiffe://own.example/a", "ops", true, true},
		{partner, "spiffe://partner.example/a", "ops", false, true},
		{partner, "spiffe://partner.example/a", "cert:ops", false, false},
		{partner, "spiffe://partner.example/a", "spiffe://own.example/ops", false, false},
	} {
		client := dialAs(t, ca, c.by, server, "member", func(cert *x509.Certificate) {
			cert.Subject.Organization = []string{c.organisation}
			if c.id != "" {
				spiffe(t, c.id)(cert)
			}
		})
		for resource, want := range map[string]bool{"own": c.may, "partner/own": c.mayBelow} {
			answer, err := client.CanI(t.Context(), &models.CanIRequest{Right: models.Right_RIGHT_HOLD, Resource: resource})
			if err != nil || answer.GetAllowed() != want {
				t.Errorf("%q with O=%s on %s: %v, %v", c.id, c.organisation, resource, answer, err)
			}
		}
	}
}
