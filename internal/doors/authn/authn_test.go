package authn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/doors/authn"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/tests/harness"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call has the credentials of a call.
type call struct {
	address string // "" for the address of another machine
	cert    string // common name, "" for none
	headers []string
}

func (c call) context(ctx context.Context) context.Context {
	p := &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP("10.1.2.3"), Port: 1}}
	if c.address != "" {
		p.Addr = &net.TCPAddr{IP: net.ParseIP(c.address), Port: 1}
	}
	if c.cert != "" {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: c.cert}}
		p.AuthInfo = credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}}
	}
	return metadata.NewIncomingContext(peer.NewContext(ctx, p), metadata.Pairs(c.headers...))
}

func newAuthenticator(t testing.TB, c authn.Config) *authn.Authenticator {
	t.Helper()
	a, _ := followAuthenticator(t, c)
	return a
}

// followAuthenticator also returns the set of files, which is checked once a second.
func followAuthenticator(t testing.TB, c authn.Config) (*authn.Authenticator, *follow.Set) {
	t.Helper()
	files := follow.NewSet(slog.New(slog.DiscardHandler))
	a, err := authn.New(c, files, slog.New(slog.DiscardHandler))
	must(t, err)
	followed := ifrit.Invoke(periodic.New(follow.Interval, files.Look))
	t.Cleanup(func() {
		followed.Signal(os.Interrupt)
		<-followed.Wait()
	})
	return a, files
}

// outcome is the name with the groups, if there are any, or the error.
func outcome(id access.Identity, err error) string {
	switch {
	case errors.Is(err, authn.ErrNoCredentials):
		return "none"
	case errors.Is(err, authn.ErrRefused):
		return "refused"
	case errors.Is(err, authn.ErrUnavailable):
		return "unavailable"
	case err != nil:
		return err.Error()
	}
	return strings.Join(append([]string{id.Name}, id.Groups...), " ")
}

func TestWays(t *testing.T) {
	credential, hash := auth.NewCredential()
	file := filepath.Join(t.TempDir(), "credentials")
	must(t, os.WriteFile(file, []byte("credentials:\n  - {name: ci, hash: \""+hash+"\"}\n"), 0o600))
	proxy := authn.Proxy{Identities: []string{"cert:proxy"}, GroupsHeader: "X-Remote-Groups"}
	all := newAuthenticator(t, authn.Config{Certificates: true, CredentialFile: file, Proxy: proxy})
	loopback := newAuthenticator(t, authn.Config{CredentialFile: file, Proxy: authn.Proxy{Loopback: true, UserHeader: "X-User"}})
	anonymous := newAuthenticator(t, authn.Config{Certificates: true, Anonymous: true})
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	for _, c := range []struct {
		what string
		with *authn.Authenticator
		call call
		want string
	}{
		{"nothing", all, call{}, "none"},
		{"a certificate", all, call{cert: "bbs"}, "cert:bbs"},
		{"a credential", all, call{headers: []string{"authorization", "Bearer " + credential}}, "credential:ci"},
		{"the scheme in other letters", all, call{headers: []string{"authorization", "bEARER  " + credential}}, "credential:ci"},
		{"a credential before a certificate", all, call{cert: "bbs", headers: []string{"authorization", "Bearer " + credential}}, "credential:ci"},
		{"a wrong credential and a certificate", all, call{cert: "bbs", headers: []string{"authorization", "Bearer wrong"}}, "refused"},
		{"basic", all, call{headers: []string{"authorization", basic("whoever:" + credential)}}, "credential:ci"},
		{"basic without a user", all, call{headers: []string{"authorization", basic(":" + credential)}}, "credential:ci"},
		{"basic without a colon", all, call{headers: []string{"authorization", basic(credential)}}, "refused"},
		{"basic that is none", all, call{headers: []string{"authorization", "Basic !"}}, "refused"},
		{"another scheme", all, call{cert: "bbs", headers: []string{"authorization", "Negotiate x"}}, "refused"},
		{"an empty one", all, call{cert: "bbs", headers: []string{"authorization", ""}}, "refused"},
		{"two credentials", all, call{headers: []string{"authorization", "Bearer " + credential, "authorization", "Bearer " + credential}}, "refused"},
		{"a huge credential", all, call{headers: []string{"authorization", "Bearer " + strings.Repeat("x", 20<<10)}}, "refused"},

		{"a user of the proxy", all, call{cert: "proxy", headers: []string{"x-remote-user", "alice", "x-remote-groups", "dev; ops,"}}, "proxy:alice proxy:dev proxy:ops"},
		{"blanks between separators", all, call{cert: "proxy", headers: []string{"x-remote-user", "alice", "x-remote-groups", " ; dev, ,ops, "}}, "proxy:alice proxy:dev proxy:ops"},
		{"the header of anybody else", all, call{cert: "bbs", headers: []string{"x-remote-user", "alice"}}, "cert:bbs"},
		{"the header without a certificate", all, call{headers: []string{"x-remote-user", "alice"}}, "none"},
		{"separators within the names of groups", all, call{cert: "proxy", headers: []string{"x-remote-user", "alice", "x-remote-groups", `dev\;ops;cn=a\,b, c\d`}}, `proxy:alice proxy:dev;ops proxy:cn=a,b proxy:c\d`},
		{"the header of loopback, which is not the proxy", all, call{address: "127.0.0.1", headers: []string{"x-remote-user", "alice"}}, "none"},
		{"the proxy itself", all, call{cert: "proxy"}, "none"},
		{"hop by hop: the proxy's header was taken out", all, call{cert: "proxy", headers: []string{"x-remote-groups", "ops"}}, "none"},
		{"the header is empty", all, call{cert: "proxy", headers: []string{"x-remote-user", ""}}, "none"},
		{"what Apache writes for nobody", all, call{cert: "proxy", headers: []string{"x-remote-user", "(null)"}}, "none"},
		{"repeated", all, call{cert: "proxy", headers: []string{"x-remote-user", "root", "x-remote-user", "alice"}}, "refused"},
		{"repeated groups", all, call{cert: "proxy", headers: []string{"x-remote-user", "alice", "x-remote-groups", "a", "x-remote-groups", "b"}}, "refused"},
		{"underscores", all, call{cert: "proxy", headers: []string{"x_remote_user", "root"}}, "none"},
		{"control characters", all, call{cert: "proxy", headers: []string{"x-remote-user", "a\tb"}}, "refused"},
		{"a credential by way of the proxy", all, call{cert: "proxy", headers: []string{"authorization", "Bearer " + credential}}, "credential:ci"},
		{"the user of the proxy and a credential of the client", all, call{cert: "proxy", headers: []string{"x-remote-user", "alice", "authorization", "Basic x"}}, "proxy:alice"},

		{"a proxy on loopback", loopback, call{address: "127.0.0.1", headers: []string{"x-user", "alice"}}, "proxy:alice"},
		{"a proxy on loopback, IPv6", loopback, call{address: "::1", headers: []string{"x-user", "alice"}}, "proxy:alice"},
		{"the default header, where another is configured", loopback, call{address: "127.0.0.1", headers: []string{"x-remote-user", "alice"}}, "none"},
		{"from another machine", loopback, call{headers: []string{"x-user", "alice", "x-forwarded-for", "127.0.0.1"}}, "none"},

		{"a certificate where it is not needed", anonymous, call{cert: "bbs"}, "cert:bbs"},
		{"nobody", anonymous, call{}, "anonymous"},
		{"a credential that no way takes", anonymous, call{headers: []string{"authorization", "Bearer " + credential}}, "refused"},
	} {
		if got := outcome(c.with.Authenticate(c.call.context(t.Context()))); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	if got := all.Headers(); !slices.Equal(got, []string{"authorization", "x-remote-user", "x-remote-groups"}) {
		t.Errorf("headers %v", got)
	}
}

func TestProxyHeaders(t *testing.T) {
	for _, name := range []string{"X User", "authorization", "Host", "X_Remote_User", "grpc-timeout", "x-bin", "é"} {
		if _, err := authn.New(authn.Config{Proxy: authn.Proxy{Loopback: true, UserHeader: name}}, follow.NewSet(nil), slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("the header %q was taken", name)
		}
	}
}

func TestCredentialFileThatChanges(t *testing.T) {
	t.Parallel()
	credential, hash := auth.NewCredential()
	file := filepath.Join(t.TempDir(), "credentials")
	must(t, os.WriteFile(file, nil, 0o600))
	a, files := followAuthenticator(t, authn.Config{CredentialFile: file})
	ctx := call{headers: []string{"authorization", "Bearer " + credential}}.context(t.Context())
	becomes := func(want string) {
		t.Helper()
		harness.Until(t, want, func() bool { return outcome(a.Authenticate(ctx)) == want })
	}
	becomes("refused")
	must(t, os.WriteFile(file, []byte("credentials:\n  - {name: ci, hash: \""+hash+"\"}\n"), 0o600))
	becomes("credential:ci")
	must(t, os.WriteFile(file, []byte("credentials: what"), 0o600))
	harness.Until(t, "warning of a file that is invalid", func() bool { return len(files.Problems()) > 0 })
	becomes("credential:ci")
	must(t, os.WriteFile(file, []byte("credentials: []"), 0o600))
	becomes("refused")
	harness.Until(t, "end of the warning", func() bool { return len(files.Problems()) == 0 })
	must(t, os.Chmod(file, 0o644))
	if _, err := authn.New(authn.Config{CredentialFile: file}, files, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "others may read or write it") {
		t.Errorf("a file for everybody: %v", err)
	}
}
