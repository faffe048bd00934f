// Package bearer has the credentials that clients send with their requests (RFC 6750).
package bearer

import (
	"bytes"
	"context"
	"errors"

	"github.com/locket-service/locket/internal/follow"
)

// Source gives the credential for a request.
type Source interface {
	// Credential returns the credential to send now, or why there is none. It may ask somebody for it, until
	// the context ends. It may be called by any number of goroutines.
	Credential(ctx context.Context) (string, error)
}

// Text is a credential that never changes.
type Text string

// Credential implements Source.
func (t Text) Credential(context.Context) (string, error) { return string(t), nil }

// File is a bearer credential in a file, in a line of its own.
type File struct{ file *follow.File[string] }

// OpenFile reads a file for the first time. Its errors name the file.
func OpenFile(path string) (*File, error) {
	file, err := follow.Open("the bearer credential", follow.One(parse), path)
	return &File{file}, err
}

// Credential implements Source. It looks at the file for every request, so a credential that was replaced
// is used at once, also after a 401. While the file cannot be read, or has none, the last good one
// stays in use. A file that hangs delays one request, by a second.
func (f *File) Credential(ctx context.Context) (string, error) {
	_, _ = f.file.Fresh(ctx)
	return f.file.Current(), nil
}

// maxCredential bounds a credential; servers bound all headers together.
const maxCredential = 32 << 10

func parse(content []byte) (string, error) {
	text := bytes.TrimSpace(content)
	isOther := func(c rune) bool { return c <= ' ' || c > '~' }
	if len(text) == 0 || len(text) > maxCredential || bytes.ContainsFunc(text, isOther) {
		return "", errors.New("must have one, in a line of its own")
	}
	return string(text), nil
}
