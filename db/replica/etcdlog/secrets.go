package etcdlog

import (
	"crypto/tls"
	"errors"
	"strings"

	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/internal/base/follow"
)

// secrets returns the current content of the files.
type secrets struct {
	tls      func() *tls.Config // nil without TLS
	user     string
	password func() string
}

func (o Options) secrets() (*secrets, error) {
	s := &secrets{user: o.User}
	if o.PasswordFile != "" {
		file, err := follow.Open("--etcd-password-file", follow.One(parsePassword), o.PasswordFile)
		if err != nil {
			return nil, err
		}
		o.Files.Add(file)
		s.password = file.Current
	}
	if o.Local != nil || !strings.HasPrefix(o.Endpoints[0], "https:") {
		return s, nil
	}
	file, err := follow.Open("--etcd-ca, --etcd-cert, --etcd-key", certs.ClientFiles{CA: o.CA, Cert: o.Cert, Key: o.Key}.Parse, o.CA, o.Cert, o.Key)
	if err != nil {
		return nil, err
	}
	o.Files.Add(file)
	s.tls = file.Current
	return s, nil
}

func parsePassword(text []byte) (string, error) {
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", errors.New("its first line, the password, is empty")
	}
	return line, nil
}
