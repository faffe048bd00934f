package run_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// Of ten concurrent runs never two hold the lock.
func TestRunContention(t *testing.T) {
	t.Parallel()
	harness.OnBothLogs(t, testRunContention)
}

func testRunContention(t *testing.T, database string) {
	t.Helper()
	server := fixtures.StartLocket(t, database)
	file := filepath.Join(t.TempDir(), "file")
	runs := make([]*runner, 10)
	for i := range runs {
		runs[i] = shell(t, server.Address(), "n", fmt.Sprintf("echo begin $LOCKET_TOKEN >>%[1]s; sleep 0.03; echo end $LOCKET_TOKEN >>%[1]s", file))
	}
	for _, r := range runs {
		r.ends(0)
	}
	text, err := os.ReadFile(file)
	harness.Must(t, err)
	words := strings.Fields(string(text))
	if len(words) != 40 {
		t.Fatalf("the file has %q", text)
	}
	for last := ""; len(words) > 0; words = words[4:] {
		if words[0] != "begin" || words[2] != "end" || words[1] != words[3] || words[1] <= last {
			t.Errorf("after %s: %q", last, words[:4])
		}
		last = words[1]
	}
}

// Shared locks are held together; an exclusive one waits for them, and they wait for it.
func TestRunShared(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	folder := t.TempDir()
	meet := func(name string) string {
		return fmt.Sprintf("cd %s; >%s; while [ $(ls reader* | wc -l) -lt 3 ]; do sleep 0.05; done; echo met; read x; exit 0", folder, name)
	}
	var readers []*runner
	var leave []func() error
	for i := range 3 {
		r := newRunner(t, server.Address(), "n", "--shared", "--", "sh", "-c", meet(fmt.Sprintf("reader%d", i)))
		in, err := r.cmd.StdinPipe()
		harness.Must(t, err)
		readers, leave = append(readers, r.start()), append(leave, in.Close)
	}
	for _, r := range readers {
		r.prints("met")
	}
	writer := shell(t, server.Address(), "n", "echo writes")
	writer.queue(client, "n", 3, 1)
	shell(t, server.Address(), "n", "true", "--shared", "--no-wait").ends(124, "and 2 more") // first come, first served
	for i, r := range readers {
		if writer.out.String() != "" {
			t.Error("it writes while others read")
		}
		harness.Must(t, leave[i]())
		r.ends(0)
	}
	writer.ends(0)
}

// First come, first served.
func TestRunOrder(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	file := filepath.Join(t.TempDir(), "file")
	harness.Create(t, client, "n", "first", time.Hour)
	var runs []*runner
	for i := range 5 {
		r := shell(t, server.Address(), "n", fmt.Sprintf("echo %d >>%s", i, file))
		r.queue(client, "n", 1, i+1)
		runs = append(runs, r)
	}
	harness.Release(t, client, "first")
	for _, r := range runs {
		r.ends(0)
	}
	if text, err := os.ReadFile(file); string(text) != "0\n1\n2\n3\n4\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// The flags bound the wait.
func TestRunWait(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	harness.Create(t, client, "held", "somebody", time.Hour)
	for flags, test := range map[string]struct {
		name   string
		status int
		words  []string
		took   time.Duration
	}{
		"--wait 0":             {"held", 124, []string{`"held"`, "somebody"}, 0},
		"--no-wait":            {"held", 124, []string{`"held"`, "somebody"}, 0},
		"--wait 0 --no-wait":   {"held", 124, []string{`"held"`, "somebody"}, 0},
		"--wait 6s":            {"held", 124, []string{"within 6s", "somebody"}, 6 * time.Second},
		"--wait 0 --shared":    {"held", 124, []string{`"held"`, "somebody"}, 0},
		"--wait 0 --ttl 20s":   {"free", 0, nil, 0},
		"--no-wait --ttl 20s":  {"free", 0, nil, 0},
		"--wait 1h --ttl 1m5s": {"free", 0, nil, 0},
	} {
		t.Run(test.name+" "+flags, func(t *testing.T) {
			t.Parallel()
			name := test.name
			if name == "free" {
				name = "free" + flags
			}
			begin := time.Now()
			r := startRun(t, server.Address(), append(append([]string{name}, strings.Fields(flags)...), "--", "echo", "ran")...)
			r.ends(test.status, test.words...)
			if took := time.Since(begin); took < test.took { // real time: on no machine earlier
				t.Errorf("it took %s", took)
			}
			if (r.out.String() == "ran\n") != (test.status == 0) {
				t.Errorf("it says %q", &r.out)
			}
		})
	}
	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		harness.Create(t, client, "soon", "soon", time.Hour)
		r := shell(t, server.Address(), "soon", "echo ran", "--wait", "1m")
		r.queue(client, "soon", 1, 1)
		harness.Release(t, client, "soon")
		r.ends(0)
	})
}

// A lock that another client holds makes the run wait, and the other way round.
func TestRunAndLock(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	r := shell(t, server.Address(), "n", "echo ready; sleep 1000")
	r.prints("ready")
	if _, err := harness.TryLock(t, client, "n", "other", time.Minute); err == nil {
		t.Error("it is taken twice")
	}
	r.signal(syscall.SIGTERM)
	r.ends(143)
	harness.Lock(t, client, "n", "other", time.Minute)
	shell(t, server.Address(), "n", "true", "--no-wait").ends(124, "other")
}
