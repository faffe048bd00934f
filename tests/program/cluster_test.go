package program_test

import (
	"os"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// TestClusterDocument executes the commands of docs/cluster.md for one machine: two servers. One is killed, the other backed
// up, and a new cluster of two servers continues with the backup.
func TestClusterDocument(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	harness.Must(t, os.Symlink(fixtures.LocketProgram(t), folder+"/locket"))
	begin := harness.CommandsOf(t, "../../docs/cluster.md", "An existing etcd", "./locket")
	kills := harness.CommandsOf(t, "../../docs/cluster.md", "An existing etcd", "kill")
	again := harness.CommandsOf(t, "../../docs/cluster.md", "Runbook", "./locket")
	serves := harness.CommandsOf(t, "../../docs/cluster.md", "Runbook", "until")
	if len(begin) != 4 || len(kills) != 1 || len(again) != 4 || len(serves) != 1 {
		t.Fatalf("%q, %q, %q, %q", begin, kills, again, serves)
	}
	const (
		first  = `until curl -q -sf http://127.0.0.1:8892/readyz >/dev/null; do kill -0 $!; sleep 0.1; done`
		second = `until curl -q -sf http://127.0.0.1:9892/readyz >/dev/null; do kill -0 $!; sleep 0.1; done`
		fetch  = "./locket fetch nightly --address 127.0.0.1:9891"
	)
	lines := []string{"trap 'kill -9 $(jobs -p)' EXIT", "set -e", "cd " + folder, begin[0], first, begin[1], second, begin[2], kills[0], begin[3]}
	lines = append(lines, again[0], "kill $!", "wait", again[1], again[2], "export LOCKET_ADDRESS=127.0.0.1:8891", serves[0], again[3], second, fetch)
	script := strings.Join(lines, "\n")
	script = strings.ReplaceAll(script, "http://127.0.0.1:2379", fixtures.NewEtcd(t, fixtures.Etcd34, 1).Endpoints()[0])
	for _, address := range []string{"127.0.0.1:8891", "127.0.0.1:8892", "127.0.0.1:9891", "127.0.0.1:9892"} {
		free, err := fixtures.FreeAddress()
		harness.Must(t, err)
		script = strings.ReplaceAll(script, address, free)
	}
	output, err := bash(t, script, "no_proxy=127.0.0.1")
	if err != nil || !strings.Contains(output, "\nme\t") {
		t.Errorf("%v\n%s", err, output)
	}
}
