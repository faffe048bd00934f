package disk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// Held is a Disk of the operating system: a folder that is open. Whatever has its path by now, Held reads and changes the folder that it has opened.
type Held struct {
	path string
	// Root is the open folder, and Self is too, as a file. Close closes both.
	Root *os.Root
	Self *os.File
}

// Hold opens a folder.
func Hold(path string) (*Held, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return hold(path, root)
}

// Hold opens a folder that is in this one.
func (h *Held) Hold(name string) (*Held, error) {
	root, err := h.Root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return hold(h.Path(name), root)
}

func hold(path string, root *os.Root) (*Held, error) {
	self, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Held{path, root, self}, nil
}

// InPlace reports whether the path of the folder still leads to it.
func (h *Held) InPlace() (bool, error) {
	self, err := h.Self.Stat()
	if err != nil {
		return false, err
	}
	found, err := os.Stat(h.path)
	return err == nil && os.SameFile(self, found), nil
}

// Open implements Disk.
func (h *Held) Open(name string) (File, error) { return h.open(name, os.O_RDWR) }

// Create implements Disk.
func (h *Held) Create(name string) (File, error) {
	return h.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (h *Held) open(name string, flags int) (File, error) {
	opened, err := h.Root.OpenFile(name, flags, mode)
	if err != nil {
		return nil, err
	}
	return file{opened}, nil
}

// Rename implements Disk.
func (h *Held) Rename(from, to string) error { return h.Root.Rename(from, to) }

// Remove implements Disk.
func (h *Held) Remove(name string) error { return h.Root.Remove(name) }

// List implements Disk.
func (h *Held) List() ([]string, error) {
	self, err := h.Root.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := self.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, self.Close())
}

// Sync implements Disk. It opens nothing, so it does not fail while no more files may be opened.
func (h *Held) Sync() error { return h.Self.Sync() }

// Write replaces a file as a whole, durably.
func (h *Held) Write(name string, content []byte) error {
	made := name + ".new"
	file, err := h.Create(made)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(content, 0)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return errors.Join(h.Rename(made, name), h.Sync())
}

// Path implements Disk.
func (h *Held) Path(name string) string { return filepath.Join(h.path, name) }

// Close closes the folder.
func (h *Held) Close() error { return errors.Join(h.Self.Close(), h.Root.Close()) }
