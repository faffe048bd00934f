package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
)

// ClientFiles are the files that a client needs for TLS, in PEM.
type ClientFiles struct {
	// CA holds the authorities that sign the servers' certificates; "": the system's.
	CA string
	// Cert and Key are what the client shows to servers that demand a certificate. Both or
	// none.
	Cert, Key string
}

// Client follows the files of a client: they are read again for every connection, since
// connections of clients are rare. It may be used by any number of goroutines.
type Client struct {
	files ClientFiles

	mu   sync.Mutex
	good *tls.Config // by the last good files
}

// LoadClient reads the files for the first time. Its errors name the file.
func LoadClient(files ClientFiles) (*Client, error) {
	config, err := files.read()
	if err != nil {
		return nil, err
	}
	return &Client{files: files, good: config}, nil
}

// Config returns the configuration by the last good files. It must not be changed.
func (c *Client) Config() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.good
}

// Connect reads the files and calls connect once, with the configuration by them, or by the
// last good ones. The configuration must not be changed. The error is that of connect; when
// the last good files had to be used, it also names what is wrong with the current ones.
func (c *Client) Connect(connect func(*tls.Config) error) error {
	config, stale := c.reload()
	err := connect(config)
	if err != nil && stale != nil {
		err = fmt.Errorf("%w (using the previous files, because the current ones are invalid: %w)", err, stale)
	}
	return err
}

// reload returns the configuration by the files if they are good, else the last good one and
// what is wrong.
func (c *Client) reload() (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config, err := c.files.read()
	if err == nil {
		c.good = config
	}
	return c.good, err
}

func (f ClientFiles) read() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pool, err := readAuthorities(f.CA)
		if err != nil {
			return nil, fmt.Errorf("the servers' authorities: %w", err)
		}
		config.RootCAs = pool
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

// readAuthorities reads a file of one or more certificates.
func readAuthorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("no certificate in %s", file)
	}
	return pool, nil
}
