package certs_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/base/certs"
)

func clientFiles(t *testing.T, ca *fixtures.CA) certs.ClientFiles {
	t.Helper()
	cert, key := ca.Issue(t, "client")
	return certs.ClientFiles{CA: ca.File, Cert: cert, Key: key}
}

// replaceClient replaces the files of a client.
func replaceClient(t *testing.T, files, by certs.ClientFiles) {
	t.Helper()
	for to, from := range map[string]string{files.CA: by.CA, files.Cert: by.Cert, files.Key: by.Key} {
		content, err := os.ReadFile(from)
		must(t, errors.Join(err, os.WriteFile(to, content, 0o600)))
	}
}

// greetServer makes a handshake with a server that has a certificate by ca, and requires one by ca.
func greetServer(t *testing.T, client *certs.Client, ca *fixtures.CA) (shown []byte, err error) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(ca.Issue(t, "server"))
	must(t, err)
	near, far := net.Pipe()
	served := make(chan error, 1)
	go func() {
		server := tls.Server(far, &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		})
		err := server.Handshake()
		if err == nil {
			shown = server.ConnectionState().PeerCertificates[0].Raw
		}
		_ = far.Close()
		served <- err
	}()
	calls := 0
	err = client.Connect(t.Context(), func(config *tls.Config) error {
		calls++
		config = config.Clone()
		config.ServerName = "localhost"
		conn := tls.Client(near, config)
		err := conn.Handshake()
		_, _ = conn.Read(make([]byte, 1)) // reads the server's bytes
		_ = near.Close()
		return err
	})
	if calls != 1 {
		t.Errorf("called %d times", calls)
	}
	return shown, errors.Join(err, <-served)
}

// TestClientFollowsFiles: each connection uses the current files. Invalid files leave the last valid ones in use, and
// the error of a connection with those mentions that.
func TestClientFollowsFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a read of the files has a second
		before, after := fixtures.NewCA(t), fixtures.NewCA(t)
		folder := t.TempDir()
		files := certs.ClientFiles{CA: filepath.Join(folder, "ca"), Cert: filepath.Join(folder, "crt"), Key: filepath.Join(folder, "key")}
		replaceClient(t, files, clientFiles(t, before))
		client, err := certs.LoadClient(files)
		must(t, err)
		works := func(ca *fixtures.CA, when string) {
			t.Helper()
			if shown, err := greetServer(t, client, ca); err != nil || !bytes.Equal(shown, client.Config().Certificates[0].Certificate[0]) {
				t.Errorf("%s: %v", when, err)
			}
		}
		works(before, "at first")

		replaceClient(t, files, clientFiles(t, after))
		works(after, "replaced")
		if _, err := greetServer(t, client, before); err == nil || strings.Contains(err.Error(), "previous files") {
			t.Errorf("a server by the old authority, and the files are good: %v", err)
		}

		_, otherKey := after.Issue(t, "other")
		replaceClient(t, files, certs.ClientFiles{CA: files.CA, Cert: files.Cert, Key: otherKey})
		works(after, "half a pair")
		if _, err := greetServer(t, client, before); err == nil || !strings.Contains(err.Error(), files.Key) {
			t.Errorf("the error is to name the bad file: %v", err)
		}

		replaceClient(t, files, clientFiles(t, before))
		works(before, "put right")
	})
}

// TestNoClient: LoadClient refuses invalid files, and names the file.
func TestNoClient(t *testing.T) {
	ca := fixtures.NewCA(t)
	good := clientFiles(t, ca)
	_, otherKey := ca.Issue(t, "other")
	for name, c := range map[string]struct {
		files certs.ClientFiles
		says  string
	}{
		"no authority":        {certs.ClientFiles{CA: "none.ca", Cert: good.Cert, Key: good.Key}, "none.ca"},
		"a key for authority": {certs.ClientFiles{CA: good.Key}, good.Key},
		"no certificate":      {certs.ClientFiles{CA: ca.File, Cert: "none.crt", Key: good.Key}, "none.crt"},
		"another's key":       {certs.ClientFiles{CA: ca.File, Cert: good.Cert, Key: otherKey}, otherKey},
		"a cert without key":  {certs.ClientFiles{CA: ca.File, Cert: good.Cert}, good.Cert},
		"a key without cert":  {certs.ClientFiles{CA: ca.File, Key: good.Key}, good.Key},
	} {
		if _, err := certs.LoadClient(c.files); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the error is to name %s: %v", name, c.says, err)
		}
	}
	for name, files := range map[string]certs.ClientFiles{"all": good, "only authorities": {CA: ca.File}, "the system's": {}} {
		client, err := certs.LoadClient(files)
		if err != nil || client.Config().MinVersion != tls.VersionTLS12 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
