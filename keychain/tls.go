package keychain

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"sync"
)

// Files are those that a client needs for TLS, in PEM.
type Files struct {
	// CA holds the authorities that sign the server's certificate; "": the system's.
	CA string
	// Cert and Key are what the client shows to a server that demands a certificate. Both or
	// none.
	Cert, Key string
}

// config reads the files.
func (f Files) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("the server's authorities: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the server's authorities: no certificate in %s", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, fmt.Errorf("the client's certificate %q and key %q: one without the other", f.Cert, f.Key)
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("the client's certificate %q and key %q: %w", f.Cert, f.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// fileDialer makes TLS connections, each by the files as they are then.
type fileDialer struct {
	files Files

	mu   sync.Mutex
	good *tls.Config
}

func newFileDialer(files Files) (*fileDialer, error) {
	config, err := files.config()
	return &fileDialer{files: files, good: config}, err
}

func (d *fileDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	config, stale := d.current()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
	if err != nil && stale != nil {
		err = fmt.Errorf("%w (with the files of before, as those of now are no good: %w)", err, stale)
	}
	return conn, err
}

// current returns the configuration by the files if they are good, else the last good one
// and what is wrong.
func (d *fileDialer) current() (*tls.Config, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	config, err := d.files.config()
	if err == nil {
		d.good = config
	}
	return d.good, err
}
