// Package disk is the interface to a folder of files for the embedded engine, and its implementation by the operating
// system. Package disktest has one that fails, and loses unsynced data.
package disk

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Disk is one folder of files.
type Disk interface {
	// Open opens a file. It returns an error that is fs.ErrNotExist when there is none.
	Open(name string) (File, error)
	// Create makes a new, empty file, replacing any file with the name.
	Create(name string) (File, error)
	// Rename gives a file another name, replacing any file with that name.
	Rename(from, to string) error
	// Remove deletes a file.
	Remove(name string) error
	// List returns the names of all files, in order.
	List() ([]string, error)
	// Sync makes durable what Create, Rename and Remove have done.
	Sync() error
	// Path returns where a file is, for messages.
	Path(name string) string
}

// File is one open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Sync makes durable what was written.
	Sync() error
	// Size returns the length of the file.
	Size() (int64, error)
	Close() error
}

// NoRoom reports whether an error says that the disk is full.
func NoRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// NoFiles reports whether an error says that this process, or the machine, may open no more files.
func NoFiles(err error) bool { return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) }

// mode is for new files.
const mode = 0o600

type file struct{ *os.File }

func (f file) Sync() error { return syncData(f.File) }

func (f file) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
