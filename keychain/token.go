package keychain

import (
	"bytes"
	"fmt"
	"os"
	"sync"
)

// token is a bearer token, which may be in a file.
type token struct {
	file string // "" for one that never changes

	mu   sync.Mutex
	text string
}

// load reads the token's file. Without one it has nothing to do.
func (t *token) load() error {
	if t.file == "" {
		return nil
	}
	text, err := readToken(t.file)
	if err != nil {
		return fmt.Errorf("the bearer token: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = text
	return nil
}

// current returns the token as it is now: the file is read for every request, so a token that
// was replaced is used at once, also after a 401. While the file cannot be read, or has no
// token, the last good one stays in use.
func (t *token) current() string {
	_ = t.load()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}

// maxToken bounds a token; servers bound all headers together.
const maxToken = 32 << 10

func readToken(file string) (string, error) {
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
