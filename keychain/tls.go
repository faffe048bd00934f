package keychain

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/locket-service/locket/internal/base/certs"
)

// Files are a client's files for TLS, in PEM.
type Files struct {
	// CA holds the authorities that sign the servers' certificates; "": the system's.
	CA string
	// Cert and Key are for servers that demand a client certificate. Both or none.
	Cert, Key string
}

// fileDialer makes each TLS connection with the current files.
type fileDialer struct{ client *certs.Client }

func newFileDialer(files Files) (*fileDialer, error) {
	client, err := certs.LoadClient(certs.ClientFiles(files))
	return &fileDialer{client}, err
}

func (d *fileDialer) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = d.client.Connect(ctx, func(config *tls.Config) error {
		conn, err = (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
