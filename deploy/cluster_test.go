package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// argumentsOfPods reads the command line of the pods in the StatefulSet of a manifest.
func argumentsOfPods(t *testing.T, file string) (args []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	harness.Must(t, err)
	for documents := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var manifest struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct{ Args []string }
					}
				}
			}
		}
		err := documents.Decode(&manifest)
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no StatefulSet", file)
		}
		harness.Must(t, err)
		if manifest.Kind == "StatefulSet" {
			return manifest.Spec.Template.Spec.Containers[0].Args
		}
	}
}

// startPods starts three processes with the command line of the pods in a manifest. Only addresses and paths are this machine's: here has pairs.
func startPods(t *testing.T, file string, here ...string) {
	t.Helper()
	args := strings.Join(argumentsOfPods(t, file), "\n")
	for i := range 3 {
		address, err := fixtures.FreeAddress()
		harness.Must(t, err)
		here = append(here, fmt.Sprint("locket-", i, ".locket-nodes:8894"), address)
	}
	var pods []*fixtures.Locket
	for i := range 3 {
		pod := fixtures.NewLocket(t, "")
		line := strings.ReplaceAll(args, "$(POD_NAME)", fmt.Sprint("locket-", i))
		line = strings.NewReplacer(append([]string{
			"--ops-address=:8893", "--ops-address=", "--peer-address=:8894", fmt.Sprint("--peer-address=locket-", i, ".locket-nodes:8894"),
			"--grpc-address=:8891", "--grpc-address=" + pod.Address(), "--http-address=:8892", "--http-address=" + pod.HTTPAddress(),
			"/var/lib/locket/data", filepath.Join(t.TempDir(), "data"),
		}, here...)...).Replace(line)
		line = strings.NewReplacer(here...).Replace(line)
		if strings.Contains(line, "locket-nodes") || strings.Contains(line, "=:") || strings.Contains(line, "/etc/locket") {
			t.Fatalf("not of this machine: %s", line)
		}
		pod.RunAs(strings.Split(line, "\n")...)
		harness.Must(t, pod.Launch())
		pods = append(pods, pod)
	}
	for _, pod := range pods {
		harness.Must(t, pod.AwaitServing(harness.HangTimeout))
	}
	harness.Lock(t, pods[0].Client(t), "k", "me", time.Hour)
	if _, err := harness.TryLock(t, pods[2].Client(t), "k", "you", time.Hour); err == nil {
		t.Error("two pods have granted the same lock")
	}
}

// TestStatefulSet: three pods with etcd inside are a cluster.
func TestStatefulSet(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	cert, key := ca.Issue(t, "nodes")
	startPods(t, "kubernetes/cluster.yaml", "/etc/locket/nodes/tls.crt", cert, "/etc/locket/nodes/tls.key", key, "/etc/locket/nodes/ca.crt", ca.File)
}

// TestStatefulSetBesideEtcd: three pods beside an etcd with TLS are a cluster.
func TestStatefulSetBesideEtcd(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	cert, key := ca.Issue(t, "locket")
	etcd := fixtures.NewEtcd(t, fixtures.Etcd34, 1, fixtures.WithEtcdTLS(t, ca))
	startPods(t, "kubernetes/etcd.yaml", "/etc/locket/nodes/tls.crt", cert, "/etc/locket/nodes/tls.key", key, "/etc/locket/nodes/ca.crt", ca.File,
		"https://etcd-0.etcd:2379,https://etcd-1.etcd:2379,https://etcd-2.etcd:2379", etcd.Endpoints()[0])
}
