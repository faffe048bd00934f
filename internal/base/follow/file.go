package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// openTimeout is how long the first read may take.
	openTimeout = 5 * time.Second
	// freshTimeout is how long Fresh waits for a read.
	freshTimeout = time.Second
	// hangTime is how long a read may take before it counts as hanging.
	hangTime = 2 * time.Second
	// giveUpTime is how long a read may hang before another one starts: the path may lead to another file by now,
	// and the first read may hang for ever.
	giveUpTime = 5 * time.Second
	// maxStuck is how many reads that were given up may hang; each keeps a thread.
	maxStuck = 8
)

// Parser makes a value of the contents of the files, in the order of their paths.
type Parser[T any] func(contents [][]byte) (T, error)

// One is the Parser of a single file.
func One[T any](parse func(content []byte) (T, error)) Parser[T] {
	return func(contents [][]byte) (T, error) { return parse(contents[0]) }
}

// File is the value of one file, or of several that belong together, such as a certificate and its key. It is safe for
// use by any number of goroutines.
type File[T any] struct {
	what  string
	paths []string
	parse Parser[T]
	// private is set if only owner and group may have permission to read or write the files.
	private bool

	reading atomic.Pointer[string] // the path that is read now
	good    atomic.Pointer[good[T]]

	mu      sync.Mutex
	looking chan struct{} // closed when the look under way ends; nil without one
	began   time.Time     // when it, or the first of the abandoned reads before it, began
	latest  time.Time     // when it began
	stuck   int           // how many were given up and have not ended
	last    look          // the last one that has ended
	bad     string        // the digest of the content that was found invalid last
	err     error         // of the files as they are now
}

// good is the last valid content.
type good[T any] struct {
	value  T
	digest string
}

// New returns a File that has not been read yet. what names the files in messages: a flag, or "the bearer credential".
// An empty path has empty content.
func New[T any](what string, parse Parser[T], paths ...string) *File[T] {
	return &File[T]{what: what, parse: parse, paths: paths, err: errors.New(what + ": not read yet")}
}

// Open is New and the first read. Its errors name the file; one that cannot be read within 5 s is
// an error too.
func Open[T any](what string, parse Parser[T], paths ...string) (*File[T], error) {
	return New(what, parse, paths...).open()
}

// OpenPrivate is Open for files that others than their owner and group may neither read nor write: if they
// may, the file is invalid.
func OpenPrivate[T any](what string, parse Parser[T], paths ...string) (*File[T], error) {
	f := New(what, parse, paths...)
	f.private = true
	return f.open()
}

func (f *File[T]) open() (*File[T], error) {
	if _, err := f.within(context.Background(), openTimeout); err != nil {
		return nil, err
	}
	return f, nil
}

// Current returns the value of the last valid content; the zero value if there was none. It never waits, and does not
// read the file.
func (f *File[T]) Current() T {
	if good := f.good.Load(); good != nil {
		return good.value
	}
	var none T
	return none
}

// Err returns the error of the file's current content, nil if its value is in use. It never waits.
func (f *File[T]) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.hanging(); err != nil {
		return err
	}
	return f.err
}

// Fresh reads the file, and returns the value of the last valid content and the error of the current content.
// It may return both. It waits for a second at most, and not at all if the last read hangs.
func (f *File[T]) Fresh(ctx context.Context) (T, error) { return f.within(ctx, freshTimeout) }

func (f *File[T]) within(ctx context.Context, timeout time.Duration) (T, error) {
	f.mu.Lock()
	known := f.looking != nil && time.Since(f.began) > timeout
	looked := f.begin(func(found look) { f.judge(found) })
	f.mu.Unlock()
	if !known {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		select {
		case <-looked:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	select {
	case <-looked: // the time may be over too, if this process was stopped
		return f.Current(), f.Err()
	default:
	}
	return f.Current(), f.slow()
}

// begin begins a read, unless a read is under way that does not hang. It returns a channel that is closed at the end
// of the read. then gets the result. The caller has locked f.mu.
func (f *File[T]) begin(then func(look)) <-chan struct{} {
	switch {
	case f.looking == nil:
		f.began = time.Now()
	case time.Since(f.latest) < giveUpTime || f.stuck >= maxStuck:
		return f.looking
	default:
		f.stuck++
	}
	done := make(chan struct{})
	f.looking, f.latest = done, time.Now()
	go func() {
		defer close(done)
		found := lookAt(f.paths, f.private, func(path string) { f.reading.Store(&path) })
		if f.isLatest(done) {
			then(found)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.looking == done {
			f.looking = nil
		} else {
			f.stuck--
		}
	}()
	return done
}

// isLatest reports whether a read was not replaced by a later one.
func (f *File[T]) isLatest(done chan struct{}) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looking == done
}

// hanging returns an error while a read hangs. The caller has locked f.mu.
func (f *File[T]) hanging() error {
	if f.looking == nil || time.Since(f.began) < hangTime {
		return nil
	}
	return f.slow()
}

func (f *File[T]) slow() error {
	path := strings.Join(f.paths, ", ")
	if reading := f.reading.Load(); reading != nil {
		path = *reading
	}
	return fmt.Errorf("%s: %s cannot be read: its file system does not answer", f.what, path)
}

// judge uses the result of a read as the value, if it is valid. It returns the change, nil if there is none.
func (f *File[T]) judge(found look) *Change {
	f.mu.Lock()
	f.last = found
	before := f.good.Load()
	known := before != nil && found.err == nil && found.digest == before.digest
	again := found.err == nil && found.digest == f.bad
	f.mu.Unlock()
	switch {
	case known:
		return f.set(nil, "")
	case again:
		return nil
	case found.err != nil:
		return f.set(fmt.Errorf("%s: %w", f.what, found.err), "")
	}
	value, err := f.parse(found.contents)
	if err == nil && before != nil && len(bytes.TrimSpace(slices.Concat(found.contents...))) == 0 {
		err = errors.New("is empty, and was not: it may be about to be written")
	}
	if err != nil {
		return f.set(fmt.Errorf("%s: %s: %w", f.what, strings.Join(f.named(), ", "), err), found.digest)
	}
	f.good.Store(&good[T]{value, found.digest})
	f.set(nil, "")
	change := &Change{What: f.what, Paths: f.named(), Digest: found.digest}
	if before != nil {
		compare(change, before.value, value)
	}
	return change
}

// set sets the error of the current content. It returns a change if the error is a new one.
func (f *File[T]) set(err error, bad string) *Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.err
	f.err, f.bad = err, bad
	switch {
	case err != nil && (was == nil || was.Error() != err.Error()):
		return &Change{What: f.what, Paths: f.named(), Err: err}
	case err == nil && was != nil:
		return &Change{What: f.what, Paths: f.named(), Digest: f.good.Load().digest}
	}
	return nil
}

// named returns the paths that are not empty.
func (f *File[T]) named() (paths []string) {
	for _, path := range f.paths {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}
