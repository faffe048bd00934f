package program_test

import (
	"context"
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// refused runs the command line, which must end with exit code 1, or 2 if it is wrong, and one
// clear line that holds each of the words.
func refused(t *testing.T, args []string, words ...string) {
	t.Helper()
	_, stderr, code := harness.RunLocket(t, nil, args...)
	if code != exit.Failure && code != exit.Usage || !strings.HasPrefix(stderr, "locket: ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("locket %q: exit code %d, %q; want one line", args, code, stderr)
	}
	for _, word := range words {
		if !strings.Contains(stderr, word) {
			t.Errorf("locket %q does not mention %q: %s", args, word, stderr)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	notJSON := filepath.Join(t.TempDir(), "c.json")
	harness.Must(t, os.WriteFile(notJSON, []byte("{"), 0o600))
	postgres := filepath.Join(t.TempDir(), "p.json")
	harness.Must(t, os.WriteFile(postgres, []byte(`{"database_driver": "postgres"}`), 0o600))
	server := func(args ...string) []string { return append([]string{"server"}, args...) }
	for _, test := range []struct{ args, words []string }{
		{server("--grpc-address", "0.0.0.0:8891"), []string{"--grpc-address", "0.0.0.0:8891", "loopback", "--insecure"}},
		{server("--grpc-address", ":8891"), []string{"--grpc-address", "loopback"}},
		{server("--http-address", "[::]:8892"), []string{"--http-address", "loopback"}},
		{server("--grpc-address", "nonsense"), []string{"--grpc-address", "nonsense"}},
		{server("--http-address", "127.0.0.1"), []string{"--http-address", "127.0.0.1", "port"}},
		{server("--grpc-address=", "--http-address="), []string{"--grpc-address", "--http-address", "nothing is served"}},
		{server("--ops-address", "0.0.0.0:8893"), []string{"--ops-address", "0.0.0.0:8893", "--ops-insecure"}},
		{server("--tls-cert", "s.crt"), []string{"--tls-cert", "--tls-key", "--tls-client-ca", "all three"}},
		{server("--tls-cert", "s.crt", "--tls-key", "s.key"), []string{"--tls-client-ca", "all three"}},
		{server("--tls-cert", "nosuch.crt", "--tls-key", "nosuch.key", "--tls-client-ca", "ca.crt"), []string{"--tls-cert", "nosuch.crt"}},
		{server("--nosuch"), []string{"--nosuch"}},
		{server("surplus"), []string{"surplus"}},
		{server("--database", "oracle:x"), []string{"--database", "oracle", "--data"}},
		{server("--database", "mysql:nonsense"), []string{"--database", "DSN"}},
		{server("--database", "mysql:root@tcp(127.0.0.1:1)/"), []string{"--database", "names no database"}},
		{server("--data", "/nosuch/folder/data"), []string{"/nosuch/folder"}},
		{server("--etcd", "garbage"), []string{"--etcd: ", "http://HOST:PORT"}},
		{server("--database", "embedded:"), []string{"--database", "names no folder"}},
		{server("--shutdown-timeout", "0s"), []string{"--shutdown-timeout", "at least 100ms"}},
		{server("--database-timeout", "soon"), []string{"--database-timeout", "soon"}},
		{server("--history-limit", "0"), []string{"--history-limit"}},
		{server("--log-level", "loud"), []string{"--log-level", "loud"}},
		{server("--log-format", "xml"), []string{"--log-format", "xml"}},
		{server("--config", "nosuch.json"), []string{"nosuch.json"}},
		{server("--config", notJSON), []string{notJSON}},
		{[]string{"-config", postgres}, []string{"postgres", "mysql"}},
		{[]string{"nosuch"}, []string{"nosuch"}},
		{[]string{"lock", "k"}, []string{"owner"}},
		{[]string{"lock", "k", "--owner", "o", "--ttl", "1500ms"}, []string{"--ttl", "whole seconds"}},
		{[]string{"lock", "k", "--owner", "o", "--address", "127.0.0.1:1"}, []string{"127.0.0.1:1"}},
	} {
		refused(t, test.args, test.words...)
	}
}

// An invalid setting ends the server with the exit code of a wrong command line, before it
// creates or opens any file. The error names the setting.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	for _, wrong := range [][]string{
		{"--database="},
		{"--database", "nonsense"},
		{"--database", "oracle:x"},
		{"--database", "embedded:"},
		{"--data="},
		{"--database", "mysql:"},
		{"--database", "mysql:root@tcp(127.0.0.1:1)/"},
		{"--database", "mysql:root@tcp(127.0.0.1:99999)/x"},
		{"--database", "mysql:root@tcp(127.0.0.1:1)/x?a=%"},
		{"--database-wait", "-1s"},
		{"--database-timeout", "1ns"},
		{"--shutdown-timeout", "1ms"},
		{"--history-retention", "1ms"},
		{"--history-minimum", "-1s"},
		{"--history-limit", "-1"},
		{"--config="},
		{"--log-level", "loud"},
	} {
		folder := t.TempDir()
		program := fixtures.LocketProgram(t) // which may take minutes to build
		ctx, cancel := context.WithTimeout(t.Context(), harness.HangTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, append([]string{"server", "--grpc-address", "127.0.0.1:0", "--http-address="}, wrong...)...)
		cmd.Dir = folder
		var stderr strings.Builder
		cmd.Stderr = &stderr
		_ = cmd.Run()
		flag, _, _ := strings.Cut(wrong[0], "=")
		if code := cmd.ProcessState.ExitCode(); code != exit.Usage || !strings.Contains(stderr.String(), flag) {
			t.Errorf("%q: exit code %d, %q", wrong, code, stderr.String())
		}
		if files, err := os.ReadDir(folder); err != nil || len(files) > 0 {
			t.Errorf("%q: it made %v, %v", wrong, files, err)
		}
	}
}

// A port that is taken is an error at the start.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	first := fixtures.StartLocket(t, harness.OneServer(t))
	for flag, address := range map[string]string{"--grpc-address": first.Address(), "--http-address": first.HTTPAddress()} {
		second := fixtures.NewLocket(t, harness.OneServer(t), flag, address)
		harness.Must(t, second.Launch())
		code, err := second.Wait(harness.HangTimeout)
		_, line, found := strings.Cut(second.Log(), "locket: ")
		if want := flag + " " + address + ": bind: address already in use\n"; code != 1 || err != nil || !found || line != want {
			t.Errorf("%s: exit code %d, %v, %q, want %q", flag, code, err, line, want)
		}
	}
}

func TestSecondServerOnOneFile(t *testing.T) {
	t.Parallel()
	database := harness.OneServer(t)
	first := fixtures.StartLocket(t, database)
	refused(t, []string{"server", "--database", database, "--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"},
		"in use by another locket server", strings.TrimPrefix(database, harness.EngineEmbedded+":"))
	harness.Lock(t, first.Client(t), "k", "o", time.Hour)
}

func TestNewerSchema(t *testing.T) {
	t.Parallel()
	database := harness.Engines()["mysql"](t)
	fixtures.StartLocket(t, database).Terminate()
	pool, err := sql.Open("mysql", strings.TrimPrefix(database, "mysql:"))
	harness.Must(t, err)
	_, err = pool.Exec("UPDATE locket_schema SET version = 999")
	harness.Must(t, errors.Join(err, pool.Close()))
	refused(t, []string{"server", "--database", database, "--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"},
		"schema is newer", "999")
}

// At a shutdown health says NOT_SERVING, requests in progress complete, and waiting requests are answered.
func TestOrderlyEnd(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			database, proxy := harness.Proxied(t)
			// With these timeouts requests under way wait while the database hangs.
			server := fixtures.StartLocket(t, database+"?readTimeout=1m", "--database-timeout", "1m", "--shutdown-timeout", "1m")
			client := server.Client(t)
			harness.Create(t, client, "k", "holder", time.Hour)
			harness.Create(t, client, "k", "next", time.Hour)
			health := watchHealth(t, server)
			awaited := harness.Later(func() error {
				_, err := client.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "next"})
				return err
			})
			harness.Eventually(t, func() error { return harness.WantMetric(t, server, "locket_waiters 1") })
			proxy.Hang()
			before := requestsUnderWay(t, server)
			locked := harness.Later(func() error {
				_, err := harness.TryLock(t, client, "under-way", "o", time.Hour)
				return err
			})
			harness.Until(t, "request under way", func() bool { return requestsUnderWay(t, server) > before || len(locked) > 0 }) // or refused

			harness.Must(t, server.Signal(sig))
			if state, err := health(); err != nil || state != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
				t.Errorf("health says %v, %v", state, err)
			}
			harness.Eventually(t, func() error { return readyz(server, http.StatusServiceUnavailable, "shutting down") })
			if err := <-awaited; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "shutting down") {
				t.Errorf("AwaitClaim got %v", err)
			}
			proxy.Restore()
			if err := <-locked; err != nil {
				t.Errorf("the request under way got %v", err)
			}
			code, err := server.Wait(harness.HangTimeout)
			if err != nil || code != 0 {
				t.Errorf("exit code %d, %v", code, err)
			}
		})
	}
}

// requestsUnderWay returns how many requests the server is carrying out.
func requestsUnderWay(t *testing.T, server *fixtures.Locket) (n int) {
	t.Helper()
	_, rest, found := strings.Cut(harness.Scrape(t, server), "\nlocket_requests_under_way ")
	if _, err := fmt.Sscan(rest, &n); err != nil || !found {
		t.Fatalf("there is no number of requests under way: %v", err)
	}
	return n
}

// readyz returns nil if the server answers /readyz with a status and some words.
func readyz(server *fixtures.Locket, code int, words string) error {
	resp, err := http.Get("http://" + server.HTTPAddress() + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != code || !strings.Contains(string(body), words) {
		return fmt.Errorf("%s %q (%w), want %d with %s", resp.Status, body, err, code, words)
	}
	return nil
}

// watchHealth watches the server's health, which is SERVING, and returns a function that returns the
// next state.
func watchHealth(t *testing.T, server *fixtures.Locket) func() (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	t.Helper()
	stream, err := grpc_health_v1.NewHealthClient(server.Connect(t)).Watch(t.Context(),
		&grpc_health_v1.HealthCheckRequest{Service: models.Locket_ServiceDesc.ServiceName})
	harness.Must(t, err)
	next := func() (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
		resp, err := stream.Recv()
		return resp.GetStatus(), err
	}
	if state, err := next(); err != nil || state != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("health says %v, %v", state, err)
	}
	return next
}

// Requests that do not complete are terminated, and the server ends nevertheless: at the latest after the
// timeout of the transaction in progress.
func TestEndWithStuckRequests(t *testing.T) {
	t.Parallel()
	database, proxy := harness.Proxied(t)
	server := fixtures.StartLocket(t, database, "--shutdown-timeout", "1s", "--database-timeout", "2s")
	client := server.Client(t)
	harness.Lock(t, client, "k", "o", time.Hour)
	proxy.Hang()
	before := requestsUnderWay(t, server)
	stuck := harness.Later(func() error {
		_, err := harness.TryLock(t, client, "stuck", "o", time.Hour)
		return err
	})
	harness.Until(t, "request under way", func() bool { return requestsUnderWay(t, server) > before || len(stuck) > 0 }) // or refused
	code, took := server.Terminate()
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	harness.AtMost(t, "the end", took, 4*time.Second)
	if err := <-stuck; status.Code(err) != codes.Unavailable {
		t.Errorf("the stuck request got %v", err)
	}
}

// An idle server with open connections ends at once.
func TestEndIsQuick(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	harness.Lock(t, server.Client(t), "k", "o", time.Hour)
	code, took := server.Terminate()
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	harness.AtMost(t, "the end", took, 2*time.Second)
}

// A flag overrides the environment, and that overrides the file. The port that
// listens shows which one was used.
func TestWhereSettingsComeFrom(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.json")
	fromFile, fromEnv, fromFlag := freeAddress(t), freeAddress(t), freeAddress(t)
	writeJSON(t, file, map[string]any{"http_address": fromFile, "grpc-address": "127.0.0.1:0", "history_limit": 2_000_000})
	for _, test := range []struct{ flag, env, want string }{
		{"", "", fromFile}, {"", fromEnv, fromEnv}, {fromFlag, fromEnv, fromFlag}, {fromFlag, "", fromFlag},
	} {
		args := []string{"server", "--config", file, "--database", harness.OneServer(t)}
		if test.flag != "" {
			args = append(args, "--http-address", test.flag)
		}
		cmd := exec.Command(fixtures.LocketProgram(t), args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Env = append(fixtures.CleanEnv(), "LOCKET_HTTP_ADDRESS="+test.env)
		harness.Must(t, cmd.Start())
		harness.Eventually(t, func() error {
			resp, err := http.Get("http://" + test.want + "/healthz")
			if err == nil {
				resp.Body.Close()
			}
			return err
		})
		harness.Must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}

	_, stderr, code := harness.RunLocket(t, []string{"LOCKET_HISTORY_LIMIT=many"}, "server")
	if code != exit.Usage || !strings.Contains(stderr, "LOCKET_HISTORY_LIMIT") {
		t.Errorf("a bad environment: exit code %d, %s", code, stderr)
	}
	writeJSON(t, file, map[string]any{"shutdown_timeout": "soon"})
	refused(t, []string{"server", "--config", file}, file, "shutdown-timeout")
	writeJSON(t, file, map[string]any{"shutdown_time": "1s"})
	refused(t, []string{"server", "--config", file}, file, "shutdown_time", "unknown setting")
	_, stderr, code = harness.RunLocket(t, []string{"LOCKET_CONFIG=" + file}, "server")
	if code != exit.Usage || !strings.Contains(stderr, "shutdown_time") {
		t.Errorf("a file named by the environment: exit code %d, %s", code, stderr)
	}
}

func freeAddress(t *testing.T) string { return "127.0.0.1:" + strconv.Itoa(fixtures.FreePort(t)) }

func writeJSON(t *testing.T, file string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	harness.Must(t, err)
	harness.Must(t, os.WriteFile(file, text, 0o600))
}

// With TLS the server may listen on all addresses, and refuses clients without a certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	server := harness.StartSecure(t, ca, "--tls-client-ca", ca.File)
	harness.Lock(t, server.Client(t), "k", "o", time.Hour)

	server.ClientTLS = ca.ClientTLS(t)
	server.ClientTLS.Certificates = nil
	if _, err := harness.TryLock(t, server.Client(t), "k", "o", time.Hour); status.Code(err) != codes.Unavailable {
		t.Errorf("without a certificate: %v", err)
	}
	server.ClientTLS = nil
	if _, err := harness.TryLock(t, server.Client(t), "k", "o", time.Hour); status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
	https := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}}}
	if resp, err := https.Get("https://" + server.HTTPAddress() + "/v1/claims/"); err == nil {
		resp.Body.Close()
		t.Errorf("HTTPS without a certificate: %s", resp.Status)
	}
	https = http.Client{Transport: &http.Transport{TLSClientConfig: ca.ClientTLS(t)}}
	resp, err := https.Get("https://" + server.HTTPAddress() + "/v1/claims/")
	harness.Must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("HTTPS: %s", resp.Status)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.OneServer(t)) // each server counts its own requests
	client := server.Client(t)
	const key, owner = "secret-key-name", "secret-owner-name"
	harness.Lock(t, client, key, owner, time.Hour)
	_, err := harness.TryLock(t, client, key, "other", time.Hour)
	if status.Code(err) != codes.AlreadyExists {
		t.Errorf("got %v", err)
	}
	harness.Lock(t, client, key, owner, time.Second) // which runs out
	harness.Create(t, client, key, "secret-claim-id", time.Hour)
	if _, err := client.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "secret-claim-id"}); err != nil {
		t.Fatal(err)
	}
	harness.Create(t, client, key, "secret-waiter", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = client.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: "secret-waiter"}) }()
	harness.Eventually(t, func() error { return harness.WantMetric(t, server, `locket_waiters 1`) })
	cancel()

	var metrics string
	harness.Until(t, "count of the claims", func() bool { // which is made at an interval
		metrics = harness.Scrape(t, server)
		return strings.Contains(metrics, `locket_claims{status="finished"}`)
	})
	for _, want := range []string{
		`locket_request_duration_seconds_count{code="OK",method="Lock"} 2`,
		`locket_request_duration_seconds_count{code="AlreadyExists",method="Lock"} 1`,
		`locket_request_duration_seconds_count{code="OK",method="CreateClaim"} 2`,
		`locket_expiries_total 1`,
		`locket_claims{status="waiting"}`, `locket_claims{status="active"}`, `locket_claims{status="finished"}`,
		`locket_batch_requests_count`, "\nlocket_last_commit_age_seconds ", "\nlocket_last_sweep_age_seconds ", "\nlocket_database_outages_total ", `locket_ready 1`, `locket_commit_duration_seconds_count`, `locket_commit_failures_total 0`,
		`go_goroutines`, `process_resident_memory_bytes`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(metrics, "secret") {
		t.Error("the metrics contain names of locks")
	}
	expired := 0
	for line := range strings.Lines(server.Log()) {
		switch {
		case strings.Contains(line, "a claim has expired") && strings.Contains(line, key) && strings.Contains(line, owner):
			expired++
		case strings.Contains(line, "secret"):
			t.Errorf("at level info the log contains names of locks that have not been lost: %s", line)
		}
	}
	if expired != 1 {
		t.Errorf("%d lines say that the lock has expired", expired)
	}
	harness.Eventually(t, func() error { return harness.WantMetric(t, server, `locket_waiters 0`) })
}

// Names are bytes.
func TestNamesAreBytes(t *testing.T) {
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		client := fixtures.StartLocket(t, database).Client(t)
		names := []string{"a", "A", "a ", "á", "a\u0301", "ａ", "%", "_", "a\n", "'", `\`}
		for _, name := range names {
			harness.Lock(t, client, name, "owner of "+name, time.Hour)
		}
		for _, name := range names {
			resp, err := client.Fetch(t.Context(), &models.FetchRequest{Key: name})
			if err != nil || resp.GetResource().GetKey() != name || resp.GetResource().GetOwner() != "owner of "+name {
				t.Errorf("%q: %v, %v", name, resp, err)
			}
			list, err := client.ListClaims(t.Context(), &models.ListClaimsRequest{Resource: &name})
			if err != nil || len(list.GetClaims()) != 1 {
				t.Errorf("%q: %v, %v", name, list, err)
			}
			// Owners and ids as well.
			if _, err := harness.TryLock(t, client, name, "Owner of "+name, time.Hour); status.Code(err) != codes.AlreadyExists {
				t.Errorf("another owner of %q: %v", name, err)
			}
		}
		if harness.Create(t, client, "ids", "id", time.Hour).GetToken() == harness.Create(t, client, "more ids", "ID", time.Hour).GetToken() {
			t.Error("id and ID are one claim")
		}
		all, err := client.FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK})
		if err != nil || len(all.GetResources()) != len(names)+2 {
			t.Errorf("%d locks, %v", len(all.GetResources()), err)
		}
	})
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	at := []string{"--address", server.Address()}
	run := func(args ...string) (string, string, int) { return harness.RunLocket(t, nil, append(args, at...)...) }

	first, stderr, code := run("lock", "k", "--owner", "me", "--ttl", "1h", "--value", "where I am")
	token, err := strconv.ParseUint(strings.TrimSpace(first), 10, 64)
	if code != 0 || err != nil || stderr != "" {
		t.Fatalf("lock: exit code %d, %q, %q", code, first, stderr)
	}
	if again, _, code := run("lock", "k", "--owner", "me", "--ttl", "1h", "--value", "where I am"); code != 0 || again != first {
		t.Errorf("lock again: exit code %d, %q, want %q", code, again, first)
	}
	if _, stderr, code := run("lock", "k", "--owner", "you"); code != exit.Held || !strings.Contains(stderr, "lock-collision") {
		t.Errorf("lock by another: exit code %d, %q", code, stderr)
	}
	want := "me\t" + strconv.FormatUint(token, 10) + "\twhere I am\n"
	if held, _, code := run("fetch", "k"); code != 0 || held != want {
		t.Errorf("fetch: exit code %d, %q, want %q", code, held, want)
	}
	if held, _, code := harness.RunLocket(t, []string{"LOCKET_ADDRESS=" + server.Address()}, "fetch", "k"); code != 0 || held != want {
		t.Errorf("fetch with $LOCKET_ADDRESS: exit code %d, %q", code, held)
	}
	if _, stderr, code := run("release", "k", "--owner", "me", "--token", strconv.FormatUint(token+1, 10)); code != exit.NotFound || !strings.Contains(stderr, "resource-not-found") {
		t.Errorf("release of another grant: exit code %d, %q", code, stderr)
	}
	if out, stderr, code := run("release", "k", "--owner", "me", "--token", strconv.FormatUint(token, 10)); code != 0 || out+stderr != "" {
		t.Errorf("release: exit code %d, %q", code, out+stderr)
	}
	if _, stderr, code := run("fetch", "k"); code != exit.NotFound || !strings.Contains(stderr, "resource-not-found") {
		t.Errorf("fetch of a free lock: exit code %d, %q", code, stderr)
	}
	if _, _, code := run("lock", "p", "--owner", "me", "--presence", "--ttl", "1h"); code != 0 {
		t.Errorf("lock --presence: exit code %d", code)
	}
	presences, err := server.Client(t).FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: models.TypeCode_PRESENCE})
	if err != nil || len(presences.GetResources()) != 1 {
		t.Errorf("presences: %v, %v", presences, err)
	}
	for _, args := range [][]string{{"--help"}, {"--version"}, {"server", "--help"}, {}} {
		if out, stderr, code := harness.RunLocket(t, nil, args...); code != 0 || out == "" || stderr != "" {
			t.Errorf("locket %q: exit code %d, %q", args, code, stderr)
		}
	}
}

// TestReadinessOfDatabase: while the database is unavailable the server is alive and not ready, over HTTP
// and over gRPC, with the reason; afterwards it is ready again.
func TestReadinessOfDatabase(t *testing.T) {
	t.Parallel()
	database, proxy := harness.Proxied(t)
	server := fixtures.StartLocket(t, database, "--database-timeout", "3s")
	service := models.Locket_ServiceDesc.ServiceName
	client := grpc_health_v1.NewHealthClient(server.Connect(t))
	is := func(name string, want grpc_health_v1.HealthCheckResponse_ServingStatus, code int, reason string) error {
		resp, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil || resp.GetStatus() != want {
			return fmt.Errorf("the health of %q is %v (%w), want %v", name, resp.GetStatus(), err, want)
		}
		page, err := http.Get("http://" + server.HTTPAddress() + map[bool]string{true: "/healthz", false: "/readyz"}[name == ""])
		if err != nil {
			return err
		}
		defer page.Body.Close()
		body, err := io.ReadAll(page.Body)
		if err != nil || page.StatusCode != code || !strings.Contains(string(body), reason) {
			return fmt.Errorf("%s %q (%w), want %d %q", page.Status, body, err, code, reason)
		}
		return nil
	}
	const up, down = grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING
	harness.Eventually(t, func() error { return is(service, up, 200, "ready") })
	for name, fault := range map[string]func(){"refused": proxy.Cut, "hanging": proxy.Hang} {
		fault()
		harness.Eventually(t, func() error { return is(service, down, 503, "not ready: the database") })
		if err := is("", up, 200, "ok"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		harness.Must(t, harness.WantMetric(t, server, "locket_ready 0"))
		proxy.Restore()
		harness.Eventually(t, func() error { return is(service, up, 200, "ready") })
	}
	harness.Eventually(t, func() error { return harness.WantMetric(t, server, "locket_ready 1") })
	if log := server.Log(); !strings.Contains(log, "not ready") || !strings.Contains(log, "ready again") {
		t.Error("the log does not say so")
	}
}

// TestDatabaseThatLoses: a server on a database whose settings may lose acknowledged commits reports that in its log
// when it starts, and on /readyz, and is ready.
func TestDatabaseThatLoses(t *testing.T) {
	t.Parallel()
	mariadb := fixtures.NewMariaDB(t, fixtures.WithServerArgs("--innodb-flush-log-at-trx-commit=0"))
	server := fixtures.StartLocket(t, "mysql:"+harness.Unhurried(t, mariadb.CreateDatabase(t)))
	const setting = "innodb_flush_log_at_trx_commit is 0, not 1"
	harness.Eventually(t, func() error { return readyz(server, http.StatusOK, "\nwarning: "+setting) })
	server.Terminate() // then its log is complete
	for _, line := range strings.Split(server.Log(), "\n") {
		if strings.Contains(line, "the database may lose what was acknowledged") && strings.Contains(line, setting) {
			return
		}
	}
	t.Error("the log does not name the setting")
}

// TestDatabasePassword: the password of the database comes from a file or the environment, and appears
// in no output.
func TestDatabasePassword(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(harness.MySQL(t))
	harness.Must(t, err)
	const password = "s3cret/p@ss"
	admin, err := sql.Open("mysql", config.FormatDSN())
	harness.Must(t, err)
	defer admin.Close()
	config.User = "u_" + config.DBName
	for _, statement := range []string{"CREATE USER " + config.User + "@'%' IDENTIFIED BY '" + password + "'", "GRANT ALL ON " + config.DBName + ".* TO " + config.User + "@'%'"} {
		_, err := admin.ExecContext(t.Context(), statement)
		harness.Must(t, err)
	}
	defer admin.Exec("DROP USER " + config.User + "@'%'")
	database := "mysql:" + config.FormatDSN()
	file := filepath.Join(t.TempDir(), "password")
	harness.Must(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	for name, server := range map[string]*fixtures.Locket{
		"a file":          fixtures.NewLocket(t, database, "--database-password-file", file),
		"the environment": fixtures.NewLocket(t, database),
	} {
		if name == "the environment" {
			server.Env = []string{"LOCKET_DATABASE_PASSWORD=" + password}
		}
		if err := server.Start(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		harness.Lock(t, server.Client(t), name, "o", time.Hour)
		server.Terminate()
		if strings.Contains(server.Log(), "s3cret") {
			t.Errorf("%s: the log contains the password", name)
		}
	}
	refused(t, []string{"server", "--database", database, "--database-wait", "0s", "--http-address=", "--grpc-address", "127.0.0.1:0"}, "Access denied")
}
