// Package disktest is a disk in memory that loses what was not synced, as a power cut may, and fails where a test
// wants it to.
package disktest

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/locket-service/locket/db/replica/disk"
)

// sector is the unit that a disk writes wholly or not at all.
const sector = 512

// Disk is a disk.Disk. It may be used by many at once.
type Disk struct {
	mu    sync.Mutex
	files map[string]*content
	// durable are the names at the last Sync, and steps what has happened to them since.
	durable map[string]*content
	steps   []func(map[string]*content)
	failing func(operation string) error
}

// content is the content of one file.
type content struct {
	now, durable []byte
	writes       []write // since the last sync
}

type write struct {
	at   int64
	data []byte
}

// New returns an empty disk.
func New() *Disk { return &Disk{files: map[string]*content{}, durable: map[string]*content{}} }

// SetFault has fault called before each operation that changes something, with the operation and the file's name when
// it was opened; the operation returns its error. A write that fails may have written a part.
func (d *Disk) SetFault(fault func(operation string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing = fault
}

func (d *Disk) fault(operation, name string) error {
	d.mu.Lock()
	fault := d.failing
	d.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(operation + " " + name)
}

// step does something to the names, which is durable at the next Sync.
func (d *Disk) step(do func(map[string]*content)) {
	do(d.files)
	d.steps = append(d.steps, do)
}

// Open implements disk.Disk.
func (d *Disk) Open(name string) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.files[name]
	if c == nil {
		return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	return &file{d, name, c}, nil
}

// Create implements disk.Disk.
func (d *Disk) Create(name string) (disk.File, error) {
	if err := d.fault("create", name); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &content{}
	d.step(func(names map[string]*content) { names[name] = c })
	return &file{d, name, c}, nil
}

// Rename implements disk.Disk.
func (d *Disk) Rename(from, to string) error {
	if err := d.fault("rename", from); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step(func(names map[string]*content) {
		if c := names[from]; c != nil {
			names[to] = c
			delete(names, from)
		}
	})
	return nil
}

// Remove implements disk.Disk.
func (d *Disk) Remove(name string) error {
	if err := d.fault("remove", name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[name] == nil {
		return fmt.Errorf("remove %s: %w", name, fs.ErrNotExist)
	}
	d.step(func(names map[string]*content) { delete(names, name) })
	return nil
}

// List implements disk.Disk.
func (d *Disk) List() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.files)), nil
}

// Sync implements disk.Disk.
func (d *Disk) Sync() error {
	if err := d.fault("sync", "names"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.durable, d.steps = maps.Clone(d.files), nil
	return nil
}

// Path implements disk.Disk.
func (d *Disk) Path(name string) string { return name }

// Crash returns the state of the disk after a power cut: some steps of the names are done, and each unsynced sector has
// one of its versions since the last sync.
func (d *Disk) Crash(rnd *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := New()
	names := maps.Clone(d.durable)
	for _, do := range d.steps[:rnd.IntN(len(d.steps)+1)] {
		do(names)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		left := names[name].crash(rnd)
		after.files[name] = &content{now: left, durable: slices.Clone(left)}
	}
	after.durable = maps.Clone(after.files)
	return after
}

func (c *content) crash(rnd *rand.Rand) []byte {
	left := slices.Clone(c.durable)
	chosen := map[int64]int{} // sector: how many of the writes have reached it
	for i, w := range c.writes {
		for at := w.at; at < w.at+int64(len(w.data)); {
			end := min((at/sector+1)*sector, w.at+int64(len(w.data)))
			if _, known := chosen[at/sector]; !known {
				chosen[at/sector] = rnd.IntN(len(c.writes) + 1)
			}
			if i < chosen[at/sector] {
				left = put(left, at, w.data[at-w.at:end-w.at])
			}
			at = end
		}
	}
	return left
}

// Kill returns the disk after the end of the process, with everything.
func (d *Disk) Kill() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := New()
	for name, c := range d.files {
		after.files[name] = &content{now: slices.Clone(c.now), durable: slices.Clone(c.now)}
	}
	after.durable = maps.Clone(after.files)
	return after
}

// Content returns the content of a file, nil if there is none. Change it in place to flip bits.
func (d *Disk) Content(name string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.files[name]; c != nil {
		return c.now
	}
	return nil
}

// Cut makes a file as short as it says.
func (d *Disk) Cut(name string, length int) {
	c := d.files[name]
	c.now, c.durable = c.now[:length:length], c.durable[:min(length, len(c.durable))]
}

func put(b []byte, at int64, data []byte) []byte {
	if end := int(at) + len(data); end > len(b) {
		b = append(b, make([]byte, end-len(b))...)
	}
	copy(b[at:], data)
	return b
}

type file struct {
	d    *Disk
	name string
	*content
}

func (f *file) ReadAt(b []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if at >= int64(len(f.now)) {
		return 0, io.EOF
	}
	n := copy(b, f.now[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(b []byte, at int64) (int, error) {
	err := f.d.fault("write", f.name)
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err != nil { // whole sectors of it were written
		b = b[:max(0, (at+int64(len(b)/2))/sector*sector-at)]
	}
	f.now = put(f.now, at, b)
	f.writes = append(f.writes, write{at, slices.Clone(b)})
	return len(b), err
}

func (f *file) Sync() error {
	if err := f.d.fault("sync", f.name); err != nil {
		return err
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	for _, w := range f.writes {
		f.durable = put(f.durable, w.at, w.data)
	}
	f.writes = nil
	return nil
}

func (f *file) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(len(f.now)), nil
}

func (f *file) Close() error { return nil }
