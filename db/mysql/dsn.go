package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/internal/base/follow"
)

// Secrets has parts of a connection's configuration that do not belong in a DSN.
type Secrets struct {
	// Password is for a DSN without one. PasswordFile names a file whose first line is the
	// password. Neither, or one of the two.
	Password, PasswordFile string
	// CA is a file in PEM with the authorities that sign the database's certificate. With it
	// each connection has TLS, or there is none.
	CA string
	// AnyName has a certificate by CA suffice, whatever host it names.
	AnyName bool
}

// Option changes how Open connects.
type Option func(*mysql.Config) error

// CheckDSN returns an error if a DSN is invalid by itself. The error does not show its password.
func CheckDSN(dsn string) error {
	_, err := parseDSN(dsn)
	return err
}

func parseDSN(dsn string) (*mysql.Config, error) {
	config, err := mysql.ParseDSN(dsn)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the DSN: %w", err)
	case config.DBName == "":
		return nil, errors.New("the DSN names no database")
	}
	if config.Net != "tcp" {
		return config, nil
	}
	_, port, err := net.SplitHostPort(config.Addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return nil, fmt.Errorf("the DSN: %w", err)
	}
	return config, nil
}

// Follow reads the files of the secrets for the first time, and adds them to the set: each new connection uses their
// current content. The option returns an error if the DSN has a password or a TLS setting of its own.
func (s Secrets) Follow(set *follow.Set) (Option, error) {
	password, err := s.followPassword(set)
	if err != nil {
		return nil, err
	}
	pool, err := s.followCA(set)
	if err != nil {
		return nil, err
	}
	return func(config *mysql.Config) error {
		switch {
		case password != nil && config.Passwd != "":
			return errors.New("the DSN holds a password, and another one is given beside it")
		case pool != nil && config.TLSConfig != "":
			return errors.New("the DSN says tls, and a file of authorities is given beside it")
		}
		return config.Apply(mysql.BeforeConnect(func(_ context.Context, config *mysql.Config) error {
			if password != nil {
				config.Passwd = password()
			}
			if pool != nil {
				config.TLS = s.tls(pool(), config.Addr)
			}
			return nil
		}))
	}, nil
}

// followPassword returns a function that returns the password, nil if none is given.
func (s Secrets) followPassword(set *follow.Set) (func() string, error) {
	if s.PasswordFile == "" {
		if s.Password == "" {
			return nil, nil
		}
		return func() string { return s.Password }, nil
	}
	file, err := follow.Open("--database-password-file", follow.One(parsePassword), s.PasswordFile)
	if err != nil {
		return nil, err
	}
	set.Add(file)
	return file.Current, nil
}

func parsePassword(text []byte) (string, error) {
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", errors.New("its first line, the password of the database, is empty")
	}
	return line, nil
}

// followCA returns a function that returns the authorities, nil if none are given.
func (s Secrets) followCA(set *follow.Set) (func() *x509.CertPool, error) {
	if s.CA == "" {
		return nil, nil
	}
	file, err := follow.Open("--database-ca", follow.One(certs.ParseAuthorities), s.CA)
	if err != nil {
		return nil, err
	}
	set.Add(file)
	return file.Current, nil
}

func (s Secrets) tls(pool *x509.CertPool, address string) *tls.Config {
	host, _, _ := net.SplitHostPort(address)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: host}
	if s.AnyName {
		config.InsecureSkipVerify = true // VerifyConnection checks all but the name
		config.VerifyConnection = func(state tls.ConnectionState) error { return signedBy(pool, state.PeerCertificates) }
	}
	return config
}

// signedBy verifies a chain of certificates, leaf first, and not its names.
func signedBy(pool *x509.CertPool, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("the database has no certificate")
	}
	options := x509.VerifyOptions{Roots: pool, Intermediates: x509.NewCertPool()}
	for _, cert := range chain[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(options)
	return err
}
