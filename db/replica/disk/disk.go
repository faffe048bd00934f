// Package disk is the interface to a folder of files for the embedded engine, and its implementation by the operating
// system. Package disktest has one that fails, and loses unsynced data.
package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
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

// Folder is a Disk of the operating system.
type Folder string

// Open implements Disk.
func (f Folder) Open(name string) (File, error) { return f.open(name, os.O_RDWR) }

// Create implements Disk.
func (f Folder) Create(name string) (File, error) {
	return f.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (f Folder) open(name string, flags int) (File, error) {
	opened, err := os.OpenFile(f.Path(name), flags, mode)
	if err != nil {
		return nil, err
	}
	return file{opened}, nil
}

// Rename implements Disk.
func (f Folder) Rename(from, to string) error { return os.Rename(f.Path(from), f.Path(to)) }

// Remove implements Disk.
func (f Folder) Remove(name string) error { return os.Remove(f.Path(name)) }

// List implements Disk.
func (f Folder) List() (names []string, err error) {
	entries, err := os.ReadDir(string(f))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Sync implements Disk.
func (f Folder) Sync() error {
	opened, err := os.Open(string(f))
	if err != nil {
		return err
	}
	return errors.Join(opened.Sync(), opened.Close())
}

// Path implements Disk.
func (f Folder) Path(name string) string { return filepath.Join(string(f), name) }

type file struct{ *os.File }

func (f file) Sync() error { return syncData(f.File) }

func (f file) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
