package program_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// deployment is a Locket as Cloud Foundry deploys it: started with one flag and a configuration file with every field
// of its release, on a MariaDB that requires a password and TLS.
type deployment struct {
	server *fixtures.Locket
	file   string
	config map[string]any
	debug  string
}

func deploy(t *testing.T, form func(file string) []string) *deployment {
	t.Helper()
	ca := fixtures.NewCA(t)
	dbCert, dbKey := ca.Issue(t, "db", func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"sql-db.service.cf.internal"} })
	mariadb := fixtures.NewMariaDB(t, fixtures.WithServerArgs("--ssl-ca="+ca.File, "--ssl-cert="+dbCert, "--ssl-key="+dbKey))
	admin, err := sql.Open("mysql", mariadb.DSN(""))
	harness.Must(t, err)
	defer admin.Close()
	for _, statement := range []string{"CREATE DATABASE locket", "CREATE USER diego@'%' IDENTIFIED BY 's3cret' REQUIRE SSL", "GRANT ALL ON locket.* TO diego@'%'"} {
		_, err := admin.ExecContext(t.Context(), statement)
		harness.Must(t, err)
	}
	cert, key := ca.Issue(t, "locket")
	d := &deployment{server: fixtures.NewLocket(t, ""), file: filepath.Join(t.TempDir(), "locket.json"), debug: freeAddress(t)}
	d.server.ClientTLS = ca.ClientTLS(t)
	d.server.RunAs(form(d.file)...)
	d.config = map[string]any{
		"listen_address":                   d.server.Address(),
		"database_driver":                  "mysql",
		"database_connection_string":       "diego:s3cret@tcp(" + mariadb.Addr() + ")/locket",
		"max_open_database_connections":    200,
		"max_database_connection_lifetime": "1h",
		"db_connection_timeout":            "5s",
		"sql_ca_cert_file":                 ca.File,
		"sql_enable_identity_verification": false,
		"ca_file":                          ca.File,
		"cert_file":                        cert,
		"key_file":                         key,
		"debug_address":                    d.debug,
		"log_level":                        "info",
		"report_interval":                  "1m",
		"enable_db_health_check":           true,
		"loggregator":                      map[string]any{"loggregator_api_port": 3458, "loggregator_use_v2_api": true},
	}
	return d
}

// start starts the server with the current configuration.
func (d *deployment) start(t *testing.T) {
	t.Helper()
	writeJSON(t, d.file, d.config)
	harness.Must(t, d.server.Start())
}

// line is a line of the log.
type line struct {
	Timestamp, Level, Source, Message string
	LogLevel                          *int `json:"log_level"`
	Data                              map[string]any
}

// lines returns all that the server has printed: each line is one of the log.
func (d *deployment) lines(t *testing.T) (lines []line) {
	t.Helper()
	for text := range strings.Lines(d.server.Log()) {
		var parsed line
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&parsed); err != nil || parsed.Source != "locket" || !strings.HasPrefix(parsed.Message, "locket.") || parsed.Data == nil {
			t.Errorf("not a line of that log: %q, %v", text, err)
		}
		lines = append(lines, parsed)
	}
	return lines
}

// said returns the first log line with a message.
func said(t *testing.T, lines []line, message string) line {
	t.Helper()
	at := slices.IndexFunc(lines, func(l line) bool { return l.Message == message })
	if at < 0 {
		t.Fatalf("the log has no %s: %+v", message, lines)
	}
	return lines[at]
}

// TestCloudFoundry: the server replaces Cloud Foundry's Locket, with each form of its command
// line, and serves the same: gRPC with mutual TLS, and operations.
func TestCloudFoundry(t *testing.T) {
	t.Parallel()
	d := deploy(t, func(file string) []string { return []string{"-config=" + file} })
	d.start(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "uuid", "7e2a16d0-56a7-40dc-5d04-ca7275364cc2")
	client := d.server.Client(t)
	lock := &models.LockRequest{Resource: &models.Resource{Key: "bbs", Owner: "cell", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 15}
	for range 2 {
		_, err := harness.Answered(t, func() (*models.LockResponse, error) { return client.Lock(ctx, lock) })
		harness.Must(t, err)
	}
	for _, want := range []codes.Code{codes.OK, codes.NotFound} {
		_, err := harness.Answered(t, func() (*models.ReleaseResponse, error) {
			return client.Release(ctx, &models.ReleaseRequest{Resource: lock.GetResource()})
		})
		if status.Code(err) != want {
			t.Errorf("release: %v, want %v", err, want)
		}
	}
	for path, want := range map[string]string{"/debug/pprof/": "goroutine", "/metrics": "locket_ready 1", "/readyz": "ready", "/healthz": "ok"} {
		resp, err := http.Get("http://" + d.debug + path)
		harness.Must(t, err)
		var body bytes.Buffer
		_, err = body.ReadFrom(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(body.String(), want) {
			t.Errorf("%s: %s, %v", path, resp.Status, err)
		}
	}
	if conn, err := net.DialTimeout("tcp", d.server.HTTPAddress(), time.Second); err == nil {
		conn.Close()
		t.Error("it serves HTTP, which nobody asked for")
	}
	if code, _ := d.server.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	lines := d.lines(t)
	started := said(t, lines, "locket.started")
	if seconds, err := strconv.ParseFloat(started.Timestamp, 64); err != nil || time.Since(time.Unix(int64(seconds), 0)) > time.Hour || started.LogLevel == nil || *started.LogLevel != 1 { // real time: an hour is long enough for any machine
		t.Errorf("started: %+v", started)
	}
	ignored := said(t, lines, "locket.fields-of-the-configuration-file-without-effect")
	want := []any{"enable_db_health_check", "loggregator", "max_database_connection_lifetime", "max_open_database_connections", "report_interval"}
	if got, _ := ignored.Data["fields"].([]any); !slices.Equal(got, want) {
		t.Errorf("without effect: %v, want %v", got, want)
	}
	for _, message := range []string{"locket.lock.lock.acquired-lock", "locket.lock.lock.renewed-lock", "locket.release.release-lock.released-lock"} {
		got := said(t, lines, message)
		if got.Data["key"] != "bbs" || got.Data["owner"] != "cell" || got.Data["type"] != "lock" || got.Data["type-code"] != 1.0 ||
			got.Data["request-uuid"] != "7e2a16d0-56a7-40dc-5d04-ca7275364cc2" || *got.LogLevel != 1 {
			t.Errorf("%+v", got)
		}
	}
	if n := strings.Count(d.server.Log(), "acquired-lock"); n != 1 {
		t.Errorf("%d locks were acquired; one was, and renewed", n)
	}
	if said(t, lines, "locket.exited"); strings.Contains(d.server.Log(), "s3cret") {
		t.Error("the log contains the password of the database")
	}
}

// With timestamps in RFC 3339 levels are words, as in current deployments; the level is
// respected; flags may add HTTP and other settings to the file; and a database whose
// certificate is for another host is refused if host names must be verified.
func TestCloudFoundryVariants(t *testing.T) {
	t.Parallel()
	d := deploy(t, func(file string) []string { return []string{"--config", file} })
	d.config["time_format"], d.config["log_level"] = "rfc3339", "debug"
	d.server.Env = []string{"LOCKET_HTTP_ADDRESS=" + d.server.HTTPAddress()}
	d.start(t)
	client := d.server.Client(t)
	_, err := harness.Answered(t, func() (uint64, error) { return harness.TryLock(t, client, "k", "o", time.Hour) })
	harness.Must(t, err)
	https := http.Client{Transport: &http.Transport{TLSClientConfig: d.server.ClientTLS}}
	resp, err := https.Get("https://" + d.server.HTTPAddress() + "/v1/claims/")
	harness.Must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("HTTP that was asked for: %s", resp.Status)
	}
	d.server.Terminate()
	lines := d.lines(t)
	started := said(t, lines, "locket.started")
	if at, err := time.Parse(time.RFC3339Nano, started.Timestamp); err != nil || time.Since(at) > time.Hour || started.Level != "info" || started.LogLevel != nil { // real time: an hour is long enough for any machine
		t.Errorf("started: %+v", started)
	}
	if request := said(t, lines, "locket.request"); request.Level != "debug" || request.Data["method"] == nil {
		t.Errorf("log_level was not respected: %+v", request)
	}

	d.config["sql_enable_identity_verification"] = true
	writeJSON(t, d.file, d.config)
	d.server.Env = append(d.server.Env, "LOCKET_DATABASE_WAIT=0s")
	harness.Must(t, d.server.Launch())
	if code, err := d.server.Wait(harness.HangTimeout); code != exit.Failure || err != nil || !strings.Contains(d.server.Log(), "locket.exited-with-failure") || !strings.Contains(d.server.Log(), "certificate") {
		t.Errorf("a certificate for another host: exit code %d, %v", code, err)
	}
}

// An invalid file ends the program with status 2, and with the error message of Cloud
// Foundry's Locket.
func TestCloudFoundryInvalidFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locket.json")
	for content, word := range map[string]string{
		`{`:                               "unexpected end of JSON input",
		`{"listen_address": ":1"}`:        "database_connection_string",
		`{"database_driver": "postgres"}`: "postgres",
		`{"database_connection_string": "x", "history_limit": "many"}`: "many",
	} {
		harness.Must(t, os.WriteFile(file, []byte(content), 0o600))
		for _, args := range [][]string{{"-config=" + file}, {"-config", file}, {"--config=" + file}} {
			_, stderr, code := harness.RunLocket(t, nil, args...)
			if code != 2 || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "locket: invalid-config-file: ") || !strings.Contains(stderr, word) || !strings.Contains(stderr, file) {
				t.Errorf("%s: exit code %d, %q", content, code, stderr)
			}
		}
	}
	if _, stderr, code := harness.RunLocket(t, nil, "-config=/nosuch"); code != 2 || !strings.Contains(stderr, "invalid-config-file") || !strings.Contains(stderr, "/nosuch") {
		t.Errorf("no file: exit code %d, %q", code, stderr)
	}
	// Invalid values have the same status.
	if _, stderr, code := harness.RunLocket(t, nil, "server", "--log-level", "loud"); code != 2 || !strings.Contains(stderr, "--log-level") {
		t.Errorf("a value: exit code %d, %q", code, stderr)
	}
}

// The log goes to standard output, where Cloud Foundry collects it; standard error is empty.
func TestCloudFoundryStandardOutput(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locket.json")
	writeJSON(t, file, map[string]any{"listen_address": "127.0.0.1:0", "database_connection_string": fixtures.MySQL(t)})
	program := fixtures.LocketProgram(t) // which may take minutes to build
	ctx, cancel := context.WithTimeout(t.Context(), harness.HangTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-config="+file)
	cmd.Env = fixtures.CleanEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stdout, stderr fixtures.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	harness.Must(t, cmd.Start())
	harness.Eventually(t, func() error {
		if !strings.Contains(stdout.String(), `"message":"locket.started"`) {
			return os.ErrNotExist
		}
		return nil
	})
	harness.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil || stderr.String() != "" {
		t.Errorf("%v, standard error: %q", err, stderr.String())
	}
}
