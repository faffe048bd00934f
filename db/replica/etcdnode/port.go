package etcdnode

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
)

// port is the TCP port of a node. Connections that begin TLS with the server name of Listen are for its caller. All others are for etcd and
// for nodes that form a cluster: HTTP, over TLS if the node has certificates. No byte is copied on the way.
type port struct {
	listener net.Listener
	nodes    *inbox
	server   *http.Server
	handler  atomic.Pointer[http.Handler] // nil before there is one
	routing  sync.WaitGroup

	mu     sync.Mutex // guards the following
	name   string     // of the connections for others
	others *inbox     // nil for none
	closed bool
}

const (
	// helloTimeout is how long the first message on a connection may take, and then the head of a request.
	helloTimeout = 5 * time.Second
	// requestTimeout is how long a request of etcd may take to arrive, as etcd has it.
	requestTimeout = 5 * time.Minute
)

func openPort(o Options, address string) (*port, error) {
	listener, err := net.Listen("tcp", listenAddress(address))
	if err != nil {
		return nil, err
	}
	p := &port{listener: listener, nodes: newInbox(listener.Addr())}
	p.server = &http.Server{Handler: p, ReadTimeout: requestTimeout, ReadHeaderTimeout: helloTimeout, MaxHeaderBytes: maxAnswer, ErrorLog: log.New(io.Discard, "", 0)}
	var nodes net.Listener = p.nodes
	if o.Cert != "" {
		config, err := tlsOf(o).ServerConfig()
		if err != nil {
			_ = listener.Close()
			return nil, err
		}
		config.NextProtos = []string{"http/1.1"} // Raft's streams need it
		nodes = tls.NewListener(nodes, config)
	}
	p.routing.Go(func() { _ = p.server.Serve(nodes) })
	p.routing.Go(p.accept)
	return p, nil
}

// handle has requests handled from now on. Before, a node answers that it is not ready.
func (p *port) handle(h http.Handler) { p.handler.Store(&h) }

// ServeHTTP implements http.Handler.
func (p *port) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := p.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	http.Error(w, "the node is starting", http.StatusServiceUnavailable)
}

// Listen returns a listener that gets the connections of TLS with a server name. It takes the place of the one before.
func (p *port) Listen(name string) net.Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.others = name, newInbox(p.listener.Addr())
	if p.closed {
		_ = p.others.Close()
	}
	return p.others
}

func (p *port) accept() {
	for {
		conn, err := p.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // as without a file descriptor
			time.Sleep(peerTimeout / 100)
		default:
			go p.route(conn)
		}
	}
}

// route gives a connection to its inbox.
func (p *port) route(conn net.Conn) {
	peeked := &peeked{Conn: conn}
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	name := peeked.serverName()
	_ = conn.SetReadDeadline(time.Time{})
	p.mu.Lock()
	others, is := p.others, name != "" && name == p.name
	p.mu.Unlock()
	if is {
		others.give(peeked)
		return
	}
	p.nodes.give(timed{peeked})
}

func (p *port) close() {
	p.mu.Lock()
	p.closed = true
	others := p.others
	p.mu.Unlock()
	_ = p.listener.Close()
	_ = p.nodes.Close()
	if others != nil {
		_ = others.Close()
	}
	_ = p.server.Close()
	p.routing.Wait()
}

// inbox is a net.Listener whose connections were accepted elsewhere.
type inbox struct {
	address net.Addr
	conns   chan net.Conn
	closed  chan struct{}
	closing sync.Once
}

func newInbox(address net.Addr) *inbox {
	return &inbox{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (i *inbox) give(conn net.Conn) {
	select {
	case i.conns <- conn:
	case <-i.closed:
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (i *inbox) Accept() (net.Conn, error) {
	select {
	case conn := <-i.conns:
		return conn, nil
	case <-i.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (i *inbox) Close() error {
	i.closing.Do(func() { close(i.closed) })
	return nil
}

// Addr implements net.Listener.
func (i *inbox) Addr() net.Addr { return i.address }

// peeked is a connection whose first bytes were read. They are read again.
type peeked struct {
	net.Conn
	first bytes.Buffer
}

// Read implements net.Conn.
func (b *peeked) Read(p []byte) (int, error) {
	if b.first.Len() > 0 {
		return b.first.Read(p)
	}
	return b.Conn.Read(p)
}

var errSeen = errors.New("enough is known")

// serverName returns the server name in the first message of TLS, "" if there is none.
func (b *peeked) serverName() (name string) {
	_ = tls.Server(&hello{b.Conn, &b.first}, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			name = h.ServerName
			return nil, errSeen
		},
	}).Handshake() // which fails
	return name
}

// hello is a connection that is read, and not written to.
type hello struct {
	net.Conn
	read *bytes.Buffer
}

// Read implements net.Conn.
func (h *hello) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	h.read.Write(p[:n])
	return n, err
}

// Write implements net.Conn.
func (h *hello) Write(p []byte) (int, error) { return len(p), nil }

// timed is a connection with etcd's timeouts.
type timed struct{ net.Conn }

// Read implements net.Conn.
func (t timed) Read(p []byte) (int, error) {
	if err := t.SetReadDeadline(time.Now().Add(rafthttp.ConnReadTimeout)); err != nil {
		return 0, err
	}
	return t.Conn.Read(p)
}

// Write implements net.Conn.
func (t timed) Write(p []byte) (int, error) {
	if err := t.SetWriteDeadline(time.Now().Add(rafthttp.ConnWriteTimeout)); err != nil {
		return 0, err
	}
	return t.Conn.Write(p)
}
