package follow_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/locket-service/locket/internal/base/follow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// words is a value whose parts are its words.
type words []string

func (w words) Parts() []string { return w }

func (w words) Warnings(before words) []string {
	if len(w) < len(before) {
		return []string{"shorter"}
	}
	return nil
}

func parse(content []byte) (words, error) {
	if bytes.Contains(content, []byte("wrong")) {
		return nil, errors.New("is wrong")
	}
	return strings.Fields(string(content)), nil
}

// set is a Set with one file, which it looks at on demand.
type set struct {
	t    *testing.T
	path string
	file *follow.File[words]
	*follow.Set

	mu      sync.Mutex
	changes []*follow.Change
}

func newSet(t *testing.T, content string) *set {
	t.Helper()
	s := &set{t: t, path: filepath.Join(t.TempDir(), "file"), Set: follow.NewSet(slog.New(slog.DiscardHandler))}
	s.write(content)
	var err error
	s.file, err = follow.Open("--flag", follow.One(parse), s.path)
	must(t, err)
	s.Add(s.file)
	s.OnChange(func(c *follow.Change) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changes = append(s.changes, c)
	})
	return s
}

func (s *set) write(content string) {
	s.t.Helper()
	must(s.t, os.WriteFile(s.path, []byte(content), 0o600))
}

// look looks n times, a second apart. It is for bubbles.
func (s *set) look(n int) {
	for range n {
		s.Look(s.t.Context())
		time.Sleep(follow.Interval)
	}
}

func (s *set) is(want string) {
	s.t.Helper()
	if got := strings.Join(s.file.Current(), " "); got != want {
		s.t.Errorf("in use is %q, want %q", got, want)
	}
}

func (s *set) last() *follow.Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes[len(s.changes)-1]
}

// Content counts when two looks have found the same: one that is being written does not.
func TestHalfWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, "one")
		for _, half := range []string{"", "t", "tw", "two", "two thr"} {
			s.write(half)
			s.look(1)
			s.is("one")
		}
		s.write("two three")
		s.look(1)
		s.is("one")
		s.look(1)
		s.is("two three")
		if c := s.last(); !slices.Equal(c.Added, []string{"two", "three"}) || !slices.Equal(c.Removed, []string{"one"}) || len(c.Warnings) > 0 || c.Err != nil {
			t.Errorf("%+v", c)
		}
		s.write("two")
		s.look(2)
		if c := s.last(); !slices.Equal(c.Warnings, []string{"shorter"}) || !strings.HasPrefix(c.Digest, "sha256:3fc4ccfe745870e2c0d99f71f30ff065") {
			t.Errorf("%+v", c)
		}
		if n := len(s.changes); n != 3 { // with the first content
			t.Errorf("%d changes", n)
		}
	})
}

// Invalid, missing or suddenly empty content leaves the last valid content in use, and is reported once.
func TestInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, "one")
		for name, spoil := range map[string]func(){
			"invalid": func() { s.write("wrong") },
			"gone":    func() { must(t, os.Remove(s.path)) },
			"empty":   func() { s.write("\n") },
			"too large": func() {
				s.write("x")
				must(t, os.Truncate(s.path, follow.MaxSize+1))
			},
		} {
			before := len(s.changes)
			spoil()
			s.look(5)
			s.is("one")
			if c := s.last(); c.Err == nil || !strings.Contains(c.Err.Error(), s.path) || !strings.HasPrefix(c.Err.Error(), "--flag: ") || len(s.changes) != before+1 {
				t.Errorf("%s: %v after %d changes", name, c.Err, len(s.changes)-before)
			}
			if err := s.file.Err(); err == nil || !slices.Equal(s.Problems(), []string{"--flag: the file is invalid, and is not used"}) {
				t.Errorf("%s: %v, %v", name, err, s.Problems())
			}
			s.write("one")
			s.look(2)
			if c := s.last(); c.Err != nil || s.file.Err() != nil || len(s.Problems()) > 0 || len(s.changes) != before+2 {
				t.Errorf("%s, put right: %+v, %v", name, c, s.file.Err())
			}
		}
	})
}

// A file of the same size and time as the one before is read, whether it was replaced or written.
func TestSameSizeAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, "one")
		info, err := os.Stat(s.path)
		must(t, err)
		for _, content := range []string{"two", "six"} {
			s.write(content)
			must(t, os.Chtimes(s.path, info.ModTime(), info.ModTime()))
			s.look(2)
			s.is(content)
		}
		beside := s.path + ".new"
		must(t, os.WriteFile(beside, []byte("ten"), 0o600))
		must(t, os.Chtimes(beside, info.ModTime(), info.ModTime()))
		must(t, os.Rename(beside, s.path))
		s.look(2)
		s.is("ten")
	})
}

// hang replaces a file by a FIFO: opening it blocks.
func hang(t *testing.T, path string) {
	t.Helper()
	must(t, syscall.Mkfifo(path+".fifo", 0o600))
	must(t, os.Rename(path+".fifo", path))
	t.Cleanup(func() { unhang(t, path) })
}

// unhang releases the waiting readers.
func unhang(t *testing.T, path string) {
	t.Helper()
	if pipe, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		_, err = pipe.WriteString("through the pipe")
		must(t, errors.Join(err, pipe.Close()))
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) { // real time: between two looks
		if time.Now().After(end) {
			t.Fatal("it does not come: " + what)
		}
	}
}

// A file that hangs is reported, delays nobody, and recovers: when it no longer hangs, or when another one takes its
// place.
func TestHangs(t *testing.T) {
	for name, isBack := range map[string]bool{"a mount that is back": true, "another mount in its place": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t, "one")
			hang(t, s.path)
			eventually(t, "a change", func() bool { s.Look(t.Context()); return s.last().Err != nil })
			if err := s.last().Err; !strings.Contains(err.Error(), s.path) || s.file.Err() == nil {
				t.Errorf("%v, %v", err, s.file.Err())
			}
			s.is("one")
			must(t, os.Rename(s.path, s.path+".hanging"))
			s.write("two")
			if isBack {
				unhang(t, s.path+".hanging")
			}
			eventually(t, "the new content", func() bool {
				s.Look(t.Context())
				return s.file.Err() == nil && strings.Join(s.file.Current(), " ") == "two"
			})
			unhang(t, s.path+".hanging") // an abandoned read changes nothing
			eventually(t, "the same content", func() bool { s.Look(t.Context()); return s.file.Err() == nil })
			s.is("two")
		})
	}
}

// The first read is bounded; its error names the file.
func TestOpenHangs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	hang(t, path)
	if _, err := follow.Open("--flag", follow.One(parse), path); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

// Fresh has the current content at once.
func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		file := follow.New("the file", follow.One(parse), path)
		if _, err := file.Fresh(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
			t.Error(err)
		}
		for content, valid := range map[string]bool{"one": true, "wrong": false, "two": true} {
			must(t, os.WriteFile(path, []byte(content), 0o600))
			got, err := file.Fresh(t.Context())
			if (err == nil) != valid || valid && strings.Join(got, " ") != content {
				t.Errorf("%q: %q, %v", content, got, err)
			}
		}
	})
}

// A file that hangs delays one call of Fresh.
func TestFreshHangs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte("one"), 0o600))
	file := follow.New("the file", follow.One(parse), path)
	eventually(t, "the content", func() bool { _, err := file.Fresh(t.Context()); return err == nil })
	hang(t, path)
	for range 1000 { // each would take a second
		if got, err := file.Fresh(t.Context()); err == nil || strings.Join(got, " ") != "one" {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

// A file that others may read or write is not taken, at the start and later.
func TestPrivate(t *testing.T) {
	for mode, good := range map[os.FileMode]bool{0o600: true, 0o640: true, 0o660: true, 0o604: false, 0o602: false, 0o644: false} {
		path := filepath.Join(t.TempDir(), "file")
		must(t, os.WriteFile(path, []byte("one"), 0o600))
		must(t, os.Chmod(path, mode))
		if _, err := follow.OpenPrivate("--flag", follow.One(parse), path); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "chmod o-rwx "+path) {
			t.Errorf("%o: %v", mode, err)
		}
	}
}

// A byte order mark, which some editors write, is no part of the content.
func TestByteOrderMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte("\ufeffone two"), 0o600))
	f, err := follow.Open("--flag", follow.One(parse), path)
	must(t, err)
	if got := f.Current(); !slices.Equal(got, words{"one", "two"}) {
		t.Errorf("the content is %q", got)
	}
}
