package run_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// console is a shell with job control on its own terminal, and the input of its user.
type console struct {
	*runner
	keys *os.File
	seen int
}

func newConsole(t *testing.T, address string) *console {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatalf("%v; install it with: apt-get install -y bash", err)
	}
	keys, screen := harness.OpenTerminal(t)
	c := &console{runner: newRunner(t, address), keys: keys}
	c.cmd.Path, c.cmd.Args = bash, []string{"bash", "--norc", "--noprofile", "-i"}
	c.cmd.Env = append(c.cmd.Env, "PS1=$? > ", "L="+fixtures.LocketProgram(t), "TERM=dumb", "HISTFILE=")
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = screen, screen, screen
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	c.start()
	_ = screen.Close()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := keys.Read(buf)
			_, _ = c.out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	c.sees("0 > ")
	return c
}

func (c *console) types(keys string) {
	c.t.Helper()
	_, err := c.keys.WriteString(keys)
	harness.Must(c.t, err)
}

// sees waits for a text after the ones it has seen.
func (c *console) sees(text string) (before string) {
	c.t.Helper()
	c.eventually("it sees "+text, func() bool {
		var found bool
		if before, _, found = strings.Cut(c.out.String()[c.seen:], text); found {
			c.seen += len(before) + len(text)
		}
		return found
	})
	return before
}

// Ctrl-C goes to the command, and the run exits with its exit code.
func TestRunTerminalInterrupt(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	c := newConsole(t, server.Address())
	c.types(`$L run a -- sh -c 'trap "echo hea""rd; exit 9" INT; echo rea""dy; while :; do sleep 0.05; done'` + "\n")
	c.sees("ready")
	c.types("\x03")
	c.sees("heard")
	c.sees("9 > ")
	// A loop ends, too.
	c.types("for i in 1 2 3; do $L run a -- sh -c 'echo rea\"\"dy; exec sleep 1000'; echo ne''xt; done\n")
	c.sees("ready")
	c.types("\x03")
	if text := c.sees("130 > "); strings.Contains(text, "next") {
		t.Errorf("the loop continues: %q", text)
	}
	// And a script.
	harness.Must(t, os.WriteFile(c.cmd.Dir+"/script", []byte("$L run a -- sh -c 'echo ready; exec sleep 1000'\necho next\n"), 0o600))
	for _, shell := range []string{"sh", "bash"} {
		c.types(shell + " ./script\n")
		c.sees("ready")
		c.types("\x03")
		if text := c.sees("130 > "); strings.Contains(text, "next") {
			t.Errorf("the script of %s continues: %q", shell, text)
		}
	}
	// While it waits.
	harness.Create(t, server.Client(t), "held", "held", time.Hour)
	c.types("$L run held -- true\n")
	c.queue(server.Client(t), "held", 1, 1)
	c.types("\x03")
	c.sees("130 > ")
	unheld(t, server.Client(t), "a")
}

// The command reads the typed text, whatever is around it.
func TestRunTerminalInput(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	c := newConsole(t, server.Address())
	for _, around := range []string{"%s", "%s | cat", "true | %s", "(%s)", "sh -c '%s; exit'", "%s 2>&1 | cat", "%s & fg"} {
		c.types(fmt.Sprintf(around, `$L run a -- sh -c "read x </dev/tty; echo got\"\" \$x; stty -a </dev/tty >/dev/null; stty sane -echo </dev/tty"`) + "\n")
		time.Sleep(100 * time.Millisecond) // real time: it reads, or finds what was typed
		c.types("this\n")
		c.sees("got this")
		c.sees("0 > ")
	}
	c.types("$L run a -- sh -c 'kill -9 $$'\n") // and then the shell has the terminal again
	c.sees("137 > ")
	c.types("read y; echo go''t $y\nthat\n")
	c.sees("got that")
}

// Ctrl-Z stops both; a run that is continued in time keeps the lock.
func TestRunTerminalStop(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	c := newConsole(t, server.Address())
	for _, around := range []string{"%s", "%s | cat", "sh -c '%s; exit'"} {
		c.types(fmt.Sprintf(around, `$L run a --ttl 1h -- sh -c "echo rea\"\"dy; read x </dev/tty; echo got\"\" \$x"`) + "\n")
		c.sees("ready")
		time.Sleep(50 * time.Millisecond) // real time: it reads, or not yet
		c.types("\x1a")
		c.sees("Stopped")
		c.sees(" > ")
		c.types("bg\n") // and there it reads, which stops it, and those around it
		c.sees(" > ")
		c.eventually("all are stopped", func() bool {
			guard, reaper := c.helperPid("guard"), c.helperPid("reaper")
			return !slices.ContainsFunc(marked(c.t, c.mark), func(pid int) bool {
				return pid != c.cmd.Process.Pid && pid != guard && pid != reaper && stateOf(pid) != "T"
			})
		})
		c.types(`until jobs | grep -q Stopped; do sleep 0.02; done; echo shell kno""ws` + "\n")
		c.sees("shell knows")
		c.types("fg\n")
		time.Sleep(50 * time.Millisecond) // real time: it reads, or finds what was typed
		c.types("this\n")
		c.sees("got this")
		c.sees("0 > ")
	}
	// A run that is continued later does not: another holder has the lock by then.
	c.types(`$L run a --ttl 10s -- sh -c "echo rea\"\"dy; read x; echo got\"\" \$x"` + "\n")
	c.sees("ready")
	time.Sleep(50 * time.Millisecond) // real time: it reads, or not yet
	c.types("\x1a")
	c.sees("Stopped")
	shell(t, server.Address(), "a", "true").ends(0)
	c.types("fg\n")
	c.sees("the command is stopped")
	c.sees("123 > ")
	c.types("exit\n")
	c.ends(123)
}

// Ctrl-Z also stops a command that is stopped and about to be continued: because it needed the terminal,
// or by fg. Continuing a process discards the signals to stop that wait for it.
func TestRunTerminalStopBetween(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	c := newConsole(t, server.Address())
	for _, around := range []string{"%s", "%s | cat"} {
		c.types(fmt.Sprintf(around, `$L run a --ttl 1h -- sh -c "echo rea\"\"dy; read x </dev/tty; echo got\"\" \$x"`) + "\n")
		c.sees("ready")
		guard := c.helperPid("guard")
		command := childOf(guard)
		c.hasTerminal(command) // at once, or when it has read
		between := func(keys string, in func()) {
			t.Helper()
			harness.Must(t, syscall.Kill(guard, syscall.SIGSTOP))
			c.eventually("the guard is stopped", func() bool { return stateOf(guard) == "T" })
			c.types(keys)
			in()
			c.hasTerminal(command)
			c.eventually("the command is stopped", func() bool { return stateOf(command) == "T" })
			c.types("\x1a")
			c.eventually("Ctrl-Z waits for the command", func() bool { return isPending(t, command, syscall.SIGTSTP) })
			harness.Must(t, syscall.Kill(guard, syscall.SIGCONT))
			c.sees("Stopped")
			c.sees(" > ")
		}
		between("", func() { harness.Must(t, syscall.Kill(-command, syscall.SIGTTIN)) })
		between("fg\n", func() {})
		c.types("fg\n")
		c.hasTerminal(command)
		c.types("this\n")
		c.sees("got this")
		c.sees("0 > ")
	}
	// While it is stopped because it reads, and still has to be given the terminal.
	c.types(`$L run a --ttl 1h -- sh -c "echo rea\"\"dy; until [ -e go ]; do sleep 0.02; done; read x </dev/tty; echo got\"\" \$x" | cat` + "\n")
	c.sees("ready")
	guard := c.helperPid("guard")
	command := childOf(guard)
	harness.Must(t, syscall.Kill(guard, syscall.SIGSTOP))
	c.eventually("the guard is stopped", func() bool { return stateOf(guard) == "T" })
	harness.Must(t, os.WriteFile(c.cmd.Dir+"/go", nil, 0o600))
	c.eventually("the command is stopped", func() bool { return stateOf(command) == "T" })
	before := unreadOrders(t, guard)
	c.types("\x1a")
	c.eventually("locket run has passed it on", func() bool { return unreadOrders(t, guard) > before })
	harness.Must(t, syscall.Kill(guard, syscall.SIGCONT))
	c.sees("Stopped")
	c.types("fg\n")
	c.hasTerminal(command)
	c.types("this\n")
	c.sees("got this")
	c.sees("0 > ")
}

// hasTerminal waits until a process group is in the foreground.
func (c *console) hasTerminal(group int) {
	c.t.Helper()
	c.eventually("the command has the terminal", func() bool {
		foreground, err := unix.IoctlGetInt(int(c.keys.Fd()), unix.TIOCGPGRP)
		harness.Must(c.t, err)
		return foreground == group
	})
}

// isPending reports whether a signal waits for a process.
func isPending(t *testing.T, pid int, sig syscall.Signal) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	harness.Must(t, err)
	_, text, _ := strings.Cut(string(status), "\nShdPnd:")
	var pending uint64
	_, err = fmt.Sscanf(text, "%x", &pending)
	harness.Must(t, err)
	return pending&(1<<(sig-1)) != 0
}

// unreadOrders returns how many bytes of orders a guard has not read.
func unreadOrders(t *testing.T, guard int) int {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", guard))
	harness.Must(t, err)
	_, value, _ := strings.Cut(string(line), "\x00--guard=")
	number, _, _ := strings.Cut(value, ",")
	orders, err := os.Open(fmt.Sprintf("/proc/%d/fd/%s", guard, number))
	harness.Must(t, err)
	defer orders.Close()
	unread, err := unix.IoctlGetInt(int(orders.Fd()), unix.TIOCINQ)
	harness.Must(t, err)
	return unread
}

// On a terminal a waiting run shows on one line the lock, its holder, for how long, and its place. The line
// is gone when something else is said, and when the command runs. A terminal that cannot rewrite a line gets plain ones.
func TestRunTerminalWait(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	harness.Create(t, client, "taken", "somebody", time.Hour)
	harness.Create(t, client, "dumb", "another", time.Hour)
	c := newConsole(t, server.Address())
	c.types(`TERM=xterm COLUMNS=200 $L run taken -- echo rea""dy` + "\n")
	c.sees("\r\x1b[Klocket: waiting for \"taken\" for ")
	c.sees(", held by \"somebody\" for ")
	c.sees("s, place 1 in the queue\r\x1b[Klocket: waiting for \"taken\" for ")
	harness.Release(t, client, "somebody")
	c.sees("\r\x1b[Kready")
	c.types(`TERM=dumb $L run dumb -- echo don""e` + "\n")
	c.sees(`"dumb": held by "another", place 1 in the queue; waiting for its turn (Ctrl-C withdraws it); to see the queue: locket resource dumb`)
	harness.Release(t, client, "another")
	c.sees("done")
	c.types("exit\n")
	c.ends(0)
}
