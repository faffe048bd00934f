package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/follow"
)

// Secrets is what a connection needs and a DSN should not hold, or cannot.
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

// tlsName is the name by which a DSN refers to the TLS of WithSecrets.
const tlsName = "locket"

// CheckDSN returns what is wrong with a DSN by itself, nil if nothing is. The error does not show its
// password.
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

// WithSecrets returns a DSN for Open in this process. The secrets must agree with the DSN: a
// password or a TLS setting in both is an error. The files are read once.
func WithSecrets(dsn string, s Secrets) (string, error) {
	if s == (Secrets{}) || s == (Secrets{AnyName: true}) {
		return dsn, nil
	}
	config, err := parseDSN(dsn)
	if err != nil {
		return "", err
	}
	password, err := s.password()
	switch {
	case err != nil:
		return "", err
	case password != "" && config.Passwd != "":
		return "", errors.New("the DSN holds a password, and another one is given beside it")
	case password != "":
		config.Passwd = password
	}
	if s.CA != "" {
		if config.TLSConfig != "" {
			return "", errors.New("the DSN says tls, and a file of authorities is given beside it")
		}
		if err := s.registerTLS(); err != nil {
			return "", err
		}
		config.TLSConfig = tlsName
	}
	return config.FormatDSN(), nil
}

func (s Secrets) password() (string, error) {
	if s.PasswordFile == "" {
		return s.Password, nil
	}
	text, err := follow.Read("the password of the database", s.PasswordFile)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", fmt.Errorf("the password of the database: the first line of %s is empty", s.PasswordFile)
	}
	return line, nil
}

func (s Secrets) registerTLS() error {
	text, err := follow.Read("the authorities of the database's certificate", s.CA)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("the authorities of the database's certificate: no certificate in %s", s.CA)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if s.AnyName {
		config.InsecureSkipVerify = true // VerifyConnection checks all but the name
		config.VerifyConnection = func(state tls.ConnectionState) error { return signedBy(pool, state.PeerCertificates) }
	}
	return mysql.RegisterTLSConfig(tlsName, config)
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
