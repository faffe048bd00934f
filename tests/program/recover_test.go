package program_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// documented runs the command of docs/cluster.md that begins with some words, with the data of a node and the address of another one.
func (n node) documented(t *testing.T, begin string, other node) (complaint string, code int) {
	t.Helper()
	for _, line := range harness.CommandsOf(t, "../../docs/cluster.md", "Runbook", "locket") {
		line, _, _ = strings.Cut(line, " #")
		if command, is := strings.CutPrefix(line, "locket "); is && strings.HasPrefix(command, begin) {
			args := strings.Fields(strings.NewReplacer("10.0.0.2:8893", other.address, " --data /var/lib/locket", "").Replace(command))
			_, complaint, code = harness.RunLocket(t, []string{"LOCKET_DATA=" + n.data}, args...)
			return complaint, code
		}
	}
	t.Fatalf("docs/cluster.md has no command %q", begin)
	return "", 0
}

// TestRecover: a node continues alone, with the commands of docs/cluster.md, when the two others were killed. The old ones, which are
// a majority of the old cluster, come back while it is down, and end when it starts. One of them joins the new cluster.
func TestRecover(t *testing.T) {
	t.Parallel()
	nodes := newNodes(t, "a", "b", "c")
	a, b, c := nodes[0], nodes[1], nodes[2]
	for _, n := range nodes {
		harness.Must(t, n.Launch())
	}
	for _, n := range nodes {
		harness.Must(t, n.AwaitServing(harness.HangTimeout))
	}
	harness.Lock(t, b.Client(t), "k", "me", time.Hour)
	_, err := harness.TryLock(t, a.Client(t), "k", "you", time.Hour) // a has it by now
	if models.ReasonOf(err) != models.ReasonLockCollision {
		t.Fatal(err)
	}
	refused := func(when, reason string) {
		t.Helper()
		if complaint, code := a.documented(t, "cluster recover", b); code == 0 || !strings.Contains(complaint, reason) {
			t.Errorf("%s, the recovery ended with %d: %s", when, code, complaint)
		}
	}
	refused("while the server runs", "in use")
	a.Kill()
	refused("while the others run", "b="+b.address+",c="+c.address+" answers")
	b.Kill()
	refused("while one of the others runs", "c="+c.address+" answers")
	c.Kill()
	if _, complaint, code := harness.RunLocket(t, nil, "cluster", "recover", "--data", a.data, "--lost", "b"); code == 0 || !strings.Contains(complaint, "--lost b,c") {
		t.Errorf("without the name of a node the recovery ended with %d: %s", code, complaint)
	}
	if complaint, code := a.documented(t, "cluster recover", b); code != 0 {
		t.Fatal(complaint)
	}

	interrupted := filepath.Join(a.data, "etcd", "node.json")
	text, err := os.ReadFile(interrupted)
	harness.Must(t, err)
	harness.Must(t, os.WriteFile(interrupted, []byte(strings.Replace(string(text), "{", `{ "recovering": true,`, 1)), 0o600))
	if err := a.Start(); err == nil || !strings.Contains(a.Log(), "type locket cluster recover again") {
		t.Errorf("after an interrupted recovery the server starts: %v", err)
	}
	if complaint, code := a.documented(t, "cluster recover", b); code != 0 {
		t.Fatal(complaint)
	}

	harness.Must(t, b.Launch())
	harness.Must(t, c.Launch())
	harness.Must(t, b.AwaitServing(harness.HangTimeout))
	harness.Must(t, a.Start())
	for _, n := range []node{b, c} {
		if code, err := n.Wait(harness.HangTimeout); err != nil || code == 0 || !strings.Contains(n.Log(), "locket cluster add "+n.name) {
			t.Errorf("old node %s ended with %d, %v", n.name, code, err)
		}
	}
	if err := c.Start(); err == nil {
		t.Error("an old node has started beside the recovered one")
	}
	client := a.Client(t)
	if _, err := harness.TryLock(t, client, "k2", "me", time.Hour); models.ReasonOf(err) != models.ReasonQuarantine {
		t.Errorf("the first grant after the recovery: %v", err)
	}
	if _, err := harness.TryLock(t, client, "k", "you", time.Hour); models.ReasonOf(err) != models.ReasonLockCollision {
		t.Errorf("somebody else's lock after the recovery: %v", err)
	}
	harness.Lock(t, client, "k", "me", time.Hour)

	harness.Must(t, os.RemoveAll(b.data))
	if complaint, code := a.documented(t, "cluster add", b); code != 0 {
		t.Fatal(complaint)
	}
	again := node{fixtures.NewLocket(t, b.Database(), "--node", "b", "--join", a.address), "b", b.address, b.data}
	harness.Must(t, again.Start())
	if _, err := harness.TryLock(t, again.Client(t), "k", "you", time.Hour); models.ReasonOf(err) != models.ReasonLockCollision {
		t.Errorf("somebody else's lock at the new node: %v", err)
	}
}
