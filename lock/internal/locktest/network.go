// Package locktest has helpers for the tests of lock and the packages below it: the network between a client and a
// server (Network, Listener), and a server that a test scripts (Script).
package locktest

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/lock/conn"
)

// State is the condition of a Network's connections.
type State int

const (
	// Open lets everything through.
	Open State = iota
	// Silent holds all bytes back, until the network is Open again.
	Silent
	// Cut closes the connections, and refuses new ones.
	Cut
)

var errCut = errors.New("the network is cut")

// Network is a network in memory, between one client and a server.
type Network struct {
	// Connect connects to the server.
	Connect func(ctx context.Context, address string) (net.Conn, error)
	// Latency delays what the server sends.
	Latency time.Duration
	// Down and Up limit the bytes per second from and to the server; 0 means no limit.
	Down, Up atomic.Int64

	mu       sync.Mutex
	state    State
	changed  chan struct{} // closed when the state changes; nil if nobody waits for that
	prevent  func(ctx context.Context) error
	attempts int
	wires    []*Wire
}

// Over returns a network to the server at a listener.
func Over(listener *Listener) *Network {
	return &Network{Connect: func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }}
}

// Option makes a client connect over the network.
func (n *Network) Option() conn.Option { return conn.WithDialOptions(grpc.WithContextDialer(n.Dial)) }

// Dial returns a connection to the server.
func (n *Network) Dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	n.attempts++
	prevent, cut := n.prevent, n.state == Cut
	n.mu.Unlock()
	if cut {
		return nil, errCut
	}
	if prevent != nil {
		if err := prevent(ctx); err != nil {
			return nil, err
		}
	}
	c, err := n.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == Cut {
		return nil, errors.Join(errCut, c.Close())
	}
	w := &Wire{Conn: c, network: n, closed: make(chan struct{})}
	n.wires = append(n.wires, w)
	return w, nil
}

// Set sets the state.
func (n *Network) Set(state State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = state
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
	if state == Cut {
		for _, w := range n.wires {
			_ = w.Conn.Close()
		}
	}
}

// Prevent sets a function that is called before each connection is made; its error prevents the connection. nil removes it.
func (n *Network) Prevent(prevent func(ctx context.Context) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prevent = prevent
}

// Attempts returns the number of attempts to connect.
func (n *Network) Attempts() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.attempts
}

// Wires returns all connections that were made.
func (n *Network) Wires() []*Wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.wires)
}

// silence returns a channel that is closed when the state changes, nil if the network is not Silent.
func (n *Network) silence() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != Silent {
		return nil
	}
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.changed
}

// Wire is the client's side of a connection.
type Wire struct {
	net.Conn
	// Stuck drops all bytes, in both directions.
	Stuck   atomic.Bool
	network *Network
	once    sync.Once
	closed  chan struct{}
}

// IsClosed reports whether the client has closed it.
func (w *Wire) IsClosed() bool {
	select {
	case <-w.closed:
		return true
	default:
		return false
	}
}

// pass returns when the network is not Silent, or the wire is closed.
func (w *Wire) pass() {
	for {
		silence := w.network.silence()
		if silence == nil {
			return
		}
		select {
		case <-silence:
		case <-w.closed:
			return
		}
	}
}

// Read implements net.Conn.
func (w *Wire) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(part(&w.network.Down, p))
		delay(&w.network.Down, n)
		time.Sleep(w.network.Latency) // real time: none, as bubbles alone have such connections
		w.pass()
		if err != nil || !w.Stuck.Load() {
			return n, err
		}
	}
}

// Write implements net.Conn.
func (w *Wire) Write(p []byte) (int, error) {
	if w.Stuck.Load() {
		return len(p), nil
	}
	w.pass()
	for sent := 0; ; {
		n, err := w.Conn.Write(part(&w.network.Up, p[sent:]))
		delay(&w.network.Up, n)
		if sent += n; err != nil || sent == len(p) {
			return sent, err
		}
	}
}

// packet is how many bytes a slow network passes at once.
const packet = 512

// part returns the part of p that passes at once.
func part(rate *atomic.Int64, p []byte) []byte {
	if rate.Load() == 0 {
		return p
	}
	return p[:min(len(p), packet)]
}

// delay returns when a number of bytes have passed.
func delay(rate *atomic.Int64, bytes int) {
	if a := rate.Load(); a > 0 {
		time.Sleep(time.Duration(bytes) * time.Second / time.Duration(a)) // real time: none, as with Latency
	}
}

// Close implements net.Conn.
func (w *Wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}
