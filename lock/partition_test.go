package lock_test

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
)

// partition is what stands between one client and the server.
type partition struct {
	*world
	mu      sync.Mutex
	mode    int           // 0: nothing, 1: bytes are held back, 2: cut
	changed chan struct{} // closed when the mode changes; nil if nobody waits for that
	conns   []*partitioned
}

func (p *partition) dialer() lock.ClientOption { return lock.WithDial(p.dialOption()) }

func (p *partition) dialOption() conn.Option {
	return conn.WithDialOptions(grpc.WithContextDialer(p.dial))
}

func (p *partition) dial(ctx context.Context, address string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == 2 {
		return nil, errors.New("cut")
	}
	conn, err := p.world.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	c := &partitioned{Conn: conn, p: p, closed: make(chan struct{})}
	p.conns = append(p.conns, c)
	return c, nil
}

// set changes what happens to the bytes of the client.
func (p *partition) set(mode int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	if mode == 2 {
		for _, c := range p.conns {
			_ = c.Conn.Close()
		}
		p.conns = nil
	}
}

// holdsBack returns what is closed when bytes may be held back no longer, nil if they are not.
func (p *partition) holdsBack() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode != 1 {
		return nil
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// partitioned is a connection through a partition.
type partitioned struct {
	net.Conn
	p      *partition
	once   sync.Once
	closed chan struct{}
}

func (c *partitioned) pass() {
	for {
		changed := c.p.holdsBack()
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-c.closed:
			return
		}
	}
}

func (c *partitioned) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.pass()
	return n, err
}

func (c *partitioned) Write(b []byte) (int, error) {
	c.pass()
	return c.Conn.Write(b)
}

func (c *partitioned) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
