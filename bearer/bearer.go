// Package bearer has sources of bearer credentials (RFC 6750) for clients: a text, a file, or, in package
// clientcredentials, an OIDC provider. Pass a source to conn.WithCredentialSource for gRPC, or to
// keychain.WithCredentialSource for HTTP.
package bearer

import (
	"bytes"
	"context"
	"errors"

	"github.com/locket-service/locket/internal/base/follow"
)

// Source provides a credential for each request.
type Source interface {
	// Credential returns the credential to send now. It may use the network until ctx ends, and must be safe for
	// concurrent use.
	Credential(ctx context.Context) (string, error)
}

// Text is a Source of a credential that never changes.
type Text string

func (t Text) Credential(context.Context) (string, error) { return string(t), nil }

// File is a Source that reads a credential from a file, on a line of its own.
type File struct{ file *follow.File[string] }

// OpenFile reads the file once, and returns an error that names the file if that fails.
func OpenFile(path string) (*File, error) {
	file, err := follow.Open("the bearer credential", follow.One(parse), path)
	return &File{file}, err
}

// Credential implements Source. It checks the file for every request, so a replaced credential is used at once, even
// after a 401. While the file cannot be read or contains none, the last valid one stays in use. A file that hangs
// delays one request, by a second.
func (f *File) Credential(ctx context.Context) (string, error) {
	_, _ = f.file.Fresh(ctx)
	return f.file.Current(), nil
}

// maxCredential limits the length of a credential, because servers limit all headers together.
const maxCredential = 32 << 10

func parse(content []byte) (string, error) {
	text := bytes.TrimSpace(content)
	isOther := func(c rune) bool { return c <= ' ' || c > '~' }
	if len(text) == 0 || len(text) > maxCredential || bytes.ContainsFunc(text, isOther) {
		return "", errors.New("must have one, in a line of its own")
	}
	return string(text), nil
}
