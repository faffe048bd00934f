package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"github.com/locket-service/locket/db"
)

// mode is that of new files. SQLite gives the write-ahead log and the shared memory the
// mode of the database.
const mode = 0o600

// databaseFile is the file of one store, and the locks that make this process its only server.
//
// The lock that decides is on the file itself, so a server notices another one whatever the name
// that the other was given. The lock on PATH.lock excludes versions of Locket that know no other.
// The kernel lifts both when the process ends, however it ends.
type databaseFile struct {
	path  string // without symbolic links: SQLite keeps its other files beside this one
	info  os.FileInfo
	parts []filePart // what has to stay where it is
	locks []*os.File
}

// filePart is a file that the store uses, and its path.
type filePart struct {
	path string
	info os.FileInfo
}

// opened are the database files of this process. None is opened twice: SQLite's locks are POSIX
// locks, and closing any descriptor of a file drops all that the process has on it.
var opened struct {
	sync.Mutex
	files []*databaseFile
}

// openFile makes the file if it is not there, and this process its only server. It returns
// db.ErrInUse when there is another.
func openFile(path string) (_ *databaseFile, err error) {
	opened.Lock()
	defer opened.Unlock()
	if info, err := os.Stat(path); err == nil && isOpened(info) {
		return nil, fmt.Errorf("lock %s: %w", path, db.ErrInUse)
	}
	f := &databaseFile{}
	defer func() {
		if err != nil {
			f.unlock()
		}
	}()
	if err = f.open(path); err != nil {
		return nil, err
	}
	folder, err := resolve(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Compact([]string{f.path, filepath.Join(folder, filepath.Base(path))}) {
		if err = f.lock(name+".lock", true); err != nil {
			return nil, err
		}
	}
	opened.files = append(opened.files, f)
	return f, nil
}

func isOpened(info os.FileInfo) bool {
	return slices.ContainsFunc(opened.files, func(f *databaseFile) bool { return os.SameFile(f.info, info) })
}

// open opens the file through all links, and locks it.
func (f *databaseFile) open(path string) (err error) {
	// flock(2) and the POSIX locks of SQLite are independent on Linux; elsewhere they may
	// exclude each other.
	if err = f.lock(path, runtime.GOOS == "linux"); err != nil {
		return err
	}
	if f.info, err = f.locks[0].Stat(); err != nil {
		return err
	}
	if f.path, err = resolve(path); err != nil {
		return err
	}
	f.parts = []filePart{{f.path, f.info}}
	return f.check()
}

// resolve returns the absolute path without symbolic links.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// lock opens a file, makes it if it is not there, and holds it until the process ends. exclusive
// says that no other process may.
func (f *databaseFile) lock(path string, exclusive bool) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, mode)
	if err != nil {
		return err
	}
	f.locks = append(f.locks, file)
	if !exclusive {
		return nil
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = db.ErrInUse
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	return nil
}

// addLog makes the write-ahead log, which SQLite has open by now, one of the files that check
// looks at.
func (f *databaseFile) addLog() error {
	path := f.path + "-wal"
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f.parts = append(f.parts, filePart{path, info})
	return f.check()
}

// check returns db.ErrUnavailable when one of the files is no longer at its path: what this
// process writes would be lost, and another server may have opened what is there now.
func (f *databaseFile) check() error {
	for _, part := range f.parts {
		info, err := os.Stat(part.path)
		if err == nil && os.SameFile(info, part.info) {
			continue
		}
		err = fmt.Errorf("%s was moved, deleted or replaced while the server used it; put it back, or restart the server", part.path)
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	return nil
}

// close lifts the locks. It is called when SQLite has closed the file.
func (f *databaseFile) close() {
	opened.Lock()
	defer opened.Unlock()
	opened.files = slices.DeleteFunc(opened.files, func(other *databaseFile) bool { return other == f })
	f.unlock()
}

func (f *databaseFile) unlock() {
	for _, file := range f.locks {
		_ = file.Close() // nothing was written to it
	}
}
