package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/locket-service/locket/internal/base/follow"
)

// ClientFiles are the PEM files of a client's TLS.
type ClientFiles struct {
	// CA has the authorities of the servers' certificates; "" for the system's.
	CA string
	// Cert and Key are the client's certificate and its key, for servers that require one. Both or none must be set.
	Cert, Key string
}

// Client follows the files of a client. It checks them for every connection, because connections of clients are rare.
// It is safe for concurrent use.
type Client struct{ file *follow.File[*tls.Config] }

// LoadClient reads the files for the first time. Its errors name the file.
func LoadClient(files ClientFiles) (*Client, error) {
	if (files.Cert == "") != (files.Key == "") {
		return nil, fmt.Errorf("the client's certificate %q and key %q: one without the other", files.Cert, files.Key)
	}
	file, err := follow.Open("the client's TLS", files.Parse, files.CA, files.Cert, files.Key)
	return &Client{file}, err
}

// Config returns the configuration of the last valid files. It must not be changed.
func (c *Client) Config() *tls.Config { return c.file.Current() }

// Connect checks the files and calls connect once, with the configuration of the current files, or of the last valid
// ones. The configuration must not be changed. It returns the error of connect; if the current files are invalid, the
// error also says why. A file that hangs delays one connection, by a second.
func (c *Client) Connect(ctx context.Context, connect func(*tls.Config) error) error {
	config, stale := c.file.Fresh(ctx)
	err := connect(config)
	if err != nil && stale != nil {
		err = fmt.Errorf("%w (using the previous files, because the current ones are invalid: %w)", err, stale)
	}
	return err
}

// Parse makes the configuration of a connection of the contents of CA, Cert and Key.
func (f ClientFiles) Parse(contents [][]byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA == "" {
		// Go reads the system's authorities when they are needed first. On a busy machine that takes seconds, which the
		// first handshake does not have. If there are none, the handshake fails with that error.
		_, _ = x509.SystemCertPool()
	} else {
		pool, err := ParseAuthorities(contents[0])
		if err != nil {
			return nil, fmt.Errorf("the servers' authorities: %w", err)
		}
		config.RootCAs = pool
	}
	if f.Cert != "" {
		pair, err := tls.X509KeyPair(contents[1], contents[2])
		if err != nil {
			return nil, fmt.Errorf("the client's certificate and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
