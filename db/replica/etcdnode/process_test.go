package etcdnode_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/etcdnode"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// optionsEnv has the options of a node, in a process that runs one.
const optionsEnv = "ETCDNODE_OPTIONS"

const started = "started"

func TestMain(m *testing.M) {
	if text := os.Getenv(optionsEnv); text != "" {
		os.Exit(runNode(text))
	}
	m.Run()
	fixtures.Shutdown()
}

// runNode runs a node until SIGTERM, or until standard input ends with the process that has started it.
func runNode(text string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	fail := func(err error) int {
		fmt.Println("error:", err)
		return 1
	}
	var o etcdnode.Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fail(err)
	}
	o.Log, o.Prefix = slog.New(slog.NewTextHandler(os.Stdout, nil)), etcdlog.DefaultPrefix
	o.Exit = func(err error) { os.Exit(fail(err)) }
	n, err := etcdnode.Start(ctx, o)
	if err != nil {
		return fail(err)
	}
	fmt.Println(started)
	select {
	case <-ctx.Done():
	case err := <-n.Failed():
		return fail(err)
	}
	if err := n.Close(); err != nil {
		return fail(err)
	}
	return 0
}

// process is a process with a node.
type process struct {
	cmd     *exec.Cmd
	started chan struct{} // closed when the node is a member
	ended   chan struct{}

	mu     sync.Mutex
	output strings.Builder
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

func start(t *testing.T, o etcdnode.Options) *process {
	t.Helper()
	text, err := json.Marshal(o)
	harness.Must(t, err)
	p := &process{cmd: exec.Command(os.Args[0]), started: make(chan struct{}), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), optionsEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	_, err = p.cmd.StdinPipe() // which ends with this process
	harness.Must(t, err)
	out, err := p.cmd.StdoutPipe()
	harness.Must(t, err)
	harness.Must(t, p.cmd.Start())
	go p.read(out)
	t.Cleanup(p.kill)
	return p
}

func (p *process) read(out io.Reader) {
	defer close(p.ended)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		p.mu.Lock()
		fmt.Fprintln(&p.output, lines.Text())
		p.mu.Unlock()
		if lines.Text() == started {
			close(p.started)
		}
	}
	_ = p.cmd.Wait()
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	harness.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	harness.Await(t, "end", p.ended)
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("the node ended with %d:\n%s", code, p.text())
	}
}

// runs waits until the node is a member.
func (p *process) runs(t *testing.T) {
	t.Helper()
	select {
	case <-p.started:
	case <-p.ended:
		t.Fatalf("the node has ended:\n%s", p.text())
	}
}

// isRefused waits until the node ends with an error that contains some texts.
func (p *process) isRefused(t *testing.T, texts ...string) {
	t.Helper()
	harness.Await(t, "refusal", p.ended)
	for _, text := range append(texts, etcdnode.ErrRefused.Error()) {
		if !strings.Contains(p.text(), text) {
			t.Errorf("the node ended without saying %q:\n%s", text, p.text())
		}
	}
}

// manage uses a node by the socket in its folder.
func manage(t *testing.T, o etcdnode.Options, do func(*etcdnode.Manager) error) error {
	t.Helper()
	m, err := etcdnode.Manage(o.Folder)
	harness.Must(t, err)
	defer func() { _ = m.Close() }()
	return do(m)
}

func statusOf(t *testing.T, o etcdnode.Options) (s etcdnode.Status) {
	t.Helper()
	harness.Must(t, manage(t, o, func(m *etcdnode.Manager) (err error) {
		s, err = m.Status(t.Context())
		return err
	}))
	return s
}

// copyFolder copies what is in a folder, except some names, over another one.
func copyFolder(t *testing.T, from, to string, except ...string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	harness.Must(t, err)
	harness.Must(t, os.MkdirAll(to, 0o700))
entries:
	for _, entry := range entries {
		for _, name := range except {
			if entry.Name() == name {
				continue entries
			}
		}
		harness.Must(t, exec.Command("cp", "-rT", filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())).Run())
	}
}
