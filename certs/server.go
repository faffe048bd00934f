package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// ServerFiles are the files that a server needs for TLS, in PEM.
type ServerFiles struct {
	Cert, Key string
	// ClientCA holds the authorities that sign the clients' certificates, "" for none.
	ClientCA string
}

// Server follows the files of a server: they are read again when they have changed, which is
// checked for each connection, once a second at most. It may be used by any number of
// goroutines.
type Server struct {
	files ServerFiles
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

// refreshInterval is how often the files are checked, at most.
const refreshInterval = time.Second

// LoadServer reads the files for the first time. Its errors name the file. It logs when
// files were read again (level info), and what is wrong with changed ones (error).
func LoadServer(files ServerFiles, log *slog.Logger) (*Server, error) {
	stamp := files.stamp() // first: a change while they are read must be noticed later
	good, err := files.read()
	if err != nil {
		return nil, err
	}
	return &Server{files: files, log: log, looked: time.Now(), stamp: stamp, good: good}, nil
}

func (f ServerFiles) read() (material, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return material{}, fmt.Errorf("the server's certificate %q and key %q: %w", f.Cert, f.Key, err)
	}
	if f.ClientCA == "" {
		return material{cert: cert}, nil
	}
	cas, err := readAuthorities(f.ClientCA)
	if err != nil {
		return material{}, fmt.Errorf("the clients' authorities: %w", err)
	}
	return material{cert, cas}, nil
}

// stamp changes when one of the files does.
func (f ServerFiles) stamp() (stamp string) {
	for _, file := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(file); err == nil {
			stamp += fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size(), " ")
		}
	}
	return stamp
}

// current returns the certificates to use for a connection that begins now.
func (s *Server) current() material {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) < refreshInterval {
		return s.good
	}
	s.looked = time.Now()
	stamp := s.files.stamp()
	if stamp == s.stamp {
		return s.good
	}
	changed, err := s.files.read()
	if err != nil {
		s.log.Error("the changed certificates are invalid; the last valid ones stay in use", "error", err)
		return s.good
	}
	s.log.Info("the certificates were read again")
	s.stamp, s.good = stamp, changed
	return s.good
}

// Config returns a TLS configuration (TLS 1.2 and up) whose connections use the
// certificates that are good at their time.
func (s *Server) Config(auth tls.ClientAuthType) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := s.current()
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
