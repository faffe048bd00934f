package lock

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/locket-service/locket/certs"
)

// Files are those that a client needs for TLS, in PEM.
type Files = certs.ClientFiles

// WithTLSFiles has the connections use TLS (1.2 and up). A server's certificate must be for
// the host of its address. The files are read by Dial, and again by every handshake; while
// they cannot be read, or do not belong together (yet), the last good ones stay in use.
func WithTLSFiles(files Files) DialOption { return func(d *dialing) { d.files = &files } }

// WithTLS is WithTLSFiles.
//
// Deprecated: use WithTLSFiles, which package keychain calls the same.
func WithTLS(files Files) DialOption { return WithTLSFiles(files) }

// fileCredentials make each TLS connection by the files as they are then.
type fileCredentials struct {
	credentials.TransportCredentials // those of the files as they were at first
	client                           *certs.Client
}

func newFileCredentials(files Files) (credentials.TransportCredentials, error) {
	client, err := certs.LoadClient(files)
	if err != nil {
		return nil, err
	}
	return &fileCredentials{credentials.NewTLS(client.Config()), client}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (secured net.Conn, info credentials.AuthInfo, err error) {
	err = c.client.Connect(func(config *tls.Config) error {
		secured, info, err = credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
		return err
	})
	return secured, info, err
}

// Clone implements credentials.TransportCredentials.
func (c *fileCredentials) Clone() credentials.TransportCredentials { return c }
