package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest/golden"
)

// TestGoldenFiles: the small files of a folder, and the announcement of a server, that this version has written are read, and written in
// the same way.
func TestGoldenFiles(t *testing.T) {
	f, err := lockFolder(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	f.log, f.node = 1<<40+1, 1<<50+1
	announced, err := json.Marshal(announcement{
		Member: db.Member{Name: "a", Host: "host", Version: "1.0", Started: 1, Seen: 2}, About: []byte("about"), Snapshot: 7, Complete: true, Format: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(
		t,
		fileFormat(t, f.file(nodeName), "node-1", func() error { return f.note(stateCluster) }, func() error {
			again := &folder{path: f.path, held: f.held}
			err := again.readNode()
			return errors.Join(err, again.note(again.state))
		}),
		fileFormat(t, filepath.Join(f.path, "locket-7"), "witness-1", func() error { return witnessed(f.path, 9, 1<<50) }, func() error {
			w, err := openWitness(f.path, 7)
			w.close()
			return errors.Join(err, witnessed(f.path, w.entry, w.version))
		}),
		golden.Format{Name: "run-1", Written: runOf(3, "identity", "/data", "machine"), Again: func(data []byte) ([]byte, error) {
			var number uint64
			var identity, path, machine string
			body, intact := summed(data)
			_, err := fmt.Sscanf(body, runText, &number, &identity, &path, &machine)
			if !intact {
				err = errors.Join(err, errors.New("it is damaged"))
			}
			return runOf(number, identity, path, machine), err
		}},
		golden.Format{Name: "announcement-1", Written: announced, Again: func(data []byte) ([]byte, error) {
			var a announcement
			if err := json.Unmarshal(data, &a); err != nil {
				return nil, err
			}
			return json.Marshal(a)
		}},
	)
}

// fileFormat is the format of a file that write writes. again reads and writes it.
func fileFormat(t *testing.T, path, name string, write, again func() error) golden.Format {
	t.Helper()
	if err := write(); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return golden.Format{Name: name, Written: written, Again: func(data []byte) ([]byte, error) {
		if err := os.WriteFile(path, data, fileMode); err != nil {
			return nil, err
		}
		err := again()
		got, unread := os.ReadFile(path)
		return got, errors.Join(err, unread)
	}}
}

// witnessed has a new witness note an entry and a version.
func witnessed(folder string, entry, version uint64) error {
	if err := os.RemoveAll(filepath.Join(folder, "locket-7")); err != nil {
		return err
	}
	w, err := openWitness(folder, 7)
	w.note(entry, version)
	w.close()
	return err
}

func runOf(number uint64, identity, path, machine string) []byte {
	return []byte(withSum(fmt.Sprintf(runText, number, identity, path, machine)))
}
