package disktest

import (
	"errors"
	"path/filepath"

	"github.com/locket-service/locket/db/replica/disk"
)

// Folder is a disk.Disk in a folder that need not exist yet: each call opens it.
type Folder string

// Open implements disk.Disk.
func (f Folder) Open(name string) (disk.File, error) {
	return in(f, func(h *disk.Held) (disk.File, error) { return h.Open(name) })
}

// Create implements disk.Disk.
func (f Folder) Create(name string) (disk.File, error) {
	return in(f, func(h *disk.Held) (disk.File, error) { return h.Create(name) })
}

// Rename implements disk.Disk.
func (f Folder) Rename(from, to string) error {
	_, err := in(f, func(h *disk.Held) (any, error) { return nil, h.Rename(from, to) })
	return err
}

// Remove implements disk.Disk.
func (f Folder) Remove(name string) error {
	_, err := in(f, func(h *disk.Held) (any, error) { return nil, h.Remove(name) })
	return err
}

// List implements disk.Disk.
func (f Folder) List() ([]string, error) { return in(f, (*disk.Held).List) }

// Sync implements disk.Disk.
func (f Folder) Sync() error {
	_, err := in(f, func(h *disk.Held) (any, error) { return nil, h.Sync() })
	return err
}

// Path implements disk.Disk.
func (f Folder) Path(name string) string { return filepath.Join(string(f), name) }

func in[T any](f Folder, do func(*disk.Held) (T, error)) (result T, err error) {
	held, err := disk.Hold(string(f))
	if err != nil {
		return result, err
	}
	result, err = do(held)
	return result, errors.Join(err, held.Close())
}
