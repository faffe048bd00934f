package grpcserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files are those that a server needs for mutual TLS, in PEM.
type Files struct {
	Cert, Key string
	// ClientCA holds the authorities that sign the clients' certificates.
	ClientCA string
}

// Certificates are read again when their files change. Files that cannot be read, or do
// not belong together (yet), leave the last good ones in use.
type Certificates struct {
	files Files
	log   *slog.Logger

	mu     sync.Mutex
	looked time.Time
	stamp  string // what the good files looked like
	good   material
}

type material struct {
	cert tls.Certificate
	cas  *x509.CertPool
}

// certificateRefresh is how often the files are looked at, at most.
const certificateRefresh = time.Second

// LoadCertificates reads the files for the first time.
func LoadCertificates(files Files, log *slog.Logger) (*Certificates, error) {
	stamp := files.stamp() // first: a change while they are read must be noticed later
	good, err := files.read()
	if err != nil {
		return nil, err
	}
	return &Certificates{files: files, log: log, looked: time.Now(), stamp: stamp, good: good}, nil
}

func (f Files) read() (material, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return material{}, fmt.Errorf("the server's certificate: %w", err)
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return material{}, fmt.Errorf("the clients' authorities: %w", err)
	}
	cas := x509.NewCertPool()
	if !cas.AppendCertsFromPEM(pem) {
		return material{}, errors.New("the clients' authorities: no certificate in " + f.ClientCA)
	}
	return material{cert, cas}, nil
}

// stamp changes when one of the files does.
func (f Files) stamp() (stamp string) {
	for _, file := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(file); err == nil {
			stamp += fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size(), " ")
		}
	}
	return stamp
}

// current returns the certificates to use for a connection that begins now.
func (c *Certificates) current() material {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < certificateRefresh {
		return c.good
	}
	c.looked = time.Now()
	stamp := c.files.stamp()
	if stamp == c.stamp {
		return c.good
	}
	changed, err := c.files.read()
	if err != nil {
		c.log.Error("the changed certificates are not good; the last ones stay in use", "error", err)
		return c.good
	}
	c.log.Info("the certificates were read again")
	c.stamp, c.good = stamp, changed
	return c.good
}

// Config returns a TLS configuration (TLS 1.2 and up) whose connections use the
// certificates that are good at their time.
func (c *Certificates) Config(auth tls.ClientAuthType) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := c.current()
			return &tls.Config{
				MinVersion:   tls.VersionTLS12,
				NextProtos:   []string{"h2", "http/1.1"},
				Certificates: []tls.Certificate{now.cert},
				ClientCAs:    now.cas,
				ClientAuth:   auth,
			}, nil
		},
	}
}
