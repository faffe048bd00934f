//go:build linux

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// picture is a command on a terminal of its own, such as `locket top`.
type picture struct {
	t       *testing.T
	outside *os.File
	inside  *os.File
	before  unix.Termios
	cmd     *exec.Cmd
	ended   <-chan error

	mu  sync.Mutex
	raw strings.Builder
}

func newPicture(t *testing.T, env []string, address string, args ...string) *picture {
	t.Helper()
	return startOnTerminal(t, env, append([]string{"top", "--address", address, "--interval", "100ms"}, args...)...)
}

func startOnTerminal(t *testing.T, env []string, args ...string) *picture {
	t.Helper()
	outside, inside := harness.OpenTerminal(t)
	p := &picture{t: t, outside: outside, inside: inside}
	p.resize(100, 30)
	p.before = p.mode()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	p.cmd = exec.CommandContext(ctx, fixtures.LocketProgram(t), append(args, "--context-file", os.DevNull)...)
	p.cmd.Env = append(append(fixtures.CleanEnv(), "TERM=xterm"), env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inside, inside, inside
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	harness.Must(t, p.cmd.Start())
	p.ended = harness.Later(p.cmd.Wait)
	go func() { _, _ = io.Copy(p, outside) }()
	return p
}

// Write takes what is written to the terminal.
func (p *picture) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raw.Write(text)
}

func (p *picture) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raw.String()
}

func (p *picture) mode() unix.Termios {
	p.t.Helper()
	mode, err := unix.IoctlGetTermios(int(p.inside.Fd()), unix.TCGETS)
	harness.Must(p.t, err)
	return *mode
}

func (p *picture) resize(width, height uint16) {
	p.t.Helper()
	harness.Must(p.t, unix.IoctlSetWinsize(int(p.outside.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}))
}

var colors = regexp.MustCompile(`\x1b\[[0-9]*m`)

// frame is the last whole picture, without its colors.
func (p *picture) frame() string {
	drawn, _, _ := cutLast(p.all(), "\x1b[J")
	return plainFrame(drawn)
}

func plainFrame(drawn string) string {
	_, last, _ := cutLast(drawn, "\x1b[H")
	return colors.ReplaceAllString(strings.ReplaceAll(strings.ReplaceAll(last, "\x1b[K", ""), "\r\n", "\n"), "")
}

func cutLast(text, at string) (before, after string, found bool) {
	i := strings.LastIndex(text, at)
	if i < 0 {
		return "", "", false
	}
	return text[:i], text[i+len(at):], true
}

// showed waits for a picture with these words, which those after it need not have.
func (p *picture) showed(words string) {
	p.t.Helper()
	harness.Until(p.t, words, func() bool {
		for frame := range strings.SplitSeq(p.all(), "\x1b[J") {
			if regexp.MustCompile(words).MatchString(plainFrame(frame)) {
				return true
			}
		}
		return false
	})
}

// shows waits for a picture with all these words.
func (p *picture) shows(words ...string) {
	p.t.Helper()
	harness.Eventually(p.t, func() error {
		frame := p.frame()
		for _, word := range words {
			if !regexp.MustCompile(word).MatchString(frame) {
				return fmt.Errorf("%q is missing in:\n%s", word, frame)
			}
		}
		return nil
	})
}

func (p *picture) press(keys string) {
	p.t.Helper()
	_, err := p.outside.WriteString(keys)
	harness.Must(p.t, err)
}

// ends waits for the end, and checks that the terminal is restored.
func (p *picture) ends(status int) {
	p.t.Helper()
	_ = harness.Await(p.t, "end", p.ended)
	if code := p.cmd.ProcessState.ExitCode(); code != status {
		p.t.Errorf("status %d, want %d: %q", code, status, p.all())
	}
	if after := p.mode(); after != p.before {
		p.t.Errorf("the terminal's mode is %+v, was %+v", after, p.before)
	}
	harness.Eventually(p.t, func() error {
		text := p.all()
		if strings.Count(text, "\x1b[?1049h") != 1 || strings.LastIndex(text, "\x1b[?25h\x1b[?1049l") < strings.LastIndex(text, "\x1b[J") {
			return fmt.Errorf("it has not left the screen: %q", text)
		}
		return nil
	})
}

// It shows the resources and their changes, follows the terminal's size, and restores the terminal. Names that would do harm are printed as
// elsewhere.
func TestTopOnTerminal(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("claim", "backup", "--owner", "me", "--id", "a", "--ttl", "5m")
	c.queue("claim", "backup", "--owner", "you", "--id", "b")
	c.run("lock", "k\x1b[31m\n", "--owner", "o\x1b[2J\r", "--ttl", "5m")
	p := newPicture(t, nil, c.address)
	p.shows(`^\d\d:\d\d:\d\d  live\n2 resources, 1 wait\n`, `\nRESOURCE +HOLDER +SINCE +WAITING +OLDEST WAIT +CHANGES/S\nbackup +me +\d+s ago +1 +\d+s +`,
		`\n"k\\x1b\[31m\\n" +"o\\x1b\[2J\\r" +`, `s changes the order \(by contended\)$`)
	c.run("release", "--id", "a")
	p.showed(`\nbackup +you +\d+s ago +0 +- +0\.[1-9]`) // a rate covers the last seconds
	p.shows(`\nbackup +you +\d+s ago +0 +- `, `backup +me +active > released\n`, `backup +you +waiting > active\n`)
	c.queue("claim", "backup", "--owner", "new\x1b]0;title\a", "--id", "c")
	p.shows(`\nbackup +you +\d+s ago +1 `, `"new\\x1b\]0;title\\a" +waiting\n`)
	p.press("s")
	p.shows(`the order \(by busy\)$`)
	p.press("sss")
	p.shows(`the order \(by contended\)$`)
	p.resize(40, 10)
	p.shows(`\nRESOURCE +HOLDER +WAITING\nbackup +you +1\n`)
	frame := p.frame()
	if strings.Count(frame, "\n") != 9 || !printable.Is(strings.ReplaceAll(frame, "\n", "")) {
		t.Errorf("%q", frame)
	}
	for line := range strings.Lines(frame) {
		if printable.Columns(strings.TrimSuffix(line, "\n")) > 40 {
			t.Errorf("too wide: %q", line)
		}
	}
	p.resize(3, 1)
	p.shows(`^..…$`)
	p.resize(100, 30)
	p.shows(`CHANGES/S`)
	if !strings.Contains(p.all(), "\x1b[32m") {
		t.Error("no color")
	}
	p.press("q")
	p.ends(exit.OK)
}

// Whatever ends it, the terminal is restored.
func TestTopEnds(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for name, test := range map[string]struct {
		env    []string
		end    func(p *picture)
		status int
	}{
		"Ctrl-C":  {nil, func(p *picture) { p.press("\x03") }, exit.OK},
		"a key":   {[]string{"NO_COLOR=1"}, func(p *picture) { p.press("\x1b[Aq") }, exit.OK},
		"SIGINT":  {nil, func(p *picture) { harness.Must(t, p.cmd.Process.Signal(syscall.SIGINT)) }, exit.Interrupted},
		"SIGTERM": {nil, func(p *picture) { harness.Must(t, p.cmd.Process.Signal(syscall.SIGTERM)) }, exit.Interrupted},
		"SIGHUP":  {nil, func(p *picture) { harness.Must(t, p.cmd.Process.Signal(syscall.SIGHUP)) }, exit.Interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPicture(t, test.env, c.address)
			p.shows(`  live\n0 resources, 0 wait`)
			if p.mode() == p.before {
				t.Error("keys are not read one by one")
			}
			test.end(p)
			p.ends(test.status)
			if test.env != nil && colors.MatchString(p.all()) {
				t.Errorf("colors: %q", p.all())
			}
		})
	}
}

// A terminal that knows nothing gets tables, one after the other; one that is gone ends it.
func TestTopOnDumbTerminal(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	p := newPicture(t, []string{"TERM=dumb"}, c.address)
	harness.Until(t, "tables", func() bool { return strings.Count(p.all(), "RESOURCE  HOLDER") > 2 })
	p.press("\x03") // which the terminal makes a signal of
	_ = harness.Await(t, "end", p.ended)
	if code := p.cmd.ProcessState.ExitCode(); code != exit.Interrupted || strings.Contains(p.all(), "\x1b") {
		t.Errorf("status %d, %q", code, p.all())
	}
	gone := newPicture(t, nil, c.address)
	gone.shows(`  live\n`)
	harness.Must(t, errors.Join(gone.inside.Close(), gone.outside.Close()))
	_ = harness.Await(t, "end", gone.ended)
}

// While its server is away it says so and since when, and it can be ended; it goes on by itself, and knows what happened meanwhile.
func TestTopWithoutServer(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	harness.Create(t, client, "k", "a", time.Hour)
	p := newPicture(t, nil, server.Address())
	p.shows(`  live\n1 resource`)
	server.Kill()
	p.shows(`  NOT LIVE since \d\d:\d\d:\d\d \(\d+s\): no connection to `, `\nk +a `)
	harness.Must(t, server.Start())
	harness.Create(t, server.Client(t), "k", "b", time.Hour)
	p.shows(`  live\n1 resource, 1 wait`)
	server.Kill()
	p.shows(`  NOT LIVE since `)
	p.press("q")
	p.ends(exit.OK)
}

// It follows what happens on another server, and goes on at another one.
func TestTopOfTwoServers(t *testing.T) {
	t.Parallel()
	topOfTwoServers(t, 100)
}

// topOfTwoServers has claims wait in one line, on two servers, and loses one server.
func topOfTwoServers(t *testing.T, waiters int) {
	t.Helper()
	database := "mysql:" + harness.MySQL(t)
	a, b := fixtures.StartLocket(t, database), fixtures.StartLocket(t, database)
	harness.Create(t, b.Client(t), "line", "first", time.Hour)
	p := newPicture(t, nil, a.Address()+","+b.Address(), "--prefix", "li")
	p.shows(`  live\n1 resource below li, 0 wait`)
	harness.Create(t, b.Client(t), "other", "x", time.Hour)
	const callers = 50
	var all sync.WaitGroup
	for caller := range callers {
		client := []*fixtures.Locket{a, b}[caller%2].Client(t)
		all.Go(func() {
			for i := range waiters / callers {
				id := fmt.Sprintf("w-%d-%d", caller, i)
				harness.Eventually(t, func() error { // a busy server may keep the line locked for longer than a request of the other one waits
					_, err := client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: "line", Id: id, Owner: id, Ttl: proto.Float64(3600)})
					return err
				})
			}
		})
	}
	all.Wait()
	p.shows(fmt.Sprintf(`  live\n1 resource below li, %d wait`, waiters), fmt.Sprintf(`\nline +first +\S+ ago +%d `, waiters))
	a.Kill()
	client := b.Client(t)
	harness.Eventually(t, func() error {
		_, err := client.EndClaim(t.Context(), &models.EndClaimRequest{Id: "first"})
		return err
	})
	p.shows(fmt.Sprintf(`  live\n1 resource below li, %d wait`, waiters-1), `\nline +w-\S+ `)
	p.press("q")
	p.ends(exit.OK)
}
