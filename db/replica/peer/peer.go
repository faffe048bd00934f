// Package peer connects the servers of a cluster. Each has a listener (with --node at the port of its node), and makes a key and a secret for it at its
// start. Its About names the address, the fingerprint of the certificate and the secret, and is written into the log of the
// cluster. A server trusts everybody who can read that log, and nobody else.
//
// The messages are bytes. The packages that make them encode them.
package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/locket-service/locket/db/replica"
)

// Handler does what other servers ask for. The errors that keep their types on the way are in the table of reasons.
// Others count as db.ErrOutcomeUnknown.
type Handler = replica.Handler

// Options are of Listen.
type Options struct {
	// Advertise is the address, HOST:PORT, that other servers dial. It is the listener's if it is empty.
	Advertise string
	// Listener gets the connections that begin TLS with ServerName, in place of a new listener.
	Listener net.Listener
}

// ServerName is the server name in TLS of each connection.
const ServerName = serviceName

// MaxMessageBytes is how large a message may be.
const MaxMessageBytes = 64 << 20

const (
	// handshakeTimeout is how long a new connection may take until it can be used.
	handshakeTimeout = 5 * time.Second
	// maxHeaderBytes bounds the header of a call, and maxCalls the calls on a connection.
	maxHeaderBytes = 16 << 10
	maxCalls       = 1024
	// silence is after how long the other end of a silent connection is asked for a sign of life, and for how long it may take.
	silence = 5 * time.Second
	// stopTimeout is how long calls may take that are on their way when the listener closes.
	stopTimeout = time.Second
)

// Peer is the listener of a server, and its connections to other servers.
type Peer struct {
	listener net.Listener
	server   *grpc.Server
	about    about
	served   chan struct{} // closed when the listener is
	links    links
	closing  sync.Once
}

// Listen opens the listener of a server. Serve makes it answer.
func Listen(address string, o Options) (*Peer, error) {
	host, port, err := advertised(address, o.Advertise)
	if err != nil {
		return nil, err
	}
	certificate, fingerprint, err := newCertificate()
	if err != nil {
		return nil, err
	}
	listener := o.Listener
	if listener == nil {
		if listener, err = net.Listen("tcp", address); err != nil {
			return nil, err
		}
	}
	if port == "" {
		_, port, _ = net.SplitHostPort(listener.Addr().String()) // it has both
	}
	p := &Peer{listener: listener, links: newLinks()}
	p.about = about{version, net.JoinHostPort(host, port), fingerprint, newSecret()}
	p.server = newServer(certificate, p.about.Secret)
	return p, nil
}

func newServer(certificate tls.Certificate, secret []byte) *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true,
		})),
		grpc.InTapHandle(knows(secret)),
		grpc.ForceServerCodecV2(raw{}),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		grpc.MaxRecvMsgSize(MaxMessageBytes), grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes), grpc.MaxConcurrentStreams(maxCalls),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: silence, Timeout: silence}),
		grpc.WaitForHandlers(true),
	)
}

// advertised returns the address that others dial, which has no port where the listener finds one.
func advertised(address, advertise string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	switch {
	case advertise != "":
		host, port, err = net.SplitHostPort(advertise)
		if err == nil && (wildcard(host) || port == "" || port == "0") {
			err = errors.New("it needs a host and a port that other servers can dial")
		}
		if err != nil {
			err = fmt.Errorf("the address %q for other servers: %w", advertise, err)
		}
	case err == nil && wildcard(host):
		err = fmt.Errorf("other servers cannot dial %s: name the address that they dial as well", address)
	case port == "0":
		port = ""
	}
	return host, port, err
}

// wildcard reports whether a host stands for all addresses of a machine.
func wildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// About describes this server to other servers. Keep it secret: it lets its reader call this server.
func (p *Peer) About() []byte { return p.about.bytes() }

// Address returns the address that other servers dial.
func (p *Peer) Address() string { return p.about.Address }

// Serve answers calls, until Close. It is called once at most.
func (p *Peer) Serve(h Handler) {
	p.server.RegisterService(&service, h)
	p.served = make(chan struct{})
	go func() {
		defer close(p.served)
		_ = p.server.Serve(p.listener) // it ends with Close
	}()
}

// Close ends the connections. It waits for calls on their way, which are cut off after stopTimeout. No Handler is called
// after it.
func (p *Peer) Close() { p.closing.Do(p.close) }

func (p *Peer) close() {
	p.links.close()
	late := time.AfterFunc(stopTimeout, p.server.Stop)
	defer late.Stop()
	p.server.GracefulStop()
	if p.served == nil {
		_ = p.listener.Close() // nobody has used it
		return
	}
	<-p.served
}
