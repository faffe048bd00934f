package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestHTTPRequiresCertificates: with TLS, HTTP refuses callers without a client certificate, unless the configuration
// allows them.
func TestHTTPRequiresCertificates(t *testing.T) {
	t.Parallel()
	ca, other := fixtures.NewCA(t), fixtures.NewCA(t)
	foreign, err := tls.LoadX509KeyPair(other.Issue(t, "client"))
	must(t, err)
	for name, anonymous := range map[string]bool{"as it is": false, "--http-anonymous": true} {
		d := openListeners(t, ca, func(c *Config) { c.HTTPAnonymous = anonymous })
		if code, _, body := d.request(t, "GET", "/v1/claims/", "", ""); code != http.StatusOK {
			t.Errorf("%s: with a certificate: %d %s", name, code, body)
		}
		get := func(certificates ...tls.Certificate) error {
			config := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &append(certificates, tls.Certificate{})[0], nil
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}, Timeout: harness.HangTimeout}
			defer client.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, d.url+"/v1/claims/nobody/", http.NoBody)
			must(t, err)
			resp, err := client.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		}
		if err := get(); (err == nil) != anonymous {
			t.Errorf("%s: without a certificate: %v", name, err)
		}
		if err := get(foreign); err == nil {
			t.Errorf("%s: a certificate of another authority was let in", name)
		}
	}
}

// page returns the answer to GET at an address in plain HTTP.
func page(t *testing.T, address, path string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(text)
}

// TestOpsListener: pages for operators have an address of their own, in plain HTTP even if the other listeners require
// certificates, and the metrics are no longer served over HTTP.
func TestOpsListener(t *testing.T) {
	t.Parallel()
	d := openListeners(t, fixtures.NewCA(t), func(c *Config) { c.OpsAddress = "127.0.0.1:0" })
	at := d.addresses["operations"]
	for path, want := range map[string]string{
		"/healthz": "ok\n", "/readyz": "ready\n", "/metrics": "\nlocket_ready 1\n", "/debug/pprof/": "goroutine", "/debug/pprof/heap?debug=1": "heap profile",
	} {
		harness.Eventually(t, func() error { // it is not ready while a transaction takes long, as on a busy machine
			if code, body := page(t, at, path); code != http.StatusOK || !strings.Contains(body, want) {
				return fmt.Errorf("%s: %d %s", path, code, body)
			}
			return nil
		})
	}
	if _, body := page(t, at, "/metrics"); !strings.Contains(body, "\nlocket_requests_under_way 0\n") {
		t.Errorf("requests are not limited:\n%s", body)
	}
	for _, path := range []string{"/debug/pprof/cmdline", "/v1/claims/", "/docs", "/"} {
		if code, body := page(t, at, path); code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for path, want := range map[string]int{"/metrics": 404, "/debug/pprof/": 404, "/healthz": 200, "/readyz": 200} {
		harness.Eventually(t, func() error {
			if code, _, _ := d.request(t, "GET", path, "", ""); code != want {
				return fmt.Errorf("at the HTTP listener %s: %d, want %d", path, code, want)
			}
			return nil
		})
	}
}

// TestListenersAreOff: an empty address opens no listener, and the other one serves and ends as usual.
func TestListenersAreOff(t *testing.T) {
	t.Parallel()
	grpcAlone := openListeners(t, nil, func(c *Config) { c.HTTPAddress = "" })
	if _, ok := grpcAlone.addresses["gRPC"]; !ok || len(grpcAlone.addresses) != 1 {
		t.Errorf("without HTTP: %v", grpcAlone.addresses)
	}
	if _, err := models.NewLocketClient(grpcAlone.grpc).FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK}); err != nil {
		t.Error(err)
	}
	httpAlone := openListeners(t, nil, func(c *Config) { c.GRPCAddress = "" })
	if _, ok := httpAlone.addresses["HTTP"]; !ok || len(httpAlone.addresses) != 1 {
		t.Errorf("without gRPC: %v", httpAlone.addresses)
	}
	for _, id := range []string{"a", "b"} {
		if code, _, body := httpAlone.request(t, "POST", "/v1/claims/", `{"id": "`+id+`", "resource": "r", "ttl": 60}`, ""); code/100 != 2 {
			t.Errorf("%d %s", code, body)
		}
	}
	httpAlone.take()
	waited := make(chan error, 1)
	go func() { // a call that waits ends when the server ends
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, httpAlone.url+"/v1/claims/b/", http.NoBody)
		if err == nil {
			req.Header.Set("Prefer", "wait=3600")
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				err = resp.Body.Close()
			}
		}
		waited <- err
	}()
	harness.Until(t, "the call waits", func() bool { return len(httpAlone.take()) > 0 })
	httpAlone.end()
	if err := <-waited; err != nil {
		t.Errorf("the call that waited: %v", err)
	}
}

// TestStreamsEndWithoutGRPC: a busy stream of events, for example with the live claims for a slow client, ends with the
// server even without gRPC.
func TestStreamsEndWithoutGRPC(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	addresses, end := serve(t, Config{
		HTTPAddress: "127.0.0.1:0", DatabaseTimeout: time.Minute, ShutdownTimeout: time.Minute, HistoryRetention: time.Hour, HistoryLimit: 100,
	}, func(ctx context.Context, _ *grpcserver.Call, _ func(context.Context) error) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	})
	go func() {
		<-started
		end()
	}()
	if code, body := page(t, addresses["HTTP"], "/v1/events/"); code != http.StatusServiceUnavailable || !strings.Contains(body, "shutting down") {
		t.Errorf("%d %s", code, body)
	}
}

// TestAddressInUse: the error names flag and address, and opens nothing.
func TestAddressInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	c := DefaultConfig()
	c.GRPCAddress, c.HTTPAddress = "127.0.0.1:0", taken.Addr().String()
	_, err = listen(c)
	if err == nil || !strings.HasPrefix(err.Error(), "--http-address "+c.HTTPAddress+": ") || strings.Count(err.Error(), c.HTTPAddress) != 1 {
		t.Errorf("got %v", err)
	}
}

// TestProxiesAndHosts: the HTTP listener gets the trusted proxies and its host names.
func TestProxiesAndHosts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		proxies, hosts []string
		host           string
		code           int
		url            string // how the claim's URL begins
	}{
		"no proxy":        {nil, nil, "", http.StatusCreated, "http://127.0.0.1:"},
		"another proxy":   {[]string{"10.0.0.0/8"}, nil, "", http.StatusCreated, "http://127.0.0.1:"},
		"a network":       {[]string{"10.0.0.0/8", "127.0.0.9/8"}, nil, "", http.StatusCreated, "https://locks.example/"},
		"an address":      {[]string{"127.0.0.1"}, nil, "", http.StatusCreated, "https://locks.example/"},
		"a name":          {nil, []string{"locks.internal"}, "locks.internal", http.StatusCreated, "http://locks.internal/"},
		"an unknown name": {nil, []string{"locks.internal"}, "elsewhere.internal", http.StatusMisdirectedRequest, ""},
		"a name, of none": {nil, nil, "locks.internal", http.StatusMisdirectedRequest, ""},
	} {
		d := openListeners(t, nil, func(config *Config) { config.TrustedProxies, config.HTTPHosts = c.proxies, c.hosts })
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/v1/claims/", strings.NewReader(`{"resource": "r", "ttl": 60}`))
		must(t, err)
		req.Host = c.host
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Forwarded-Proto", "https")
		req.Header.Set("X-Forwarded-Host", "locks.example")
		resp, err := d.http.Do(req)
		must(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != c.code || !strings.HasPrefix(resp.Header.Get("Location"), c.url) {
			t.Errorf("%s: %s, %s", name, resp.Status, resp.Header.Get("Location"))
		}
	}
}

// TestOpsHosts: DNS rebinding: a page in a browser whose host name resolves to loopback reads nothing.
func TestOpsHosts(t *testing.T) {
	t.Parallel()
	d := openListeners(t, nil, func(c *Config) { c.OpsAddress = "127.0.0.1:0" })
	for host, want := range map[string]int{"": 200, "localhost": 200, "127.0.0.1:9": 200, "[::1]:9": 200, "evil.example": 421, "evil.example:80": 421} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.addresses["operations"]+"/metrics", http.NoBody)
		must(t, err)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %s, want %d", host, resp.Status, want)
		}
	}
}
