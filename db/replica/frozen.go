package replica

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/locket-service/locket/db/replica/disk"
)

// frozen is a disk.Disk that reads a folder and changes nothing in it: writes and deletions are dropped. Opened files
// are kept open, so that they can be read even after a server deletes them.
type frozen struct {
	path  string
	files map[string]*os.File
}

var errFrozen = errors.New("the folder is only read")

func freeze(path string) *frozen { return &frozen{path, make(map[string]*os.File)} }

// Open implements disk.Disk.
func (f *frozen) Open(name string) (disk.File, error) {
	opened := f.files[name]
	if opened == nil {
		var err error
		if opened, err = os.Open(f.Path(name)); err != nil {
			return nil, err
		}
		f.files[name] = opened
	}
	return frozenFile{opened}, nil
}

// Create implements disk.Disk.
func (f *frozen) Create(string) (disk.File, error) { return nil, errFrozen }

// Rename implements disk.Disk.
func (f *frozen) Rename(string, string) error { return errFrozen }

// Remove implements disk.Disk.
func (f *frozen) Remove(string) error { return nil }

// List implements disk.Disk.
func (f *frozen) List() (names []string, err error) {
	entries, err := os.ReadDir(f.path)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Sync implements disk.Disk.
func (f *frozen) Sync() error { return nil }

// Path implements disk.Disk.
func (f *frozen) Path(name string) string { return filepath.Join(f.path, name) }

// close closes the files.
func (f *frozen) close() {
	for _, opened := range f.files {
		_ = opened.Close() // nothing was written to it
	}
}

type frozenFile struct{ *os.File }

func (f frozenFile) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }

func (f frozenFile) Sync() error { return nil }

func (f frozenFile) Close() error { return nil }

func (f frozenFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
