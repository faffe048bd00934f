package certs

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/locket-service/locket/internal/follow"
)

// ClientFiles are the files that a client needs for TLS, in PEM.
type ClientFiles struct {
	// CA holds the authorities that sign the servers' certificates; "": the system's.
	CA string
	// Cert and Key are what the client shows to servers that demand a certificate. Both or
	// none.
	Cert, Key string
}

// Client follows the files of a client: it looks at them for every connection, since
// connections of clients are rare. It may be used by any number of goroutines.
type Client struct{ file *follow.File[*tls.Config] }

// LoadClient reads the files for the first time. Its errors name the file.
func LoadClient(files ClientFiles) (*Client, error) {
	if (files.Cert == "") != (files.Key == "") {
		return nil, fmt.Errorf("the client's certificate %q and key %q: one without the other", files.Cert, files.Key)
	}
	file, err := follow.Open("the client's TLS", files.parse, files.CA, files.Cert, files.Key)
	return &Client{file}, err
}

// Config returns the configuration by the last good files. It must not be changed.
func (c *Client) Config() *tls.Config { return c.file.Current() }

// Connect looks at the files and calls connect once, with the configuration by them, or by the
// last good ones. The configuration must not be changed. The error is that of connect; when
// the last good files had to be used, it also names what is wrong with the current ones. A file
// that hangs delays one connection, by a second.
func (c *Client) Connect(ctx context.Context, connect func(*tls.Config) error) error {
	config, stale := c.file.Fresh(ctx)
	err := connect(config)
	if err != nil && stale != nil {
		err = fmt.Errorf("%w (using the previous files, because the current ones are invalid: %w)", err, stale)
	}
	return err
}

func (f ClientFiles) parse(contents [][]byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
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
