package locktest

import (
	"context"
	"net"

	"google.golang.org/grpc/test/bufconn"
)

// Listener is the server's side of networks in memory.
type Listener struct {
	*bufconn.Listener
	dialing chan struct{} // is full while somebody dials
}

// Listen returns a new listener.
func Listen() *Listener { return listen(1 << 20) }

func listen(buffer int) *Listener { return &Listener{bufconn.Listen(buffer), make(chan struct{}, 1)} }

// DialContext returns a connection to the listener. Those who dial take turns: a connection of bufconn makes timers that are over at once, which
// Go 1.26 runs in the goroutine that makes them, and two of these at once in one bubble of testing/synctest crash the race detector.
func (l *Listener) DialContext(ctx context.Context) (net.Conn, error) {
	select {
	case l.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-l.dialing }()
	return l.Listener.DialContext(ctx)
}
