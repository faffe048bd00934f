package run_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// runner is a locket run under test.
type runner struct {
	t           *testing.T
	cmd         *exec.Cmd
	out, stderr fixtures.Buffer
	mark        string
	ended       chan struct{}
}

// runServer returns a server for the tests of locket run below t.
func runServer(t *testing.T) *fixtures.Locket {
	t.Helper()
	return fixtures.StartLocket(t, harness.Embedded(t))
}

// newRunner returns a locket run that is not started. All of its descendants have a mark in
// their environment.
func newRunner(t *testing.T, address string, args ...string) *runner {
	t.Helper()
	r := &runner{t: t, mark: "RUN_MARK=" + rand.Text(), ended: make(chan struct{})}
	r.cmd = exec.Command(fixtures.LocketProgram(t), append([]string{"run"}, args...)...)
	r.cmd.Env = append(fixtures.CleanEnv(), r.mark, "LOCKET_ADDRESS="+address, "LOCKET_CONTEXT_FILE="+os.DevNull)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.stderr
	r.cmd.Dir = t.TempDir()
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	t.Cleanup(func() {
		for left := marked(t, r.mark); len(left) > 0; left = marked(t, r.mark) {
			for _, pid := range left {
				defer os.Remove(groupOf(pid)) // which nobody is left to remove
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			time.Sleep(time.Millisecond) // real time: the pause between two looks
		}
		if t.Failed() {
			t.Logf("locket run %q\n%s%s", args, &r.out, &r.stderr)
		}
	})
	return r
}

// start starts it.
func (r *runner) start() *runner {
	r.t.Helper()
	harness.Must(r.t, r.cmd.Start())
	go func() {
		_ = r.cmd.Wait()
		close(r.ended)
	}()
	return r
}

func startRun(t *testing.T, address string, args ...string) *runner {
	t.Helper()
	return newRunner(t, address, args...).start()
}

// shell starts a locket run of a shell script.
func shell(t *testing.T, address, name, script string, flags ...string) *runner {
	t.Helper()
	return startRun(t, address, append(append([]string{name}, flags...), "--", "sh", "-c", script)...)
}

// wait returns the status once it has ended.
func (r *runner) wait() int {
	r.t.Helper()
	select {
	case <-r.ended:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(harness.HangTimeout):
		r.t.Fatalf("it runs on: %v\n%s%s", r.cmd.Args, &r.out, &r.stderr)
		return 0
	}
}

// ends waits for the end, with a status, and nothing left; and, when the status is Locket's,
// with one line, that has the words.
func (r *runner) ends(status int, words ...string) {
	r.t.Helper()
	if got := r.wait(); got != status {
		r.t.Errorf("status %d, want %d: %s", got, status, &r.stderr)
	}
	r.leavesNothing()
	for _, word := range words {
		if !strings.Contains(r.stderr.String(), word) {
			r.t.Errorf("nothing of %q in %q", word, &r.stderr)
		}
	}
	text := strings.ReplaceAll(r.stderr.String(), "Terminated\n", "") // which a shell says of its children
	if len(words) > 0 && (!strings.HasPrefix(text, "locket: ") || strings.Count(text, "\n") != 1) {
		r.t.Errorf("not one line: %q", text)
	}
}

// prints waits for a word.
func (r *runner) prints(word string) {
	r.t.Helper()
	r.eventually("prints "+word, func() bool { return strings.Contains(r.out.String(), word) })
}

func (r *runner) eventually(what string, is func() bool) {
	r.t.Helper()
	harness.Until(r.t, what, is)
}

func (r *runner) signal(sig syscall.Signal) {
	r.t.Helper()
	harness.Must(r.t, r.cmd.Process.Signal(sig))
}

// leavesNothing waits until the run has ended, and checks that no descendant of it is left.
func (r *runner) leavesNothing() {
	r.t.Helper()
	r.eventually("nothing is left", func() bool { return len(marked(r.t, r.mark)) == 0 })
}

// marked returns the processes that bear a mark.
func marked(t *testing.T, mark string) (pids []int) {
	for _, pid := range harness.Processes(t) {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && bytes.Contains(env, []byte(mark)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// helperPid returns the process that guards the command, or its reaper.
func (r *runner) helperPid(flag string) int {
	r.t.Helper()
	pid := r.findHelper(flag)
	if pid == 0 {
		r.t.Fatalf("no %s runs", flag)
	}
	return pid
}

// findHelper is helperPid; 0 if there is none.
func (r *runner) findHelper(flag string) int {
	for _, pid := range marked(r.t, r.mark) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(line, []byte("\x00--"+flag+"=")) {
			return pid
		}
	}
	return 0
}

// groupOf returns the control group that a guard or a reaper has been given, "" if none.
func groupOf(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	for _, flag := range []string{"--guard=", "--reaper="} {
		if _, value, ok := strings.Cut(string(line), "\x00"+flag); ok {
			value, _, _ = strings.Cut(value, "\x00")
			return strings.SplitN(value, ",", 4)[3]
		}
	}
	return ""
}

// queue waits until so many hold a name, and so many wait.
func (r *runner) queue(client models.LocketClient, name string, holders, waiting int) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d hold and %d wait", holders, waiting), func() bool {
		q, err := client.GetQueue(r.t.Context(), &models.GetQueueRequest{Resource: name})
		harness.Must(r.t, err)
		return len(q.GetHolders()) == holders && int(q.GetWaiting()) == waiting
	})
}

// unheld fails unless nobody holds a name, at once.
func unheld(t *testing.T, client models.LocketClient, name string) {
	t.Helper()
	q, err := client.GetQueue(t.Context(), &models.GetQueueRequest{Resource: name})
	if err != nil || len(q.GetHolders()) != 0 || q.GetWaiting() != 0 {
		t.Errorf("%s: %v, %v", name, q, err)
	}
}

// locket run exits with the command's exit code; the lock is free then.
func TestRunStatus(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	for script, status := range map[string]int{
		"true": 0, "exit 1": 1, "exit 7": 7, "exit 255": 255, "exit 123": 123,
		"kill -KILL $$": 137, "kill -TERM $$": 143, "kill -INT $$": 130, "kill -SEGV $$": 139, "nosuchcommand": 127,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			r := shell(t, server.Address(), script, "exec 2>/dev/null; "+script)
			r.ends(status)
			if r.out.String()+r.stderr.String() != "" {
				t.Errorf("it says %q, %q", &r.out, &r.stderr)
			}
			unheld(t, client, script)
		})
	}
}

// A command that cannot be executed is found out before the lock is requested: no server runs.
func TestRunUnusable(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		harness.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), mode))
	}
	write("plain", "text", 0o644)
	write("script", "#!/bin/sh\nexit 9\n", 0o755)
	for name, test := range map[string]struct {
		status int
		word   string
	}{
		"nosuch":             {127, "command not found"},
		"./nosuch":           {127, "command not found"},
		"/etc/passwd/nosuch": {127, "command not found"},
		"":                   {127, "command not found"},
		"plain":              {126, "permission denied"},
		"./plain":            {126, "permission denied"},
		"./":                 {126, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t, "127.0.0.1:1", "n", "--", name)
			r.cmd.Dir = folder
			r.cmd.Env = append(r.cmd.Env, "PATH=/nosuch:"+folder)
			r.start().ends(test.status, test.word)
		})
	}
}

// Some errors are found only when the command is executed.
func TestRunNotExecutable(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	folder := t.TempDir()
	for name, text := range map[string]string{"format": "no magic here\x00\n", "interpreter": "#!/nosuch/interpreter\n"} {
		harness.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755))
		startRun(t, server.Address(), name, "--", filepath.Join(folder, name)).ends(126, name, "cannot be executed")
		unheld(t, server.Client(t), name)
	}
	harness.Must(t, os.WriteFile(filepath.Join(folder, "good"), []byte("#!/bin/sh\nexit 9\n"), 0o755))
	r := newRunner(t, server.Address(), "n", "--", "good")
	r.cmd.Dir, r.cmd.Env = folder, append(r.cmd.Env, "PATH=:/nosuch") // "" is the folder where it runs
	r.start().ends(9)
}

// Locket's own failures.
func TestRunFailures(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	for words, args := range map[string][]string{
		"needed":                         {},
		"needed|--help":                  {"n"},
		"NAME|needed":                    {"n", "--"},
		"COMMAND|needed":                 {"--", "true"},
		"two dashes|needed":              {"n", "true"},
		"named twice":                    {"n", "m", "n", "--", "true"},
		"name|empty":                     {"", "--", "true"},
		"--waiting|--help":               {"n", "--waiting", "--", "true"},
		"--wait|soon":                    {"n", "--wait", "soon", "--", "true"},
		"--wait -1s|0 or more":           {"n", "--wait", "-1s", "--", "true"},
		"--wait|--no-wait|exclude":       {"n", "--wait", "1s", "--no-wait", "--", "true"},
		"--ttl 100ms|at least 1s":        {"n", "--ttl", "100ms", "--", "true"},
		"--grace -1s":                    {"n", "--grace", "-1s", "--", "true"},
		"resource":                       {strings.Repeat("n", 1025), "--", "true"},
		"owner":                          {"n", "--owner", strings.Repeat("o", 1025), "--", "true"},
		"connection refused":             {"n", "--address", "127.0.0.1:1", "--timeout", "5s", "--no-wait", "--", "true"},
		"127.0.0.1:1|connection refused": {"n", "--address", "127.0.0.1:1", "--timeout", "30s", "--wait", "3s", "--", "true"},
		"db.internal|--tls-ca":           {"n", "--address", "db.internal:8891", "--", "true"},
		"nosuch.pem":                     {"n", "--tls-ca", "nosuch.pem", "--", "true"},
		"no such context|nosuch":         {"n", "--context", "nosuch", "--", "true"},
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			if words == "no such context|nosuch" {
				words = "nosuch"
			}
			startRun(t, server.Address(), args...).ends(125, strings.Split(words, "|")...)
		})
	}
}

// A run that waits for ever says when it does not reach a server, and continues.
func TestRunServerComesLater(t *testing.T) {
	t.Parallel()
	server := fixtures.NewLocket(t, harness.Embedded(t))
	r := startRun(t, server.Address(), "n", "--timeout", "3s", "--", "echo", "done")
	r.eventually("it says so", func() bool { return strings.Contains(r.stderr.String(), "connection refused") })
	harness.Must(t, server.Start())
	r.ends(0, "still trying")
	r.prints("done")
}

func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client, address := server.Client(t), server.Address()
	r := newRunner(t, address, "a name", "--owner", "me", "--value", "v", "--", "sh", "-c",
		`echo "$LOCKET_NAME,$LOCKET_TOKEN,$LOCKET_ID,$LOCKET_ADDRESS,$OTHER,$0" ready; read x`)
	r.cmd.Env = append(r.cmd.Env, "OTHER=o\xff", "LOCKET_TOKEN=1", "LOCKET_NAME=x")
	in, err := r.cmd.StdinPipe()
	harness.Must(t, err)
	r.start().prints("ready")
	held, err := client.Fetch(t.Context(), &models.FetchRequest{Key: "a name"})
	harness.Must(t, err)
	q, err := client.GetQueue(t.Context(), &models.GetQueueRequest{Resource: "a name"})
	harness.Must(t, err)
	want := fmt.Sprintf("a name,%d,%s,%s,o\xff,sh ready\n", held.GetToken(), q.GetHolders()[0].GetId(), address)
	if r.out.String() != want {
		t.Errorf("got %q, want %q", &r.out, want)
	}
	if got := held.GetResource(); got.GetOwner() != "me" || got.GetValue() != "v" {
		t.Errorf("others see %v", got)
	}
	harness.Must(t, in.Close())
	r.ends(1)
}

// The owner has the host and the process in its name, and something that no other process has.
func TestRunOwner(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	r := shell(t, server.Address(), "n", "echo ready; sleep 1000")
	r.prints("ready")
	host, err := os.Hostname()
	harness.Must(t, err)
	held, err := server.Client(t).Fetch(t.Context(), &models.FetchRequest{Key: "n"})
	if want := fmt.Sprintf("%s/%d/", host, r.cmd.Process.Pid); err != nil || !strings.HasPrefix(held.GetResource().GetOwner(), want) {
		t.Errorf("owner %v, want %s...", held, want)
	}
	r.signal(syscall.SIGTERM)
	r.ends(143)
}

// The streams are the command's own, all of them.
func TestRunStreams(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	t.Run("large", func(t *testing.T) {
		t.Parallel()
		text := make([]byte, 8<<20)
		_, _ = rand.Read(text)
		r := newRunner(t, server.Address(), "large", "--", "cat")
		r.cmd.Stdin = bytes.NewReader(text)
		r.start().ends(0)
		if r.out.String() != string(text) {
			t.Errorf("%d bytes came out, changed", len(r.out.String()))
		}
	})
	t.Run("apart", func(t *testing.T) {
		t.Parallel()
		r := shell(t, server.Address(), "apart", "echo out; echo err >&2")
		r.ends(0)
		if r.out.String() != "out\n" || r.stderr.String() != "err\n" {
			t.Errorf("%q, %q", &r.out, &r.stderr)
		}
	})
	t.Run("more", func(t *testing.T) {
		t.Parallel()
		in, out, err := os.Pipe()
		harness.Must(t, err)
		const script = "echo three >&3; ls /proc/self/fd >&2"
		r := newRunner(t, server.Address(), "more", "--", "sh", "-c", script)
		alone := exec.Command("sh", "-c", script)
		r.cmd.ExtraFiles, alone.ExtraFiles = []*os.File{out}, []*os.File{out}
		r.start()
		var want bytes.Buffer
		alone.Stderr = &want
		harness.Must(t, alone.Run())
		harness.Must(t, out.Close())
		text, err := io.ReadAll(in)
		if string(text) != "three\nthree\n" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		r.ends(0)
		if r.stderr.String() != want.String() {
			t.Errorf("other streams are open than without locket run:\n%s\n%s", &r.stderr, &want)
		}
	})
	// Nobody but the command has an end of a pipe.
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		in, out, err := os.Pipe()
		harness.Must(t, err)
		r := newRunner(t, server.Address(), "closed", "--", "sh", "-c", "echo hello; exec sleep 1000 >&-")
		r.cmd.Stdout = out
		r.start()
		harness.Must(t, out.Close())
		if text, err := io.ReadAll(in); string(text) != "hello\n" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		r.signal(syscall.SIGTERM)
		r.ends(143)
	})
	t.Run("unread", func(t *testing.T) {
		t.Parallel()
		in, out, err := os.Pipe()
		harness.Must(t, err)
		r := newRunner(t, server.Address(), "unread", "--", "sh", "-c", "exec yes 2>/dev/null")
		r.cmd.Stdout = out
		r.start()
		harness.Must(t, errors.Join(out.Close(), in.Close()))
		r.ends(128 + int(syscall.SIGPIPE))
	})
}

// TLS and the address, from the environment.
func TestRunTLS(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	cert, key := ca.Issue(t, "server")
	server := fixtures.NewLocket(t, harness.Embedded(t), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca.File)
	server.ClientTLS = ca.ClientTLS(t)
	harness.Must(t, server.Start())
	cert, key = ca.Issue(t, "client")
	address := server.Address()
	r := newRunner(t, "127.0.0.1:1, "+address, "n", "--", "sh", "-c", "echo $LOCKET_ADDRESS; exit 3")
	r.cmd.Env = append(r.cmd.Env, "LOCKET_TLS_CA="+ca.File, "LOCKET_TLS_CERT="+cert, "LOCKET_TLS_KEY="+key)
	r.start().ends(3)
	r.prints("127.0.0.1:1," + address)
}

// A locket in the command connects to the servers of the outer one's flags, whatever its working
// directory is.
func TestRunNested(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	cert, key := ca.Issue(t, "server")
	server := fixtures.NewLocket(t, harness.Embedded(t), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca.File)
	server.ClientTLS = ca.ClientTLS(t)
	harness.Must(t, server.Start())
	cert, key = ca.Issue(t, "client")
	r := newRunner(t, "127.0.0.1:1")
	relative := func(path string) string {
		path, err := filepath.Rel(r.cmd.Dir, path)
		harness.Must(t, err)
		return path
	}
	r.cmd.Args = append(r.cmd.Args, "n", "--owner", "me", "--address", server.Address(),
		"--tls-ca", relative(ca.File), "--tls-cert", relative(cert), "--tls-key", relative(key),
		"--", "sh", "-c", `cd /; exec "$0" run m -- "$0" fetch n`, fixtures.LocketProgram(t))
	r.cmd.Env = append(r.cmd.Env, "LOCKET_TLS_CA=nosuch.pem")
	r.start().ends(0)
	r.prints("me\t")
	insecure := newRunner(t, "127.0.0.1:1", "n", "--insecure", "--no-wait", "--address", runServer(t).Address(), "--", "sh", "-c", "echo $LOCKET_INSECURE $LOCKET_TLS_CA.")
	insecure.start().ends(0)
	insecure.prints("true .")
}

// A locket run that would wait for the locket run that has started it ends with an error.
func TestRunWaitsForItself(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	program := fixtures.LocketProgram(t)
	for _, flags := range []string{"", "--shared", "--wait 1h"} {
		r := startRun(t, server.Address(), "n"+flags, "m", "--", "sh", "-c", `exec "$0" run "n$1" $1 -- true`, program, flags)
		r.ends(124, "runs under", "waits for its end")
	}
	deep := startRun(t, server.Address(), "d1", "--", program, "run", "d2", "--", program, "run", "d3", "d1", "--", "true")
	deep.ends(124, "d1", "runs under", "waits for its end")
	startRun(t, server.Address(), "s", "--shared", "--", "sh", "-c", `exec "$0" run s --shared -- true`, program).ends(0)
	// The variables of a watch are about claims of others.
	other := harness.Create(t, server.Client(t), "o", "other", time.Hour)
	waits := newRunner(t, server.Address(), "o", "--wait", "1ms", "--", "true")
	waits.cmd.Env = append(waits.cmd.Env, "LOCKET_NAME=o", "LOCKET_ID="+other.GetId())
	waits.start().ends(124, "was not acquired within")
	r := startRun(t, server.Address(), "e", "--", "sh", "-c", `exec "$0" run e --no-wait --conflict-exit-code 9 -- true`, program)
	r.ends(9, "was not acquired")
	startRun(t, server.Address(), "e", "--conflict-exit-code", "0", "--", "true").ends(125, "--conflict-exit-code")
}

// With --verbose it prints the holder and its position in the queue, again after each change.
func TestRunVerbose(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	harness.Create(t, client, "n", "first", time.Hour)
	_, err := client.CreateClaim(t.Context(), &models.CreateClaimRequest{Id: "second", Resource: "n", Ttl: proto.Float64(3600)}) // without an owner
	harness.Must(t, err)
	r := startRun(t, server.Address(), "n", "-v", "--", "true")
	says := func(text string) {
		t.Helper()
		r.eventually("says "+text, func() bool { return strings.Contains(r.stderr.String(), text) })
	}
	says(`"n": held by "first", place 2 in the queue; waiting for its turn`)
	harness.Release(t, client, "first")
	says(`"n": held by the claim second, place 1 in the queue`)
	harness.Release(t, client, "second")
	if status := r.wait(); status != 0 {
		t.Errorf("status %d", status)
	}
}

// A script that does not name its interpreter is the shell's, with its arguments as they are.
func TestRunScript(t *testing.T) {
	t.Parallel()
	r := newRunner(t, runServer(t).Address(), "n", "--", "./script", "a b", "\xff")
	harness.Must(t, os.WriteFile(filepath.Join(r.cmd.Dir, "script"), []byte(`printf '%s:' "$@"`), 0o755))
	r.start().ends(0)
	if got := r.out.String(); got != "a b:\xff:" {
		t.Errorf("printed %q", got)
	}
}

// Without a server the run ends soon after its command, and says until when the lock is held.
func TestRunEndsWithoutServer(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	r := newRunner(t, server.Address(), "n", "--ttl", "1h", "--", "sh", "-c", "echo ready; cat > /dev/null; exit 7")
	in, err := r.cmd.StdinPipe()
	harness.Must(t, err)
	r.start().prints("ready")
	server.Kill()
	harness.Must(t, in.Close())
	if status := r.wait(); status != 7 {
		t.Errorf("status %d", status)
	}
	r.eventually("says until when", func() bool {
		return strings.Contains(r.stderr.String(), `no server can be reached to release "n"; it ends by itself within`)
	})
}

// --help lists every flag of the command but the guard's, and says where the flags for the connection are.
func TestRunHelp(t *testing.T) {
	t.Parallel()
	stdout, _, code := harness.RunLocket(t, nil, "run", "--help")
	for _, word := range []string{"--shared", "--wait", "--no-wait", "--ttl", "--owner", "--value", "--grace", "locket options", "nightly-report", "deploy", "124"} {
		if code != 0 || !strings.Contains(stdout, word) {
			t.Errorf("code %d, nothing of %s", code, word)
		}
	}
	if strings.Contains(stdout, "--guard") || strings.Contains(stdout, "--reaper") {
		t.Error("--help lists --guard or --reaper")
	}
}
