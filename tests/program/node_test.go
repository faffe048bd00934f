package program_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// node is a server with a node of etcd.
type node struct {
	*fixtures.Locket
	name, address, data string
}

func newNode(t *testing.T, name, address string, args ...string) node {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	return node{fixtures.NewLocket(t, "embedded:"+data, append([]string{"--node", name}, args...)...), name, address, data}
}

// newNodes returns the servers of a new cluster, which are not started yet.
func newNodes(t *testing.T, names ...string) (nodes []node) {
	t.Helper()
	var cluster, addresses []string
	for _, name := range names {
		address, err := fixtures.FreeAddress()
		harness.Must(t, err)
		cluster, addresses = append(cluster, name+"="+address), append(addresses, address)
	}
	for i, name := range names {
		nodes = append(nodes, newNode(t, name, addresses[i], "--cluster", strings.Join(cluster, ",")))
	}
	return nodes
}

// clusterStatus runs `locket cluster status` with the data of a node. It returns the answer and the exit status.
func clusterStatus(t *testing.T, n node) (status struct {
	Leader   string
	MayFail  int `json:"may_fail"`
	Voters   int
	Problems []string
	Format   struct{ Used, Newest uint64 }
}, code int,
) {
	t.Helper()
	out, complaint, code := harness.RunLocket(t, nil, "cluster", "status", "--data", n.data, "-o", "json")
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatalf("%v: %s%s", err, out, complaint)
	}
	return status, code
}

// TestCluster: three servers without another database or etcd survive kill -9 of one; a fourth one joins.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := newNodes(t, "a", "b", "c")
	for _, n := range nodes {
		harness.Must(t, n.Launch())
	}
	for _, n := range nodes {
		harness.Must(t, n.AwaitServing(harness.HangTimeout))
	}
	a, b, c := nodes[0], nodes[1], nodes[2]
	harness.Lock(t, a.Client(t), "k", "me", time.Hour)
	if _, err := harness.TryLock(t, b.Client(t), "k", "you", time.Hour); err == nil {
		t.Error("another server has granted the same lock")
	}
	if s, code := clusterStatus(t, a); code != 0 || s.Leader == "" || s.MayFail != 1 || len(s.Problems) > 0 {
		t.Errorf("the cluster is %+v, status %d", s, code)
	}

	harness.Until(t, "announcement of a server", func() bool {
		s, _ := clusterStatus(t, a)
		return s.Format.Used == 1 && s.Format.Newest == 1
	})
	if out, complaint, code := harness.RunLocket(t, nil, "cluster", "finalize", "--data", b.data); code != 0 || !strings.HasPrefix(out, "the log has format 1\n") {
		t.Errorf("status %d: %s%s", code, out, complaint)
	}

	d := newNode(t, "d", "", "--join", a.address)
	address, err := fixtures.FreeAddress()
	harness.Must(t, err)
	_, complaint, code := harness.RunLocket(t, nil, "cluster", "add", "d="+address, "--data", c.data)
	if code != 0 {
		t.Fatal(complaint)
	}
	harness.Must(t, d.Start())
	if _, err := harness.TryLock(t, d.Client(t), "k", "you", time.Hour); err == nil {
		t.Error("the new server has granted the same lock")
	}

	b.Kill()
	harness.Until(t, "b is missed", func() bool {
		s, code := clusterStatus(t, a)
		return code == 7 && s.Leader != "" && len(s.Problems) == 1 && strings.Contains(s.Problems[0], "locket cluster replace b")
	})
	_, err = harness.Answered(t, func() (uint64, error) { return harness.TryLock(t, c.Client(t), "k2", "me", time.Hour) })
	harness.Must(t, err)
	harness.Must(t, b.Start())
	if _, err := harness.TryLock(t, b.Client(t), "k2", "you", time.Hour); err == nil {
		t.Error("the restarted server has granted the same lock")
	}
}

// TestNodeCertificate: a server warns of a certificate of its node that ends soon, until the file is replaced. Then new
// connections use the new one.
func TestNodeCertificate(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	cert, key := ca.Issue(t, "a", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-24*time.Hour), time.Now().Add(time.Hour)
	})
	a := newNodes(t, "a")[0]
	a.Args = append(a.Args, "--cluster-cert", cert, "--cluster-key", key, "--cluster-ca", ca.File)
	harness.Must(t, a.Start())
	problem := func() string {
		for _, p := range problemsOf(t, a) {
			if strings.Contains(p, "--cluster-cert") {
				return p
			}
		}
		return ""
	}
	if p := problem(); !strings.Contains(p, `the certificate of "CN=a" ends at `) {
		t.Errorf("the problem is %q", p)
	}
	newCert, newKey := ca.Issue(t, "a2")
	for old, file := range map[string]string{cert: newCert, key: newKey} {
		text, err := os.ReadFile(file)
		harness.Must(t, err)
		harness.Must(t, os.WriteFile(old, text, 0o600))
	}
	harness.Until(t, "end of the problem", func() bool { return problem() == "" })
	client := ca.ClientTLS(t)
	conn, err := tls.Dial("tcp", a.address, client)
	harness.Must(t, err)
	defer conn.Close()
	if name := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; name != "a2" {
		t.Errorf("the node shows the certificate of %q", name)
	}
}

// problemsOf returns the problems in the status of a server.
func problemsOf(t *testing.T, n node) []string {
	t.Helper()
	s, err := n.Client(t).GetStatus(t.Context(), &models.GetStatusRequest{})
	harness.Must(t, err)
	return s.GetProblems()
}
