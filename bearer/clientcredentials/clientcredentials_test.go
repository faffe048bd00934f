package clientcredentials_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/bearer/clientcredentials"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// provider is an OIDC provider that answers when it is let.
type provider struct {
	*httptest.Server
	asked  chan struct{} // gets a value for each request for an access token
	let    chan struct{} // closed to answer these
	issued atomic.Int32
}

func newProvider(t *testing.T) (*provider, *clientcredentials.Source) {
	p := &provider{asked: make(chan struct{}, 100), let: make(chan struct{})}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return p, newSource(t, clientcredentials.Config{Issuer: p.URL, ID: "me", SecretFile: secret})
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/issue" {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.URL, "token_endpoint": p.URL + "/issue", "jwks_uri": p.URL + "/keys"})
		return
	}
	p.asked <- struct{}{}
	<-p.let
	p.issued.Add(1)
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "access", "token_type": "Bearer", "expires_in": 3600})
}

type result struct {
	credential string
	err        error
}

func ask(ctx context.Context, source *clientcredentials.Source) <-chan result {
	got := make(chan result, 1)
	go func() {
		credential, err := source.Credential(ctx)
		got <- result{credential, err}
	}()
	return got
}

// newSource returns a source that has its secret, and waits for its provider for longer than a test waits for anything.
func newSource(t *testing.T, config clientcredentials.Config) *clientcredentials.Source {
	t.Helper()
	source, err := clientcredentials.New(config)
	if err != nil {
		t.Fatal(err)
	}
	source.WaitFor(10 * harness.HangTimeout)
	harness.Eventually(t, func() error { return source.ReadSecret(t.Context()) })
	return source
}

// TestProviderHangs: while a request to the provider is not answered, each caller waits until its own context ends,
// and no longer. The request continues for the others when the caller that began it has left.
func TestProviderHangs(t *testing.T) {
	p, source := newProvider(t)
	let := func() { close(p.let) }
	t.Cleanup(func() {
		if let != nil {
			let()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	first := ask(ctx, source)
	harness.Await(t, "request to the provider", p.asked)
	left, leave := context.WithCancel(t.Context())
	leave()
	if got := harness.Await(t, "answer to a caller whose context has ended", ask(left, source)); !errors.Is(got.err, context.Canceled) {
		t.Errorf("a caller whose context has ended got %+v", got)
	}
	waiting := ask(t.Context(), source)
	cancel()
	if got := harness.Await(t, "answer to the caller that has asked", first); !errors.Is(got.err, context.Canceled) {
		t.Errorf("the caller that has asked got %+v", got)
	}
	let()
	let = nil
	for range 2 { // the second one is cached
		if got := harness.Await(t, "answer to a caller that waits", waiting); got.credential != "access" || got.err != nil {
			t.Errorf("a caller that waits got %+v", got)
		}
		waiting = ask(t.Context(), source)
	}
	if n := p.issued.Load(); n != 1 {
		t.Errorf("%d access tokens were issued", n)
	}
}

// TestClockSetBack: an access token that has expired is not used again because the clock was set back meanwhile.
func TestClockSetBack(t *testing.T) {
	p, source := newProvider(t)
	close(p.let)
	for want := range int32(3) {
		if got := harness.Await(t, "answer", ask(t.Context(), source)); got.err != nil || p.issued.Load() != want+1 {
			t.Errorf("%+v, and %d access tokens were issued, want %d", got, p.issued.Load(), want+1)
		}
		source.SetBack()
	}
}

// TestAuthoritiesChange: each request for an access token uses the current file of authorities. While it is invalid the last
// valid one is.
func TestAuthoritiesChange(t *testing.T) {
	before, after := fixtures.NewCA(t), fixtures.NewCA(t)
	pair, err := tls.LoadX509KeyPair(after.Issue(t, "provider"))
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{asked: make(chan struct{}, 100), let: make(chan struct{})}
	close(p.let)
	p.Server = httptest.NewUnstartedServer(p)
	p.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	p.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are refused
	p.StartTLS()
	t.Cleanup(p.Close)
	folder := t.TempDir()
	file, secret := filepath.Join(folder, "ca"), filepath.Join(folder, "secret")
	replace := func(path string, content []byte) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	replace(secret, []byte("secret\n"))
	replace(file, authority(t, before))
	source := newSource(t, clientcredentials.Config{Issuer: p.URL, ID: "me", SecretFile: secret, CA: file})
	if got := harness.Await(t, "answer with another authority", ask(t.Context(), source)); got.err == nil {
		t.Errorf("with another authority it is %+v", got)
	}
	replace(file, authority(t, after))
	if got := askInTime(t, source); got.credential != "access" {
		t.Errorf("with the authority it is %+v", got)
	}
	again := newSource(t, clientcredentials.Config{Issuer: p.URL, ID: "me", SecretFile: secret, CA: file})
	replace(file, []byte("no authority"))
	if got := askInTime(t, again); got.credential != "access" {
		t.Errorf("with a file that is invalid by now it is %+v", got)
	}
}

// askInTime asks again after a failure that took so long that a source does not wait for its files.
func askInTime(t *testing.T, source *clientcredentials.Source) result {
	t.Helper()
	for begin := time.Now(); ; {
		asked := time.Now()
		got := harness.Await(t, "answer", ask(t.Context(), source))
		took, all := time.Since(asked), time.Since(begin) // real time: what fails sooner is not asked again
		if got.err == nil || took < time.Second || all > harness.HangTimeout {
			return got
		}
	}
}

// authority returns the certificate of an authority.
func authority(t *testing.T, ca *fixtures.CA) []byte {
	t.Helper()
	content, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
