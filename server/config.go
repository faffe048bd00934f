package server

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Where a server listens by default: on this machine alone.
const (
	DefaultGRPCAddress = "127.0.0.1:8891"
	DefaultHTTPAddress = "127.0.0.1:8892"
)

// Config is the configuration of a server. Each field has the name of the flag of `locket server` that
// sets it, by which Validate names it too. DefaultConfig has the defaults.
type Config struct {
	// GRPCAddress and HTTPAddress (--grpc-address, --http-address) are the HOST:PORT to listen on.
	// Without TLS the host must be a loopback address, unless Insecure is set.
	GRPCAddress, HTTPAddress string
	// Database (--database) is sqlite:FILE or mysql:USER:PASSWORD@tcp(HOST:PORT)/NAME. It may hold
	// a password, and is never logged whole.
	Database string
	// DatabaseWait (--database-wait) is how long Serve waits for a database that is not up; 0 or
	// less: it tries once.
	DatabaseWait time.Duration
	// DatabaseTimeout (--database-timeout) bounds each transaction; more than 0.
	DatabaseTimeout time.Duration
	// TLSCert, TLSKey and TLSClientCA (--tls-cert, --tls-key, --tls-client-ca) are files in PEM: the
	// server's certificate, its key, and the authorities of the clients' certificates. All three
	// are given, or none, which is plain text. They are read again when they change.
	TLSCert, TLSKey, TLSClientCA string
	// Insecure (--insecure) allows plain text on addresses other than loopback.
	Insecure bool
	// HistoryRetention (--history-retention) is for how long finished claims are kept; more than 0.
	HistoryRetention time.Duration
	// HistoryLimit (--history-limit) is how many finished claims are kept at most; at least 1.
	HistoryLimit int
	// ShutdownTimeout (--shutdown-timeout) is how long requests under way may take after the
	// server got the signal to stop; more than 0.
	ShutdownTimeout time.Duration
	// LogLevel (--log-level) is debug, info, warn or error.
	LogLevel string
	// LogFormat (--log-format) is text, json, or auto: text on a terminal.
	LogFormat string
}

// DefaultConfig returns the configuration of a server without any settings.
func DefaultConfig() Config {
	return Config{
		GRPCAddress: DefaultGRPCAddress, HTTPAddress: DefaultHTTPAddress,
		Database: "sqlite:locket.db", DatabaseWait: time.Minute, DatabaseTimeout: 10 * time.Second,
		HistoryRetention: 24 * time.Hour, HistoryLimit: 1_000_000,
		ShutdownTimeout: 10 * time.Second,
		LogLevel:        "info", LogFormat: "auto",
	}
}

// Validate returns everything that is wrong with a configuration by itself, each with the name of
// its flag. Errors of files and of the network are found by Serve.
func (c Config) Validate() error {
	tlsFiles := 0
	for _, file := range []string{c.TLSCert, c.TLSKey, c.TLSClientCA} {
		if file != "" {
			tlsFiles++
		}
	}
	var wrong []error
	if tlsFiles != 0 && tlsFiles != 3 {
		wrong = append(wrong, errors.New("--tls-cert, --tls-key and --tls-client-ca go together: give all three, or none"))
	}
	for _, bounded := range []struct {
		flag  string
		value time.Duration
	}{
		{"database-timeout", c.DatabaseTimeout}, {"shutdown-timeout", c.ShutdownTimeout}, {"history-retention", c.HistoryRetention},
	} {
		if bounded.value <= 0 {
			wrong = append(wrong, fmt.Errorf("--%s: must be more than 0", bounded.flag))
		}
	}
	if c.HistoryLimit < 1 {
		wrong = append(wrong, errors.New("--history-limit: must be at least 1"))
	}
	if tlsFiles == 0 && !c.Insecure {
		wrong = append(wrong, onLoopback("grpc-address", c.GRPCAddress), onLoopback("http-address", c.HTTPAddress))
	}
	return errors.Join(wrong...)
}

func onLoopback(flag, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	if IsLoopback(host) {
		return nil
	}
	return fmt.Errorf("--%s %s: without TLS the server listens on loopback only; give it certificates, or --insecure", flag, address)
}

// IsLoopback reports whether a host, by its name or its number, is this machine alone. Nothing is
// looked up.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
