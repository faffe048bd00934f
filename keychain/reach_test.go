package keychain_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/keychain"
	"github.com/locket-service/locket/tests/harness"
)

// New and Claim return an error for each invalid argument.
func TestArguments(t *testing.T) {
	for name, c := range map[string]struct {
		url    string
		option keychain.Option
	}{
		"no address":            {"", nil},
		"no scheme":             {"127.0.0.1:8892", nil},
		"another scheme":        {"ftp://127.0.0.1", nil},
		"no host":               {"http:///v1", nil},
		"a password":            {"http://me:secret@127.0.0.1", nil},
		"a query":               {"http://127.0.0.1/?a=b", nil},
		"a control":             {"http://127.0.0.1/\x7f", nil},
		"TLS without https":     {"http://127.0.0.1", keychain.WithTLS(&tls.Config{MinVersion: tls.VersionTLS12})},
		"no such files":         {"https://127.0.0.1", keychain.WithTLSFiles(keychain.Files{CA: "/no/such/file"})},
		"half a pair":           {"https://127.0.0.1", keychain.WithTLSFiles(keychain.Files{Cert: "/no/such/file"})},
		"a credential in plain": {"http://locket.example", keychain.WithCredential("secret")},
		"request timeout":       {"http://127.0.0.1", keychain.WithRequestTimeout(0)},
		"release timeout":       {"http://127.0.0.1", keychain.WithReleaseTimeout(-1)},
		"long poll":             {"http://127.0.0.1", keychain.WithLongPoll(-1)},
		"logger":                {"http://127.0.0.1", keychain.WithLogger(nil)},
		"retries, first":        {"http://127.0.0.1", keychain.WithRetries(keychain.Retries{Abort: keychain.Backoff{First: -1}})},
		"retries, factor":       {"http://127.0.0.1", keychain.WithRetries(keychain.Retries{Poll: keychain.Backoff{Factor: 0.5}})},
		"retries, jitter":       {"http://127.0.0.1", keychain.WithRetries(keychain.Retries{Renew: keychain.Backoff{Jitter: 1}})},
		"retries, max":          {"http://127.0.0.1", keychain.WithRetries(keychain.Retries{Renew: keychain.Backoff{First: 2, Max: 1}})},
		"transport and TLS":     {"https://127.0.0.1", func() keychain.Option { return nil }()},
	} {
		options := []keychain.Option{c.option}
		switch {
		case name == "transport and TLS":
			options = []keychain.Option{keychain.WithTransport(http.DefaultTransport), keychain.WithTLS(&tls.Config{MinVersion: tls.VersionTLS12})}
		case c.option == nil:
			options = nil
		}
		if _, err := keychain.New(c.url, options...); err == nil || strings.Contains(err.Error(), "secret") && name != "a password" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, url := range []string{"http://locket.example/", "https://locket.example/prefix", "http://[::1]:8892"} {
		if _, err := keychain.New(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	kc := open(t, "http://127.0.0.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // claims end with it
	for name, option := range map[string]keychain.ClaimOption{
		"TTL of 0":     keychain.WithTTL(0),
		"long TTL":     keychain.WithTTL(1<<63 - 1),
		"timeout":      keychain.WithTimeout(-1),
		"renew period": keychain.WithRenewPeriod(time.Minute),
		"user data":    keychain.WithUserData(func() {}),
		"owner":        keychain.WithOwner("\xff"),
	} {
		if _, err := kc.Claim(ctx, "r", option); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("%s was taken", name)
		}
	}
	for _, name := range []string{"", "a\xff"} {
		if _, err := kc.Claim(ctx, name); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("the name %q was taken: %v", name, err)
		}
	}
}

// A credential goes to the server, and to nobody else; a Location is used unchanged, but not
// in plain text if the server's address is not plain text.
func TestLocations(t *testing.T) {
	t.Parallel()
	var stranger, shown atomic.Value
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stranger.Store(r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(elsewhere.Close)
	answer := func(location string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			shown.Store(r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization"))
			if location == "" || r.Method != "POST" {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusCreated)
		}
	}
	for _, location := range []string{"/v1/claims/a/", "a", "../claims/a", elsewhere.URL + "/v1/claims/a/"} {
		server := httptest.NewServer(answer(location))
		t.Cleanup(server.Close)
		kc := open(t, server.URL+"/sub", keychain.WithCredential("secret"))
		c := claim(t, kc, "r")
		if shown.Load() != "POST /sub/v1/claims/ Bearer secret" {
			t.Errorf("%v", shown.Load())
		}
		must(t, c.Release(t.Context()))
		switch {
		case strings.HasPrefix(location, "http"):
			if stranger.Load() != "PATCH /v1/claims/a/ " || c.ID() != "a" {
				t.Errorf("%v; %s", stranger.Load(), c.ID())
			}
		default:
			if got := shown.Load().(string); !strings.HasPrefix(got, "PATCH /") || !strings.HasSuffix(got, "Bearer secret") || c.ID() != "a" {
				t.Errorf("%v; %s", got, c.ID())
			}
		}
		must(t, kc.Close())
	}
	for _, location := range []string{elsewhere.URL + "/v1/claims/a/", "ftp://a/b", "mailto:me", "https://", "http://[", ""} {
		server := httptest.NewTLSServer(answer(location))
		t.Cleanup(server.Close)
		kc := open(t, server.URL, keychain.WithReleaseTimeout(50*time.Millisecond), keychain.WithTLS(server.Client().Transport.(*http.Transport).TLSClientConfig))
		if _, err := kc.Claim(t.Context(), "r", keychain.WithTimeout(100*time.Millisecond)); err == nil {
			t.Errorf("%q was taken", location)
		}
		_ = kc.Close()
	}
}

// With TLS, by files that are replaced while the keychain is in use.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	server := harness.StartSecure(t, ca, "--tls-client-ca", ca.File)
	url := "https://" + server.HTTPAddress()

	for name, option := range map[string]keychain.Option{
		"no authority":   keychain.WithInsecure(),
		"another":        keychain.WithTLSFiles(keychain.Files{CA: fixtures.NewCA(t).File}),
		"no certificate": keychain.WithTLS(&tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}),
	} {
		kc := open(t, url, option, keychain.WithReleaseTimeout(time.Second)) // no server can have heard of its claim
		// until there was the time for an attempt
		for timeout := time.Second; ; timeout *= 2 {
			_, err := kc.Claim(t.Context(), "r", keychain.WithTimeout(timeout))
			if errors.Is(err, keychain.ErrTimeout) && strings.Contains(err.Error(), "certificate") {
				break
			}
			if !errors.Is(err, keychain.ErrTimeout) || timeout > time.Minute {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
	}
	kc := open(t, url, keychain.WithTLS(ca.ClientTLS(t)))
	must(t, claim(t, kc, "r").Release(t.Context()))

	// While a file is invalid the last valid one is used; a valid one is used at once.
	clientCert, clientKey := ca.Issue(t, "client")
	authority := filepath.Join(t.TempDir(), "ca.crt")
	copyFile(t, fixtures.NewCA(t).File, authority)
	files := open(t, url, keychain.WithTLSFiles(keychain.Files{CA: authority, Cert: clientCert, Key: clientKey}))
	time.AfterFunc(100*time.Millisecond, func() { copyFile(t, ca.File, authority) })
	c := claim(t, files, "r", keychain.WithTTL(5*time.Minute))
	must(t, os.WriteFile(authority, nil, 0o600))
	must(t, server.Restart()) // new connections are needed
	must(t, c.Refresh(t.Context(), 0))
	must(t, c.Release(t.Context()))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}

// A connection without an answer is not used again: a network that drops packets
// costs an attempt, and not the lease.
func TestSilentNetwork(t *testing.T) {
	t.Parallel()
	server := startLocket(t)
	proxy := fixtures.NewProxy(t, server.HTTPAddress())
	kc := open(t, "http://"+proxy.Addr())
	c := claim(t, kc, "r", keychain.WithTTL(5*time.Minute), keychain.WithRenewPeriod(200*time.Millisecond))
	proxy.Hang()
	time.Sleep(time.Second) // real time: attempts to renew hang meanwhile
	if !c.Held() {
		t.Error(c.Err())
	}
	proxy.Cut()
	time.Sleep(300 * time.Millisecond) // real time: attempts to renew fail meanwhile
	proxy.Restore()
	must(t, c.Refresh(t.Context(), 0))
	must(t, c.Release(t.Context()))
}

var _ io.Closer = (*keychain.Keychain)(nil)
