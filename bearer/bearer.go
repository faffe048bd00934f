// Package bearer has the tokens that clients send with their requests (RFC 6750).
package bearer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
)

// Source gives the token for a request.
type Source interface {
	// Token returns the token to send now, or why there is none. It may ask somebody for it, until
	// the context ends. It may be called by any number of goroutines.
	Token(ctx context.Context) (string, error)
}

// Text is a token that never changes.
type Text string

// Token implements Source.
func (t Text) Token(context.Context) (string, error) { return string(t), nil }

// File is a token in a file, in a line of its own.
type File struct {
	path string

	mu   sync.Mutex
	good string
}

// OpenFile reads a file for the first time. Its errors name the file.
func OpenFile(path string) (*File, error) {
	f := &File{path: path}
	return f, f.load()
}

func (f *File) load() error {
	text, err := read(f.path)
	if err != nil {
		return fmt.Errorf("the bearer token: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.good = text
	return nil
}

// Token implements Source. The file is read for every request, so a token that was replaced is
// used at once, also after a 401. While the file cannot be read, or has no token, the last good one
// stays in use.
func (f *File) Token(context.Context) (string, error) {
	_ = f.load()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.good, nil
}

// maxToken bounds a token; servers bound all headers together.
const maxToken = 32 << 10

func read(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text := bytes.TrimSpace(content)
	isOther := func(c rune) bool { return c <= ' ' || c > '~' }
	if len(text) == 0 || len(text) > maxToken || bytes.ContainsFunc(text, isOther) {
		return "", fmt.Errorf("%s must have one, in a line of its own", file)
	}
	return string(text), nil
}
