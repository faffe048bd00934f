package etcdnode_test

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/locket-service/locket/db/replica/etcdnode"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// TestPort: only a node with a certificate gets an answer of etcd, and connections that say nothing delay nobody.
func TestPort(t *testing.T) {
	t.Parallel()
	o := newCluster(t, "a")[0]
	start(t, o).runs(t)
	address := o.Cluster[0].Address
	for range 20 {
		conn, err := net.Dial("tcp", address)
		harness.Must(t, err)
		defer conn.Close()
	}
	if s := statusOf(t, o); s.Answering != 1 {
		t.Errorf("the node is %+v", s)
	}
	for name, config := range map[string]*tls.Config{
		"no certificate":            {InsecureSkipVerify: true},
		"a foreign one":             {InsecureSkipVerify: true, Certificates: fixtures.NewCA(t).ClientTLS(t).Certificates},
		"the name of other servers": {InsecureSkipVerify: true, ServerName: "locket.peer.v1.Peer"},
	} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		response, err := client.Get("https://" + address + "/members")
		if err == nil {
			text, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			t.Errorf("%s: %s %s", name, response.Status, text)
		}
	}
	if response, err := http.Get("http://" + address + "/members"); err == nil {
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			t.Error("there is an answer without TLS")
		}
	}
}

// TestListen: connections of TLS with a server name go to a listener, and after it was closed and replaced to the next one.
func TestListen(t *testing.T) {
	t.Parallel()
	o := newCluster(t, "a")[0]
	o.Cert, o.Key, o.CA, o.Log, o.Prefix = "", "", "", slog.New(slog.DiscardHandler), "/"
	o.Exit = func(err error) { panic(err) }
	n, err := etcdnode.Start(t.Context(), o)
	harness.Must(t, err)
	defer func() { harness.Must(t, n.Close()) }()
	ca := fixtures.NewCA(t)
	config := ca.ClientTLS(t)
	config.ServerName = "other.servers"
	server := &tls.Config{Certificates: config.Certificates, MinVersion: tls.VersionTLS13}
	config.InsecureSkipVerify = true // the certificate has another name
	for range 2 {
		listener := n.Listen(config.ServerName)
		got := make(chan error, 1)
		go func() {
			conn, err := listener.Accept()
			if err == nil {
				_, err = tls.Server(conn, server).Write([]byte("hello"))
			}
			got <- err
		}()
		conn, err := tls.Dial("tcp", n.Address(), config)
		harness.Must(t, err)
		text := make([]byte, 5)
		_, err = io.ReadFull(conn, text)
		harness.Must(t, err)
		harness.Must(t, <-got)
		if string(text) != "hello" {
			t.Errorf("the listener says %q", text)
		}
		harness.Must(t, conn.Close())
		harness.Must(t, listener.Close())
	}
}
