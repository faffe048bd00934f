package follow

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Interval is the interval between calls of Look.
const Interval = time.Second

// Change is the change of a file.
type Change struct {
	// What is the name that the file was opened with, and Paths are the paths that were read.
	What  string
	Paths []string
	// Digest is "sha256:" and the hash of the content that is in use from now on.
	Digest string
	// Added and Removed are the parts of the content (see Parts) that are new or gone, at most
	// maxParts of each.
	Added, Removed []string
	// Warnings are suspicions about the change (see Successor).
	Warnings []string
	// Err is why the current content cannot be used. Then the last valid content stays in use, and only What and Paths
	// are set beside it.
	Err error
}

// Parts is implemented by values whose changes can be described as a list of new and removed parts. No
// part may be secret.
type Parts interface{ Parts() []string }

// Successor is implemented by values that can warn about their difference from the value before.
type Successor[T any] interface{ Warnings(before T) []string }

// maxParts is how many parts of a change are listed.
const maxParts = 50

// compare describes how after differs from before.
func compare[T any](c *Change, before, after T) {
	was, ok := any(before).(Parts)
	is, also := any(after).(Parts)
	if ok && also {
		c.Added, c.Removed = without(is.Parts(), was.Parts()), without(was.Parts(), is.Parts())
	}
	if successor, ok := any(after).(Successor[T]); ok {
		c.Warnings = successor.Warnings(before)
	}
}

// without returns the parts that are not among others. If a part occurs more often than among others, it is returned
// for each additional occurrence.
func without(parts, others []string) (left []string) {
	count := make(map[string]int)
	for _, part := range others {
		count[part]++
	}
	for _, part := range parts {
		if count[part]--; count[part] < 0 {
			left = append(left, part)
		}
	}
	if more := len(left) - maxParts; more > 0 {
		left = append(left[:maxParts], fmt.Sprintf("and %d more", more))
	}
	return left
}

// followed is a File in a Set.
type followed interface {
	look(report func(*Change))
	Err() error
	state() *Change
	name() string
	ending(now time.Time) string
}

// Set is the files that a server follows.
type Set struct {
	log *slog.Logger

	mu     sync.Mutex
	files  []followed
	report func(*Change)
	warned map[string]bool // the certificates whose end was logged
}

// NewSet returns an empty set. It logs changes of the files: new content in use (level info, or warn if there are
// warnings), and errors of a file (error). It also logs each certificate that ends soon (warn).
func NewSet(log *slog.Logger) *Set { return &Set{log: log, warned: make(map[string]bool)} }

// Add adds a file that was opened.
func (s *Set) Add(f followed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files = append(s.files, f)
}

// OnChange calls a function for each file, with its content that is in use, and from then on
// for each change. It is called by any goroutine.
func (s *Set) OnChange(report func(*Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report = report
	for _, f := range s.files {
		report(f.state())
	}
}

// Look begins to read each file whose last read has ended. It does not wait.
func (s *Set) Look(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		f.look(s.changed)
		if end := f.ending(time.Now()); end != "" && !s.warned[end] {
			s.warned[end] = true
			s.log.Warn("a certificate must be replaced", "setting", f.name(), "reason", end)
		}
	}
}

// Problems describes the files that cannot be used as they are now, and the certificates that end soon. Each text begins with the name of
// the setting.
func (s *Set) Problems() (problems []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.Err() != nil {
			problems = append(problems, f.name()+": the file is invalid, and is not used")
		}
		if end := f.ending(time.Now()); end != "" {
			problems = append(problems, f.name()+": "+end)
		}
	}
	return problems
}

func (s *Set) changed(c *Change) {
	s.mu.Lock()
	report := s.report
	s.mu.Unlock()
	attrs := []any{"setting", c.What, "files", c.Paths}
	switch {
	case c.Err != nil:
		s.log.Error("a file is invalid, and is not used", append(attrs, "error", c.Err)...)
	case len(c.Warnings) > 0:
		s.log.Warn("a file was read again, and its change is suspicious", append(attrs, "digest", c.Digest, "warnings", c.Warnings)...)
	default:
		s.log.Info("a file was read again", append(attrs, "digest", c.Digest)...)
	}
	if report != nil {
		report(c)
	}
}

// look reads a File of a Set. The content is used when the previous read found the same.
func (f *File[T]) look(report func(*Change)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.hanging(); err != nil {
		if f.err == nil || f.err.Error() != err.Error() {
			f.err, f.bad = err, ""
			go report(&Change{What: f.what, Paths: f.named(), Err: err})
		}
	}
	f.begin(func(found look) {
		f.mu.Lock()
		settled := found.stamp == f.last.stamp
		f.last = found
		f.mu.Unlock()
		if !settled {
			return
		}
		if change := f.judge(found); change != nil {
			report(change)
		}
	})
}

func (f *File[T]) state() *Change {
	c := &Change{What: f.what, Paths: f.named()}
	if good := f.good.Load(); good != nil {
		c.Digest = good.digest
	}
	return c
}

func (f *File[T]) name() string { return f.what }

func portableStamp(info os.FileInfo) string {
	return fmt.Sprint(info.Mode(), " ", info.Size(), " ", info.ModTime().UnixNano())
}
