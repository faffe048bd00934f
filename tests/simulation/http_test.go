package simulation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing/iotest"
)

// web is a client that reaches the servers over HTTP.
type web struct {
	*client
	transport *http.Transport
	recorded  http.RoundTripper
	last      atomic.Pointer[server] // that has answered
	dead      chan struct{}          // closed when the process of the client is gone, and its connections with it
}

func (c *client) web() *web {
	w := &web{client: c, dead: make(chan struct{})}
	w.transport = &http.Transport{DialContext: w.dial, DisableCompression: true}
	w.recorded = c.Transport(w.transport)
	return w
}

// url is the address of the server for HTTP.
func (s *server) url() string { return fmt.Sprintf("http://10.0.0.%d", s.n) }

// serverAt returns the server with an address.
func (w *world) serverAt(host string) *server {
	for _, s := range w.servers {
		if s.url() == "http://"+host {
			return s
		}
	}
	panic("there is no server at " + host)
}

// RoundTrip implements http.RoundTripper.
func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	s, sent := w.serverAt(req.URL.Host), peek(&req.Body)
	resp, err := w.recorded.RoundTrip(req)
	if err != nil {
		w.trace.note(w.name, "at %s: %s %s %s: %v", s.name, req.Method, req.URL.Path, sent, err)
		return nil, err
	}
	w.last.Store(s)
	w.trace.note(w.name, "at %s: %s %s %s: %d %s", s.name, req.Method, req.URL.Path, sent, resp.StatusCode, peek(&resp.Body))
	return resp, nil
}

// peek returns the content of a body, which can still be read.
func peek(body *io.ReadCloser) []byte {
	if *body == nil {
		return nil
	}
	content, err := io.ReadAll(*body)
	_ = (*body).Close()
	if err == nil {
		err = io.EOF
	}
	*body = io.NopCloser(io.MultiReader(bytes.NewReader(content), iotest.ErrReader(err)))
	return bytes.TrimSpace(content)
}

var errDead = errors.New("the client's process is gone")

// dial connects the client to the present run of a server.
func (w *web) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	s := w.serverAt(host)
	w.network.requests.wait(ctx)
	r := s.current()
	if r == nil || s.faults.cut(ctx) {
		sleep(ctx, unreachableAfter)
		return nil, errUnreachable
	}
	select {
	case <-w.dead:
		return nil, errDead
	default:
		return w.connect(ctx, r)
	}
}

// connect returns a connection that ends with the run, and with the client.
func (w *web) connect(ctx context.Context, r *run) (net.Conn, error) {
	conn, err := r.http.Dial(ctx, "", "")
	if err != nil {
		return nil, err
	}
	c := &httpConn{Conn: conn, network: &w.network, faults: &r.s.faults}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go func() {
		select {
		case <-r.gone:
		case <-w.dead:
		case <-c.ctx.Done():
		}
		_ = c.Close()
	}()
	return c, nil
}

// httpConn is a client's end of a connection over HTTP, with the faults of the client's network and of the server.
type httpConn struct {
	net.Conn
	network *network
	faults  *faults
	ctx     context.Context // done when the connection is closed
	cancel  context.CancelFunc
}

// Close implements net.Conn.
func (c *httpConn) Close() error {
	c.cancel()
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *httpConn) Write(b []byte) (int, error) {
	c.network.requests.wait(c.ctx)
	if sleep(c.ctx, latency); c.lost() {
		return 0, errUnreachable
	}
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *httpConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	lost := err == nil && c.lost()
	c.network.answers.wait(c.ctx)
	if lost {
		return 0, errUnreachable
	}
	return n, err
}

// lost waits while the server is paused, and reports whether it is cut off from its clients: that breaks the connection.
func (c *httpConn) lost() bool {
	if !c.faults.cut(c.ctx) {
		return false
	}
	_ = c.Close()
	return true
}
