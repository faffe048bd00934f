package etcdlog_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/locket-service/locket/db/replica/order"
)

// An etcd whose folder was taken back to an older state is behind the servers that have the records after it.
func TestRolledBack(t *testing.T) {
	e := cluster(t, single34)
	o, m, backup := quietly(e), e.Members[0], filepath.Join(t.TempDir(), "backup")
	l := open(t, o)
	fill(t, l, 1, 5)
	must(t, m.Kill(), os.CopyFS(backup, os.DirFS(m.Folder())), m.Start())
	fill(t, l, 6, 8)
	must(t, m.Kill(), os.RemoveAll(m.Folder()), os.CopyFS(m.Folder(), os.DirFS(backup)), m.Start())
	_, err := l.Last(t.Context(), 8)
	for call, err := range map[string]error{
		"last":   err,
		"append": l.Append(t.Context(), 1, 9, content(9)),
		"raise":  l.Raise(t.Context(), 1, 8, nil),
		"follow": l.Follow(t.Context(), 8, func(order.Event) error { return nil }),
	} {
		if !errors.Is(err, order.ErrBehind) {
			t.Errorf("%s: %v, want %v", call, err, order.ErrBehind)
		}
	}
	if last, err := l.Last(t.Context(), 5); err != nil || last != 5 {
		t.Errorf("last: %d, %v", last, err)
	}
}
