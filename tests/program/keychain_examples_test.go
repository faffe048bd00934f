package program_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// The examples that hold a resource through a keychain. All of them behave in the same way.
var keychainExamples = map[string][]string{
	"python": {python, "../../examples/python/keychain.py"},
	"perl":   {"perl", "../../examples/perl/keychain.pl"},
}

// keychainExample returns the command of an example.
func keychainExample(t *testing.T, language string, args ...string) *exec.Cmd {
	t.Helper()
	program := keychainExamples[language]
	if _, err := exec.LookPath(program[0]); err != nil {
		t.Fatalf("%v; install it with: apt-get install -y --no-install-recommends python3 perl", err)
	}
	cmd := exec.Command(program[0], append(program[1:len(program):len(program)], args...)...)
	cmd.Env = append(fixtures.CleanEnv(), "LOCKET="+fixtures.LocketProgram(t), "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// startKeychainExample runs an example that holds the resource for a shell command.
func startKeychainExample(t *testing.T, language string, server *fixtures.Locket, resource, command string) *example {
	t.Helper()
	return begin(t, keychainExample(t, language, httpURL(server), resource, "sh", "-c", command))
}

func TestKeychainExamples(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	for language := range keychainExamples {
		for name, test := range map[string]func(t *testing.T, start func(command string) *example, client models.LocketClient, resource string){
			"hold": testKeychainExampleHolds, "wait": testKeychainExampleWaits, "lose": testKeychainExampleLoses, "stop": testKeychainExampleStops,
		} {
			t.Run(language+" "+name, func(t *testing.T) {
				t.Parallel()
				resource := language + "-" + name
				start := func(command string) *example { return startKeychainExample(t, language, server, resource, command) }
				test(t, start, client, resource)
			})
		}
	}
}

func testKeychainExampleHolds(t *testing.T, start func(string) *example, client models.LocketClient, resource string) {
	e := start("echo token $FENCING_TOKEN; sleep 0.2; exit 3")
	if code := e.exit(t); code != 3 {
		t.Errorf("exit code %d, %q", code, e.text())
	}
	c := wantStatus(t, client, resource, 1, models.Status_STATUS_RELEASED)
	if c.GetToken() != e.token(t) || c.GetActiveDuration() < 0.2 {
		t.Errorf("it printed %q, the claim is %v", e.text(), c)
	}
}

func testKeychainExampleWaits(t *testing.T, start func(string) *example, client models.LocketClient, resource string) {
	harness.Create(t, client, resource, resource+"-before", time.Hour)
	e := start("echo working")
	wantStatus(t, client, resource, 2, models.Status_STATUS_WAITING)
	harness.Release(t, client, resource+"-before")
	if code := e.exit(t); code != 0 || e.text() != "working\n" {
		t.Errorf("exit code %d, %q", code, e.text())
	}
	wantStatus(t, client, resource, 2, models.Status_STATUS_RELEASED)
}

// The keychain of an example is killed: nobody renews the claim any more.
func testKeychainExampleLoses(t *testing.T, start func(string) *example, _ models.LocketClient, _ string) {
	e := start(endure)
	e.says(t, "working")
	harness.Must(t, syscall.Kill(childOf(t, e.cmd.Process.Pid, "locket"), syscall.SIGKILL))
	if code := e.exit(t); code != 1 || !strings.Contains(e.text(), "told to stop\n") {
		t.Errorf("exit code %d, %q", code, e.text())
	}
}

// childOf returns the child of a process that runs a program.
func childOf(t *testing.T, parent int, program string) (pid int) {
	t.Helper()
	for _, pid := range harness.Processes(t) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		var name, state string
		var ppid int
		if _, err := fmt.Sscan(string(text), &pid, &name, &state, &ppid); err == nil && ppid == parent && name == "("+program+")" {
			return pid
		}
	}
	t.Fatalf("process %d has no child that runs %s", parent, program)
	return 0
}

func testKeychainExampleStops(t *testing.T, start func(string) *example, client models.LocketClient, resource string) {
	holder := start(endure)
	holder.says(t, "working")
	waiter := start(endure)
	wantStatus(t, client, resource, 2, models.Status_STATUS_WAITING)
	harness.Must(t, waiter.cmd.Process.Signal(syscall.SIGTERM))
	if code := waiter.exit(t); code != 1 || !strings.Contains(waiter.text(), "stopped\n") {
		t.Errorf("waiting: exit code %d, %q", code, waiter.text())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the one that waited has printed %q", waiter.text())
		}
	})
	wantStatus(t, client, resource, 2, models.Status_STATUS_WITHDRAWN)
	harness.Must(t, holder.cmd.Process.Signal(syscall.SIGINT))
	if code := holder.exit(t); code != 1 || !strings.HasSuffix(holder.text(), "told to stop\nstopped\n") {
		t.Errorf("working: exit code %d, %q", code, holder.text())
	}
	wantEnded(t, client, resource)
}

// The example in Python is a module too: one keychain for many threads.
func TestKeychainPythonModule(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	runModule(t, "python", server, `
import os, sys, threading
sys.path.insert(0, "../../examples/python")
import keychain

with keychain.Keychain(sys.argv[1], "--ttl", "15s", program=os.environ["LOCKET"]) as kc:
    kc.ping()
    failures = []
    def work(i):
        try:
            for _ in range(5):
                with kc.claim("module-%d" % i, timeout=120, user_data={"i": i}) as claim:
                    claim.check()
                    assert claim.token
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not failures, failures

    claim = kc.claim("lose")
    try:
        kc.claim("lose")
        assert False
    except keychain.Failed as error:
        assert "already" in str(error)
    print("claimed", flush=True)
    assert claim.lost.wait(120)
    kc.claim("left")
`)
	for i := range 20 {
		if n := len(claimsOf(t, client, fmt.Sprintf("module-%d", i))); n != 5 {
			t.Errorf("%d claims of %d", n, i)
		}
	}
	wantStatus(t, client, "left", 1, models.Status_STATUS_RELEASED)
}

// The example in Perl is a module too.
func TestKeychainPerlModule(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	runModule(t, "perl", server, `
use strict; use warnings;
require './../../examples/perl/keychain.pl';
my $keychain = Locket::Keychain->new($ARGV[0], '--ttl', '15s');
$keychain->ping;
for my $i (1 .. 5) {
    my $claim = $keychain->claim("scope-\x{e4}", timeout => 120, user_data => { i => $i });
    $claim->check;
    die 'no token' unless $claim->token;
}
my $claim = $keychain->claim('lose');
die 'claimed twice' if eval { $keychain->claim('lose'); 1 } or $@ !~ /already/;
$| = 1;
print "claimed\n";
my $tries = 0;
until ($claim->lost(0.1)) { die 'not lost' if $tries++ > 1200 }
undef $claim;
my $left = $keychain->claim('left');
if (!fork) { undef $left; exit 0 }    # a copy is not a claim
wait;
$left->check;
$keychain->shutdown;
`)
	if claims := claimsOf(t, client, "scope-ä"); len(claims) != 5 || claims[4].GetUserData() != `{"i":5}` {
		t.Errorf("claims %v", claims)
	}
	wantStatus(t, client, "left", 1, models.Status_STATUS_RELEASED)
}

// runModule runs a program that uses an example, and revokes its claim of "lose" when it has
// said so.
func runModule(t *testing.T, language string, server *fixtures.Locket, program string) {
	t.Helper()
	cmd := keychainExample(t, language)
	cmd.Args = []string{cmd.Args[0], "-", httpURL(server)}
	cmd.Stdin = strings.NewReader(program)
	e := begin(t, cmd)
	e.says(t, "claimed\n")
	client := server.Client(t)
	revoke(t, client, claimsOf(t, client, "lose")[0].GetId())
	if code := e.exit(t); code != 0 {
		t.Errorf("exit code %d, %q", code, e.text())
	}
}
