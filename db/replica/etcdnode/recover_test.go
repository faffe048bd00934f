package etcdnode_test

import (
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"

	"github.com/locket-service/locket/db/replica/etcdnode"
	"github.com/locket-service/locket/tests/harness"
)

// commitIndex reads a log, and returns the last entry that is committed by it, and the last one. It notes another commit first if that is
// not 0.
func commitIndex(t *testing.T, folder string, noted uint64) (committed, last uint64) {
	t.Helper()
	w, err := wal.Open(zap.NewNop(), folder, new(walpb.Snapshot))
	harness.Must(t, err)
	_, state, entries, err := w.ReadAll()
	harness.Must(t, err)
	if noted != 0 {
		state.Commit = &noted
		harness.Must(t, w.Save(state, nil))
	}
	harness.Must(t, w.Close())
	return state.GetCommit(), entries[len(entries)-1].GetIndex()
}

// TestCommitAll: a recovery keeps entries that a node has received, and whose commit it had not heard of.
func TestCommitAll(t *testing.T) {
	t.Parallel()
	o := newCluster(t, "a")[0]
	p := start(t, o)
	p.runs(t)
	p.kill()
	folder := filepath.Join(o.Folder, "member", "wal")
	if committed, last := commitIndex(t, folder, 1); committed != 1 || last < 3 {
		t.Fatalf("the log ends at %d, and is committed up to %d", last, committed)
	}
	harness.Must(t, etcdnode.CommitAll(folder))
	if committed, last := commitIndex(t, folder, 0); committed != last {
		t.Errorf("entry %d of %d is the last that is committed", committed, last)
	}
}
