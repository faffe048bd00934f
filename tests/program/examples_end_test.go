package program_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// runsCommands are the examples that hold a resource while a command runs: the program, whether it speaks gRPC, and
// the arguments between the resource and the command.
var runsCommands = map[string]struct {
	program string
	grpc    bool
	args    []string
}{
	"python/claim.py":      {python, false, []string{"15"}},
	"javascript/claim.mjs": {"node", false, []string{"15"}},
	"python/keychain.py":   {python, false, nil},
	"perl/keychain.pl":     {"perl", false, nil},
	"python/session.py":    {python, true, nil},
}

// stubborn is a command that ignores TERM, with a child that does too. Both keep a file locked until they end.
const stubborn = `exec 9>"$0"; flock -n 9 && echo working; trap "" TERM; sleep 600 & sleep 600`

// free is nil when no process has a file locked.
func free(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// TestExamplesEnd: no process of a command is left when the next claim is granted, whatever ends the example: a
// signal, or the loss of its server. When the example is killed, the command is killed too.
func TestExamplesEnd(t *testing.T) {
	t.Parallel()
	stubs := pythonStubs(t)
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	web, grpc := fixtures.NewProxy(t, server.HTTPAddress()), fixtures.NewProxy(t, server.Address())
	start := func(t *testing.T, name, resource, locked string) *example {
		t.Helper()
		kind, address := runsCommands[name], "http://"+web.Addr()
		if kind.grpc {
			address = grpc.Addr()
		}
		args := append([]string{"../../examples/" + name, address, resource}, kind.args...)
		cmd := exec.Command(kind.program, append(args, "sh", "-c", stubborn, locked)...)
		cmd.Env = append(fixtures.CleanEnv(), "no_proxy=127.0.0.1", "PYTHONPATH="+stubs, "PYTHONDONTWRITEBYTECODE=1", "LOCKET="+fixtures.LocketProgram(t))
		return begin(t, cmd)
	}
	// Each example, in this order: the last case stops the server of all.
	for _, test := range []struct {
		name string
		end  func(all map[string]*example) error
		// killed: the claim ends after the command, or by its TTL, which is not waited for.
		killed bool
	}{
		{"signal", signalAll(syscall.SIGTERM), false},
		{"killed", signalAll(syscall.SIGKILL), true},
		{"loss", func(map[string]*example) error { web.Hang(); grpc.Hang(); return nil }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder, all := t.TempDir(), make(map[string]*example)
			file := func(name string) string { return filepath.Join(folder, filepath.Base(name)) }
			for name := range runsCommands {
				all[name] = start(t, name, file(name), file(name))
			}
			next := make(map[string]<-chan error)
			for name, e := range all {
				e.says(t, "working")
				claim := harness.Create(t, client, file(name), "next-"+test.name+"-"+filepath.Base(name), time.Hour)
				next[name] = harness.Later(func() error {
					granted, err := client.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: claim.GetId()})
					if err != nil || granted.GetStatus() != models.Status_STATUS_ACTIVE {
						return fmt.Errorf("the next claim: %v, %w", granted, err)
					}
					return free(file(name))
				})
			}
			harness.Must(t, test.end(all))
			for name, e := range all {
				if test.killed {
					harness.Eventually(t, func() error { return free(file(name)) })
				} else if err := harness.Await(t, "the next holder", next[name]); err != nil {
					t.Errorf("%s: when the next one holds the resource: %v; it printed %q", name, err, e.text())
				}
			}
		})
	}
}

// signalAll sends a signal to all examples, and not to their commands.
func signalAll(number syscall.Signal) func(map[string]*example) error {
	return func(all map[string]*example) (err error) {
		for _, e := range all {
			err = errors.Join(err, e.cmd.Process.Signal(number))
		}
		return err
	}
}

// TestExamplesKilledEarly: an example that is killed at the moment when its command begins leaves no command.
func TestExamplesKilledEarly(t *testing.T) {
	t.Parallel()
	stubs := pythonStubs(t)
	server := fixtures.StartLocket(t, harness.Embedded(t))
	bin := t.TempDir()
	sh := "#!/bin/dash\n" + `case "$*" in *"read -r"*) ;; *) kill -KILL $PPID;; esac; exec /bin/dash "$@"`
	harness.Must(t, os.WriteFile(filepath.Join(bin, "sh"), []byte(sh), 0o755))
	for name, kind := range runsCommands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "locked")
			address := "http://" + server.HTTPAddress()
			if kind.grpc {
				address = server.Address()
			}
			args := append([]string{"../../examples/" + name, address, file}, kind.args...)
			cmd := exec.Command(kind.program, append(args, "sh", "-c", stubborn, file)...)
			cmd.Env = append(fixtures.CleanEnv(), "no_proxy=127.0.0.1", "PYTHONPATH="+stubs, "PYTHONDONTWRITEBYTECODE=1",
				"LOCKET="+fixtures.LocketProgram(t), "PATH="+bin+":"+os.Getenv("PATH"))
			if code := begin(t, cmd).exit(t); code != -1 {
				t.Errorf("the example ended by itself, with %d", code)
			}
			harness.Eventually(t, func() (err error) {
				for _, pid := range harness.Processes(t) {
					if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(line), file) && !strings.Contains(string(line), "keychain") {
						err = errors.Join(err, fmt.Errorf("it runs: %q", line))
					}
				}
				return err
			})
		})
	}
}
