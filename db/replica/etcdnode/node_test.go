package etcdnode_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/locket-service/locket/db/replica/etcdnode"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// newCluster makes the options of nodes with certificates, and empty folders.
func newCluster(t *testing.T, names ...string) (all []etcdnode.Options) {
	t.Helper()
	ca := fixtures.NewCA(t)
	cert, key := ca.Issue(t, "node")
	var members []etcdnode.Member
	for _, name := range names {
		address, err := fixtures.FreeAddress()
		harness.Must(t, err)
		members = append(members, etcdnode.Member{Name: name, Address: address})
	}
	for _, m := range members {
		all = append(all, etcdnode.Options{
			Folder: filepath.Join(t.TempDir(), "etcd"), Name: m.Name, Cluster: members, Cert: cert, Key: key, CA: ca.File,
		})
	}
	return all
}

// joining returns the options of another node.
func joining(t *testing.T, name string, member etcdnode.Options) (o etcdnode.Options, address string) {
	t.Helper()
	address, err := fixtures.FreeAddress()
	harness.Must(t, err)
	o = member
	o.Folder, o.Name, o.Cluster, o.Join = filepath.Join(t.TempDir(), "etcd"), name, nil, member.Cluster[0].Address
	return o, address
}

// isNow waits until a node has a role and answers.
func isNow(t *testing.T, asked etcdnode.Options, name string, roles ...etcdnode.Role) {
	t.Helper()
	harness.Eventually(t, func() error {
		s := statusOf(t, asked)
		for _, n := range s.Nodes {
			for _, role := range roles {
				if n.Name == name && n.Role == role && n.Answers {
					return nil
				}
			}
		}
		return fmt.Errorf("%s is not %v: %+v", name, roles, s)
	})
}

func add(t *testing.T, asked etcdnode.Options, name, address string) error {
	t.Helper()
	return manage(t, asked, func(m *etcdnode.Manager) error {
		return m.Add(t.Context(), etcdnode.Member{Name: name, Address: address})
	})
}

func remove(t *testing.T, asked etcdnode.Options, name string) error {
	t.Helper()
	return manage(t, asked, func(m *etcdnode.Manager) error { return m.Remove(t.Context(), name) })
}

func replace(t *testing.T, asked etcdnode.Options, name string) error {
	t.Helper()
	return manage(t, asked, func(m *etcdnode.Manager) error {
		_, err := m.Replace(t.Context(), etcdnode.Member{Name: name})
		return err
	})
}

func refused(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	if !errors.Is(err, etcdnode.ErrRefused) {
		t.Fatalf("%s: %v", what, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v; it does not say %q", what, err, text)
		}
	}
}

// TestCluster is the life of a cluster: three nodes form it, one is killed, one is added, one is lost and replaced.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, "a", "b", "c")
	a, b, c := nodes[0], nodes[1], nodes[2]
	pc, pa := start(t, c), start(t, a)
	other := b
	other.Cluster = b.Cluster[:2]
	pb := start(t, other)
	for _, p := range []*process{pa, pb} {
		harness.Until(t, "warning", func() bool { return strings.Contains(p.text(), "give all nodes the same --cluster") })
	}
	pb.kill()
	select {
	case <-pa.started:
		t.Fatal("a cluster was formed without one of its nodes")
	default:
	}
	pb = start(t, b)
	for _, p := range []*process{pa, pb, pc} {
		p.runs(t)
	}
	s := statusOf(t, a)
	if s.Voters != 3 || s.Answering != 3 || s.MayFail() != 1 || s.Leader == "" || len(s.Problems()) > 0 {
		t.Fatalf("the new cluster is %+v, %q", s, s.Problems())
	}
	start(t, a).isInUse(t)

	pb.kill()
	harness.Until(t, "b is missed", func() bool { s := statusOf(t, a); return s.MayFail() == 0 && s.Leader != "" })
	refused(t, "remove a of two", remove(t, a, "c"), "that would be an outage")
	d, address := joining(t, "d", a)
	refused(t, "add while b is down", add(t, a, "d", address), "node b does not answer")
	b.Cluster = b.Cluster[:2]
	pb = start(t, b)
	pb.runs(t)
	isNow(t, a, "b", etcdnode.Follower, etcdnode.Leader)

	start(t, d).isRefused(t, "does not expect a new node", "locket cluster add d=")
	harness.Must(t, add(t, a, "d", address))
	start(t, d).runs(t)
	isNow(t, a, "d", etcdnode.Follower, etcdnode.Leader)
	if s := statusOf(t, a); s.Voters != 4 || s.MayFail() != 1 {
		t.Errorf("with d: %+v", s)
	}

	refused(t, "replace a node that runs", replace(t, a, "c"), "stop its server first")
	pc.kill()
	harness.Must(t, os.RemoveAll(c.Folder))
	start(t, c).isRefused(t, "its folder is empty now", "locket cluster replace c=")
	c.Join, c.Cluster = a.Cluster[0].Address, nil
	start(t, c).isRefused(t, "has run before", "locket cluster replace c=")
	harness.Must(t, replace(t, a, "c"))
	refused(t, "remove a node without a name", remove(t, a, ""), `no node ""`)
	refused(t, "replace an unknown node", replace(t, a, "z"), `no node "z"`)
	refused(t, "add the node at c's address again", add(t, a, "c", a.Cluster[2].Address), "start it with --join")
	start(t, c).runs(t)
	isNow(t, a, "c", etcdnode.Follower, etcdnode.Leader)

	pb.stop(t)
	if !strings.Contains(pb.text(), "--cluster has no effect") {
		t.Errorf("b was started with another --cluster and did not warn:\n%s", pb.text())
	}
	harness.Must(t, remove(t, a, "b"))
	if s := statusOf(t, a); s.Voters != 3 || s.MayFail() != 1 {
		t.Errorf("without b: %+v", s)
	}
	start(t, b).isRefused(t, "was removed from the cluster")
}

// TestNodeWithOtherCertificates: while a node waits for another one whose connections fail, it says why.
func TestNodeWithOtherCertificates(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, "a", "b")
	listener, err := net.Listen("tcp", nodes[0].Cluster[1].Address)
	harness.Must(t, err)
	b := httptest.NewUnstartedServer(http.NotFoundHandler())
	harness.Must(t, b.Listener.Close())
	b.Listener = listener
	b.StartTLS()
	defer b.Close()
	p := start(t, nodes[0])
	harness.Until(t, "the reason", func() bool { return strings.Contains(p.text(), "signed by unknown authority") })
}

// isInUse waits until a node ends because another process uses its folder.
func (p *process) isInUse(t *testing.T) {
	t.Helper()
	harness.Await(t, "end", p.ended)
	if !strings.Contains(p.text(), "in use") {
		t.Errorf("a second process of the same node:\n%s", p.text())
	}
}

// TestDamage: a node whose files are damaged ends with an error, also when etcd ends the process itself.
func TestDamage(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"wal/0000000000000000-0000000000000000.wal": "locket cluster replace a=",
		"snap/db": etcdnode.ErrFatal.Error() + ": failed to open database",
	} {
		o := newCluster(t, "a")[0]
		p := start(t, o)
		p.runs(t)
		p.kill()
		file = filepath.Join(o.Folder, "member", file)
		text, err := os.ReadFile(file)
		harness.Must(t, err)
		for i := range min(len(text), 16<<10) {
			text[i] ^= 1
		}
		harness.Must(t, os.WriteFile(file, text, 0o600))
		p = start(t, o)
		harness.Await(t, "end", p.ended)
		if code := p.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.text(), "error: ") || !strings.Contains(p.text(), want) {
			t.Errorf("with damage in %s the node ended with %d:\n%s", file, code, p.text())
		}
	}
}

// TestFolders: folders that a node must not use.
func TestFolders(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, "a", "b", "c")
	var all []*process
	for _, o := range nodes {
		all = append(all, start(t, o))
	}
	for _, p := range all {
		p.runs(t)
	}
	c, lone := nodes[2], newCluster(t, "c")[0]
	p := start(t, lone)
	p.runs(t)
	p.stop(t)
	all[2].stop(t)

	foreign := c
	foreign.Folder = lone.Folder
	start(t, foreign).isRefused(t, "is of another cluster")
	misnamed := c
	misnamed.Name = "b"
	start(t, misnamed).isRefused(t, "is the folder of node c", "--node c")
	copied, old := c, filepath.Join(t.TempDir(), "old")
	copied.Folder = filepath.Join(t.TempDir(), "etcd")
	copyFolder(t, c.Folder, copied.Folder)
	copyFolder(t, c.Folder, old, "lock", "client.sock")
	start(t, copied).isRefused(t, "is a copy", "locket cluster replace c=")

	p = start(t, c)
	p.runs(t)
	p.stop(t)
	harness.Must(t, os.RemoveAll(filepath.Join(c.Folder, "member")))
	start(t, c).isRefused(t, "have been deleted", "locket cluster replace c=")
	copyFolder(t, old, c.Folder)
	start(t, c).isRefused(t, "was taken back to an older state", "locket cluster replace c=")
	if s := statusOf(t, nodes[0]); s.Answering != 2 || s.MayFail() != 0 || len(s.Problems()) != 1 || !strings.Contains(s.Next(), "one more failure is an outage") {
		t.Errorf("the others: %+v, %q, %s", s, s.Problems(), s.Next())
	}
}
