package program_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	locketserver "github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/tests/harness"
)

// bash runs a command line of the README.
func bash(t *testing.T, line string, env ...string) (output string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.HangTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.WaitDelay = time.Second // its background jobs may have its output open
	cmd.Env = append(fixtures.CleanEnv(), env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func TestReadmeCommandLine(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	lines := harness.CommandsOf(t, "../../README.md", "Start", "./locket")
	if len(lines) != 6 {
		t.Fatalf("%q, want lock, lock by another, fetch, release, and two runs", lines)
	}
	run := func(i int) (string, error) {
		line := strings.Replace(lines[i], "./locket", fixtures.LocketProgram(t), 1)
		return bash(t, line, "LOCKET_ADDRESS="+server.Address())
	}
	token, err := run(0)
	if n, bad := strconv.ParseUint(strings.TrimSpace(token), 10, 64); err != nil || bad != nil || n == 0 {
		t.Errorf("%s: %v, %q", lines[0], err, token)
	}
	if output, err := run(1); err == nil || !strings.Contains(output, "lock-collision") {
		t.Errorf("%s: %v, %q", lines[1], err, output)
	}
	if output, err := run(2); err != nil || strings.TrimSpace(output) != "me\t"+strings.TrimSpace(token) {
		t.Errorf("%s: %v, %q", lines[2], err, output)
	}
	if output, err := run(3); err != nil || output != "" {
		t.Errorf("%s: %v, %q", lines[3], err, output)
	}
	if output, err := run(2); err == nil {
		t.Errorf("the lock was not released: %s", output)
	}
}

// TestReadmeKill: the holder of a lock is killed, and the next in the queue runs its command.
func TestReadmeKill(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	runs := harness.CommandsOf(t, "../../README.md", "Start", "./locket run")
	kills := harness.CommandsOf(t, "../../README.md", "Start", "kill")
	if len(runs) != 2 || len(kills) != 1 {
		t.Fatalf("%q, %q, want two runs and one kill", runs, kills)
	}
	const waitFor = `until ./locket resource demo -o json | grep -q '"%s": 1'; do sleep 0.1; done`
	script := strings.Join([]string{
		runs[0], `until ./locket fetch demo >/dev/null 2>&1; do sleep 0.1; done`, runs[1], fmt.Sprintf(waitFor, "waiting"), kills[0], "wait %2",
	}, "\n")
	output, err := bash(t, strings.ReplaceAll(script, "./locket", fixtures.LocketProgram(t)), "LOCKET_ADDRESS="+server.Address())
	if err != nil || !strings.Contains(output, "my turn\n") {
		t.Errorf("%s: %v, %q", script, err, output)
	}
}

// curlAnswer is the answer to a command with curl: members of a claim, or of a resource.
type curlAnswer struct {
	Status, Owner string
	Token         uint64
	TTL           float64
	Holders       []curlAnswer
	Waiting       int
}

// runCurl runs a line with curl against a server.
func runCurl(t *testing.T, server *fixtures.Locket, line string) (code string, answer curlAnswer, err error) {
	t.Helper()
	const quiet = `curl() { command curl -q --silent --show-error --max-time 20 --write-out '\n%{http_code}' "$@"; }` + "\n"
	output, err := bash(t, quiet+strings.ReplaceAll(line, locketserver.DefaultHTTPAddress, server.HTTPAddress()), "no_proxy=127.0.0.1")
	if err != nil {
		return "", answer, fmt.Errorf("%s: %w, %s", line, err, output)
	}
	end := strings.LastIndexByte(output, '\n')
	body, code := strings.TrimSpace(output[:end]), output[end+1:]
	if body != "" {
		err = json.Unmarshal([]byte(body), &answer)
	}
	return code, answer, err
}

func TestReadmeHTTP(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatalf("%v; install it with: apt-get install -y --no-install-recommends curl", err)
	}
	server := fixtures.StartLocket(t, harness.Embedded(t))
	lines := harness.CommandsOf(t, "../../README.md", "Over HTTP", "curl")
	if len(lines) != 5 {
		t.Fatalf("%d lines with curl, want claim, look, wait, renew, release: %q", len(lines), lines)
	}
	claim, look, wait, renew, release := lines[0], lines[1], lines[2], lines[3], lines[4]
	run := func(line, wantCode string) curlAnswer {
		t.Helper()
		code, answer, err := runCurl(t, server, line)
		if code != wantCode || err != nil {
			t.Fatalf("%s: %s, %+v, %v; want %s", line, code, answer, err, wantCode)
		}
		return answer
	}

	first := run(claim, "201")
	if first.Status != "active" || first.Owner != "me" || first.Token == 0 {
		t.Errorf("%s: %+v", claim, first)
	}
	if again := run(claim, "201"); again.Token != first.Token {
		t.Errorf("%s, again: %+v, first %+v", claim, again, first)
	}
	seen := run(look, "200")
	if len(seen.Holders) != 1 || seen.Holders[0].Owner != "me" || seen.Holders[0].Token != first.Token || seen.Waiting != 0 {
		t.Errorf("%s: %+v", look, seen)
	}

	var second curlAnswer
	waited := harness.Later(func() error { // the other terminal
		code, answer, err := runCurl(t, server, wait)
		if second = answer; err == nil && code != "201" {
			err = fmt.Errorf("%s: %s, %+v, want 201", wait, code, answer)
		}
		return err
	})
	harness.Eventually(t, func() error {
		if seen := run(look, "200"); seen.Waiting != 1 {
			return fmt.Errorf("%s: %+v, want one that waits", look, seen)
		}
		return nil
	})

	if renewed := run(renew, "200"); renewed.Token != first.Token || renewed.TTL < 290 {
		t.Errorf("%s: %+v", renew, renewed)
	}
	if answer := run(release, "204"); answer.Status != "" {
		t.Errorf("%s: %+v, want no body", release, answer)
	}
	harness.Must(t, <-waited)
	if second.Status != "active" || second.Owner != "you" || second.Token <= first.Token {
		t.Errorf("%s: %+v after %+v", wait, second, first)
	}
	for _, path := range []string{"/docs", "/openapi.json", "/metrics"} { // the README mentions them
		if code, err := get(t, server, path); code != http.StatusOK {
			t.Errorf("%s: %d, %v", path, code, err)
		}
	}
}

func get(t *testing.T, server *fixtures.Locket, path string) (code int, err error) {
	t.Helper()
	resp, err := http.Get("http://" + server.HTTPAddress() + path)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// The files that the README mentions exist.
func TestReadmeLinks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	harness.Must(t, err)
	links := strings.Split(string(text), "](")[1:]
	for _, link := range links {
		target, _, _ := strings.Cut(link, ")")
		if strings.HasPrefix(target, "https://") {
			continue
		}
		if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
			t.Error(err)
		}
	}
	if len(links) < 10 {
		t.Errorf("%d links", len(links))
	}
}
