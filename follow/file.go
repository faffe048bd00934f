// Package follow keeps up with files that are replaced while a process runs. A file that cannot be
// read, or is invalid, leaves what the last valid one said in use.
package follow

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// interval is how often a file is looked at, at most.
const interval = time.Second

// File is what a file says. It is looked at when it is asked for, once a second at most, and read
// again when it has changed. It may be used by any number of goroutines.
type File[T any] struct {
	path, what string
	parse      func([]byte) (T, error)
	log        *slog.Logger

	mu     sync.Mutex
	looked time.Time
	stamp  string // of the file as it was read last, whether valid or not
	good   T
	err    error // of the file as it is now
}

// Open reads a file for the first time. what is what the file has, for messages: "the rules". Later
// on it logs when the file was read again (level info), and what is wrong with it (error).
func Open[T any](path, what string, parse func([]byte) (T, error), log *slog.Logger) (*File[T], error) {
	f := &File[T]{path: path, what: what, parse: parse, log: log, looked: time.Now()}
	f.stamp = f.look()
	f.good, f.err = f.read()
	if f.err != nil {
		return nil, f.err
	}
	return f, nil
}

func (f *File[T]) read() (T, error) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		var none T
		return none, fmt.Errorf("%s: %w", f.what, err)
	}
	value, err := f.parse(text)
	if err != nil {
		err = fmt.Errorf("%s %s: %w", f.what, f.path, err)
	}
	return value, err
}

// look returns what changes when the file does.
func (f *File[T]) look() string {
	info, err := os.Stat(f.path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size())
}

// Current returns what the last valid file said.
func (f *File[T]) Current() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f.good
}

// Err returns what is wrong with the file as it is now, nil if what it says is in use.
func (f *File[T]) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f.err
}

func (f *File[T]) refresh() {
	if time.Since(f.looked) < interval {
		return
	}
	f.looked = time.Now()
	stamp := f.look() // first: a change while the file is read must be noticed later
	if stamp == f.stamp {
		return
	}
	f.stamp = stamp
	changed, err := f.read()
	if f.err = err; err != nil {
		f.log.Error("a changed file is invalid; the last valid one stays in use", "file", f.path, "error", err)
		return
	}
	f.good = changed
	f.log.Info("a file was read again", "file", f.path)
}
