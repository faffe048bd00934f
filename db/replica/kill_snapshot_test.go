package replica_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestKillDuringSnapshot kills a server before and after each thing that a snapshot does to the disk. What has ended is
// in the history afterwards, for the server and for a backup.
func TestKillDuringSnapshot(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	var killed []string
	kill := func(operation string) {
		left := filepath.Join(t.TempDir(), "left")
		if err := os.CopyFS(left, os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
		replica.Adopt(t, left)
		killed = append(killed, left)
		t.Logf("kill %d: %s", len(killed), operation)
	}
	log, snapshots := &killing{Disk: disktest.Folder(filepath.Join(folder, "log"))}, &killing{Disk: disktest.Folder(filepath.Join(folder, "snapshots"))}
	s, err := replica.OpenWith(folder, replica.Options{SegmentBytes: 128 << 10, Delay: time.Hour, Disk: log, Snapshots: snapshots}) // the history is not written by itself
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for range 2 { // the second one takes the place of the first
		for range 40 {
			c := claim.Create{ID: fmt.Sprint(made), Resource: fmt.Sprint(made), TTL: time.Hour, Value: string(make([]byte, 5000))}
			for _, cmd := range []claim.Command{c, claim.End{ID: c.ID}} {
				if err := do(s, cmd); err != nil {
					t.Fatal(err)
				}
			}
			made++
		}
		log.set(kill)
		snapshots.set(kill)
		if err := s.Snapshot(); err != nil {
			t.Fatal(err)
		}
		log.set(nil)
		snapshots.set(nil)
		for n, left := range killed {
			endedIn(t, fmt.Sprintf("kill %d", n+1), left, made)
		}
		killed = nil
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestKillDuringFirstStart kills a server before and after each operation of its first start on the log. The next start
// sets it up again.
func TestKillDuringFirstStart(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	var killed []string
	log := &killing{Disk: disktest.Folder(filepath.Join(folder, "log")), kill: func(operation string) {
		left := filepath.Join(t.TempDir(), "left")
		if err := os.CopyFS(left, os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
		killed = append(killed, left)
		t.Logf("kill %d: %s", len(killed), operation)
	}}
	s, err := replica.OpenWith(folder, replica.Options{SegmentBytes: 128 << 10, Delay: time.Hour, Disk: log})
	if err != nil {
		t.Fatal(err)
	}
	log.kill = nil
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(killed) == 0 {
		t.Fatal("nothing was done")
	}
	for n, left := range killed {
		if vacant, err := replica.Vacant(left); !vacant || err != nil {
			t.Errorf("kill %d: vacant: %t (%v)", n+1, vacant, err)
		}
		for range 2 {
			s := open(t, left)
			if err := do(s, claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour}); err != nil {
				t.Errorf("kill %d: %v", n+1, err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("kill %d: %v", n+1, err)
			}
		}
	}
}

// endedIn checks that a folder has the claims up to one as they have ended.
func endedIn(t *testing.T, when, folder string, made int) {
	t.Helper()
	k := backup.NewChecker()
	if err := replica.Dump(folder, k); err != nil || k.Found != 0 || k.History != made {
		t.Errorf("%s: a backup has %d of %d claims, %q, %v", when, k.History, made, k.Problems, err)
	}
	s := open(t, folder)
	lost := 0
	for n := range made {
		if c, _, _, err := s.Get(t.Context(), fmt.Sprint(n), 0); err != nil || c.Status != claim.Released {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%s: the server has lost %d of %d claims", when, lost, made)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// killing is a disk that calls kill, unless it is nil, before and after each operation.
type killing struct {
	disk.Disk
	mu   sync.Mutex // the log makes its next file beside everything else
	kill func(operation string)
}

func (k *killing) set(kill func(operation string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kill = kill
}

func (k *killing) around(operation string, do func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kill == nil {
		return do()
	}
	k.kill("before " + operation)
	err := do()
	k.kill("after " + operation)
	return err
}

func (k *killing) Create(name string) (f disk.File, err error) {
	err = k.around("create "+name, func() error { f, err = k.Disk.Create(name); return err })
	return killingFile{f, k}, err
}

func (k *killing) Rename(from, to string) error {
	return k.around("rename "+from, func() error { return k.Disk.Rename(from, to) })
}

func (k *killing) Remove(name string) error {
	return k.around("remove "+name, func() error { return k.Disk.Remove(name) })
}

func (k *killing) Sync() error { return k.around("sync", k.Disk.Sync) }

type killingFile struct {
	disk.File
	disk *killing
}

func (f killingFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.disk.around("write", func() error { n, err = f.File.WriteAt(b, at); return err })
	return n, err
}
