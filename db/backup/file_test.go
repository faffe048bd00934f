package backup

import "testing"

// notes is a file that notes how much of it is not synced.
type notes struct{ unsynced, most int }

func (n *notes) Write(b []byte) (int, error) {
	n.unsynced += len(b)
	n.most = max(n.most, n.unsynced)
	return len(b), nil
}

func (n *notes) Sync() error {
	n.unsynced = 0
	return nil
}

// TestSynced: a large file is synced while it is written.
func TestSynced(t *testing.T) {
	file := new(notes)
	to := synced{file: file}
	for range 100 {
		if n, err := to.Write(make([]byte, 1<<20)); n != 1<<20 || err != nil {
			t.Fatal(n, err)
		}
	}
	if file.most > syncBytes {
		t.Errorf("%d bytes are written and not on the disk", file.most)
	}
}
