package program_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// lines runs a program, and returns its output as it comes.
func lines(t *testing.T, env []string, program string, args ...string) (out <-chan string, cmd *exec.Cmd) {
	t.Helper()
	ctx := t.Context()
	cmd = exec.CommandContext(ctx, program, args...)
	cmd.Env = append(fixtures.CleanEnv(), env...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	harness.Must(t, err)
	harness.Must(t, cmd.Start())
	read := make(chan string)
	go func() {
		defer close(read)
		for scanner := bufio.NewScanner(pipe); scanner.Scan(); {
			select {
			case read <- scanner.Text():
			case <-ctx.Done():
				_, _ = io.Copy(io.Discard, pipe)
				return
			}
		}
	}()
	return read, cmd
}

func awaitLine(t *testing.T, from <-chan string, parts ...string) string {
	t.Helper()
	select {
	case got := <-from:
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("got %q, want %q in it", got, part)
			}
		}
		return got
	case <-time.After(harness.HangTimeout):
		t.Fatalf("no line with %q", parts)
		return ""
	}
}

// TestWatchCommand: `locket watch` shows the live claims and their changes, and continues after its server
// was killed.
func TestWatchCommand(t *testing.T) {
	t.Parallel()
	database := "mysql:" + harness.MySQL(t)
	first, second := fixtures.StartLocket(t, database), fixtures.StartLocket(t, database)
	env := []string{"LOCKET_ADDRESS=" + first.Address() + "," + second.Address(), "LOCKET_CONTEXT_FILE=" + os.DevNull}
	client := second.Client(t)
	harness.Create(t, client, "r", "a", time.Hour)
	begin, _ := lines(t, env, fixtures.LocketProgram(t), "watch", "r")
	awaitLine(t, begin, " r ", " a ", "active")
	machine, cmd := lines(t, env, fixtures.LocketProgram(t), "watch", "--prefix", "r", "-o", "json")
	awaitLine(t, machine, `"event":"claim"`)
	var synced, last struct{ Cursor string }
	harness.Must(t, json.Unmarshal([]byte(awaitLine(t, machine, `"event":"synced"`)), &synced))
	people, _ := lines(t, env, fixtures.LocketProgram(t), "watch", "r", "--cursor", synced.Cursor)
	harness.Create(t, client, "r", "b", time.Hour)
	awaitLine(t, people, " b ", "waiting")
	awaitLine(t, machine, `"event":"transition"`, `"id":"b"`)
	first.Kill()
	harness.Release(t, client, "a")
	awaitLine(t, people, "active > released")
	awaitLine(t, people, "waiting > active")
	awaitLine(t, machine, `"status":"released"`)
	harness.Must(t, json.Unmarshal([]byte(awaitLine(t, machine, `"before":"waiting"`)), &last))
	harness.Must(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("it ended with %v", err)
	}
	harness.Release(t, client, "b")
	file := t.TempDir() + "/seen"
	_, stderr, code := harness.RunLocket(t, env, "watch", "r", "--cursor", last.Cursor, "--exec",
		fmt.Sprintf(`echo "$LOCKET_NAME $LOCKET_ID $LOCKET_BEFORE $LOCKET_STATUS" >> %s; exit 7`, file))
	seen, _ := os.ReadFile(file)
	if code != 7 || string(seen) != "r b active released\n" || !strings.Contains(stderr, "--cursor "+last.Cursor) {
		t.Errorf("status %d, %q, %s", code, seen, stderr)
	}
	_, stderr, code = harness.RunLocket(t, env, "watch", "--cursor", "x")
	if code != 2 || !strings.Contains(stderr, "cursor") {
		t.Errorf("status %d, %s", code, stderr)
	}
}

// TestWatchReset: the embedded engine knows no old cursors after a restart, except in a cluster. JSON output then tells its reader to forget
// its state, before the live claims follow.
func TestWatchReset(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.OneServer(t))
	client := server.Client(t)
	harness.Create(t, client, "r", "a", time.Hour)
	out, _ := lines(t, []string{"LOCKET_ADDRESS=" + server.Address(), "LOCKET_CONTEXT_FILE=" + os.DevNull}, fixtures.LocketProgram(t), "watch", "r", "-o", "json")
	for range 2 {
		awaitLine(t, out, `"event":"claim"`, `"id":"a"`)
		awaitLine(t, out, `"event":"synced"`)
		harness.Must(t, server.Restart())
		awaitLine(t, out, `{"event":"reset","cursor":null}`)
	}
}

// TestPythonWatch: the example shows the changes, also across a restart of the server.
func TestPythonWatch(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, "mysql:"+harness.MySQL(t))
	client := server.Client(t)
	harness.Create(t, client, "jobs/1", "a", time.Hour)
	out, _ := lines(t, nil, python, "../../examples/python/watch.py", "http://"+server.HTTPAddress(), "jobs/")
	awaitLine(t, out, "jobs/1 a is active")
	awaitLine(t, out, "these were all; changes follow") // earlier changes may be part of the snapshot
	harness.Create(t, client, "other", "x", time.Hour)
	harness.Create(t, client, "jobs/1", "b", time.Hour)
	awaitLine(t, out, "jobs/1 b None -> waiting")
	harness.Must(t, server.Restart())
	harness.Release(t, client, "a")
	awaitLine(t, out, "jobs/1 a active -> released")
	awaitLine(t, out, "jobs/1 b waiting -> active")
}
