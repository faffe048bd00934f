package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// serves fails the test unless the server answers what it should.
func serves(t *testing.T, s *server, c *http.Client) {
	t.Helper()
	status, body, err := get(t, c, s.url+"/healthz")
	if err != nil || status != http.StatusOK || body != "ok\n" {
		t.Errorf("healthz: %d %q (%v)", status, body, err)
	}
	s.counter.Inc()
	status, body, err = get(t, c, s.url+"/metrics")
	if err != nil || status != http.StatusOK || !strings.Contains(body, "\ntest_total 1\n") {
		t.Errorf("metrics: %d %q (%v)", status, body, err)
	}
}

func TestHTTP(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	serves(t, s, c)
	if status, _, err := get(t, c, s.url+"/other"); err != nil || status != http.StatusNotFound {
		t.Errorf("another path: %d (%v)", status, err)
	}
	resp, err := c.Post(s.url+"/healthz", "text/plain", nil)
	must(t, err)
	must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

func TestHTTPS(t *testing.T) {
	ca, other := fixtures.NewCA(t), fixtures.NewCA(t)
	pair, err := tls.LoadX509KeyPair(ca.Issue(t, "server"))
	must(t, err)
	s := start(t, &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: ca.Pool(), ClientAuth: tls.VerifyClientCertIfGiven,
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	})
	serves(t, s, client(t, ca.ClientTLS(t)))
	t.Run("without a client's certificate", func(t *testing.T) {
		status, _, err := get(t, client(t, &tls.Config{RootCAs: ca.Pool()}), s.url+"/healthz")
		if err != nil || status != http.StatusOK {
			t.Errorf("got %d (%v)", status, err)
		}
	})
	t.Run("with another authority's", func(t *testing.T) {
		wrong, err := tls.LoadX509KeyPair(other.Issue(t, "client"))
		must(t, err)
		_, _, err = get(t, client(t, &tls.Config{
			RootCAs:              ca.Pool(),
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &wrong, nil },
		}), s.url+"/healthz")
		if err == nil {
			t.Error("it was served")
		}
	})
	t.Run("plain HTTP", func(t *testing.T) {
		status, _, err := get(t, client(t, nil), strings.Replace(s.url, "https", "http", 1)+"/healthz")
		if err == nil && status == http.StatusOK {
			t.Error("it was served")
		}
	})
}

// TestPages lists the pages that pass no guard. Add a page here only if everybody who can connect may read it; anything
// else must be an RPC.
func TestPages(t *testing.T) {
	got, err := gateway.New(gateway.Config{Metrics: prometheus.NewRegistry()}).Pages()
	if want := []string{"/", "/docs", "/healthz", "/metrics", "/openapi.json"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
}

// panicking has a bug.
type panicking struct {
	models.UnimplementedLocketServer
}

func (panicking) GetClaim(context.Context, *models.GetClaimRequest) (*models.Claim, error) {
	panic("secret")
}

// TestPanic: a panic of a handler is 500 for its caller, without the details, and in the log.
func TestPanic(t *testing.T) {
	var logs fixtures.Buffer
	registry := prometheus.NewRegistry()
	conn := grpcserver.NewLocal(grpcserver.NewChain(slog.New(grpcserver.LogRequestID(slog.NewTextHandler(&logs, nil))), registry),
		func(r grpc.ServiceRegistrar) { models.RegisterLocketServer(r, panicking{}) })
	h, err := gateway.New(gateway.Config{Service: conn, Metrics: registry, Log: slog.New(slog.DiscardHandler)}).Handler()
	must(t, err)
	answer := serve(t.Context(), h, "GET", "/v1/claims/c", nil)
	if answer.Code != http.StatusInternalServerError || answer.Body.String() != `{"message":"internal error"}`+"\n" {
		t.Errorf("got %d %s", answer.Code, answer.Body)
	}
	for _, want := range []string{"panic=secret", "server_test.go", "request_id=" + answer.Header().Get("X-Request-Id")} {
		if !strings.Contains(logs.String(), want) {
			t.Errorf("the log lacks %s: %s", want, &logs)
		}
	}
	if answer := serve(t.Context(), h, "GET", "/healthz", nil); answer.Code != http.StatusOK {
		t.Errorf("afterwards: %d", answer.Code)
	}
}

// slow is a metric that takes its time.
type slow struct{ started, goOn chan struct{} }

func (s slow) Describe(chan<- *prometheus.Desc) {}

func (s slow) Collect(chan<- prometheus.Metric) {
	close(s.started)
	<-s.goOn
}

// TestShutdown: requests under way finish, new connections are refused.
func TestShutdown(t *testing.T) {
	metric := slow{make(chan struct{}), make(chan struct{})}
	s := start(t, nil, metric)
	c := client(t, nil)
	underWay := make(chan error, 1)
	go func() {
		status, _, err := get(t, c, s.url+"/metrics")
		if status != http.StatusOK {
			err = errors.Join(err, errors.New(http.StatusText(status)))
		}
		underWay <- err
	}()
	<-metric.started
	s.process.Signal(os.Interrupt)
	harness.Until(t, "listener is closed", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	close(metric.goOn)
	must(t, <-underWay)
	s.stop(t)
}

// TestShutdownTimeout: requests that take too long are cut off.
func TestShutdownTimeout(t *testing.T) {
	metric := slow{make(chan struct{}), make(chan struct{})}
	s := startAs(t, func(c *gateway.Config) { c.ShutdownTimeout = 100 * time.Millisecond }, metric)
	c := client(t, nil)
	underWay := make(chan error, 1)
	go func() {
		_, _, err := get(t, c, s.url+"/metrics")
		underWay <- err
	}()
	<-metric.started
	s.stop(t)
	defer close(metric.goOn)
	if err := harness.Await(t, "end of the request that was cut off", underWay); err == nil {
		t.Error("the request was served after all")
	}
}

// TestShutdownOfIdle: connections that wait for their next request do not hold up the end.
func TestShutdownOfIdle(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	_, _, err := get(t, c, s.url+"/healthz")
	must(t, err)
	s.stop(t)
}

func TestStartStop(t *testing.T) {
	for i := range 6 {
		process := ifrit.Background(gateway.New(gateway.Config{
			Listener: fixtures.Listen(t), Metrics: prometheus.NewRegistry(), ShutdownTimeout: shutdownTimeout, Log: slog.New(slog.DiscardHandler),
		}))
		if i%2 == 0 {
			<-process.Ready()
		}
		process.Signal(os.Interrupt)
		must(t, <-process.Wait())
	}
}
