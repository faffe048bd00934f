package conn

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// ErrClosed is the error of calls on a Conn that was closed.
var ErrClosed = status.Error(codes.Canceled, "the connection to Locket was closed by its user")

// replaceInterval is the least time between two replacements.
const replaceInterval = time.Second

// Conn is a connection to one or several servers, made by Dial. It may be used by any number of goroutines. In errors
// of calls, errors.Is finds the errors of package models, such as models.ErrLockCollision.
//
// A network that loses all packets leaves a connection that looks healthy; gRPC closes it only after an unanswered
// ping, which may take longer than a lease lasts. So after the deadline of a call has passed, later calls use another
// underlying connection of the same Conn: a new one at most once a second, and only if a server was connected. Calls
// under way stay on the old connection, which is closed when the last of them has ended. Deadlines of streams, and of
// an AwaitClaim whose own timeout has not passed, do not count, because such calls wait.
type Conn struct {
	open func() (*grpc.ClientConn, error)

	mu       sync.Mutex
	current  *link          // nil once closed
	links    map[*link]bool // the current one, and old ones with calls
	replaced time.Time

	closings sync.WaitGroup
}

var (
	_ grpc.ClientConnInterface = (*Conn)(nil)
	_ io.Closer                = (*Conn)(nil)
)

// link is an underlying connection. The Conn's lock guards it.
type link struct {
	cc    *grpc.ClientConn
	calls int
}

func newConn(open func() (*grpc.ClientConn, error)) (*Conn, error) {
	c := &Conn{open: open, links: make(map[*link]bool)}
	if err := c.connect(); err != nil {
		return nil, err
	}
	return c, nil
}

// connect opens an underlying connection for the calls to come. The caller holds the lock,
// or is alone.
func (c *Conn) connect() error {
	cc, err := c.open()
	if err != nil {
		return err
	}
	cc.Connect()
	c.current = &link{cc: cc}
	c.links[c.current] = true
	return nil
}

func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	l, err := c.acquire()
	if err != nil {
		return err
	}
	defer c.release(l)
	started := time.Now()
	err = l.cc.Invoke(ctx, method, args, reply, options...)
	if timedOut(ctx, err) && time.Since(started) > waitOf(method, args) {
		c.replace(l)
	}
	return models.FromWire(err)
}

// waitOf returns how long the server may take to answer a request because it waits. An
// AwaitClaim without a timeout may take any time.
func waitOf(method string, args any) time.Duration {
	if m, _ := methods.Of(method); m.Lasts != methods.Wait {
		return 0
	}
	if request, _ := args.(*models.AwaitClaimRequest); request.GetTimeout() != nil {
		return request.GetTimeout().AsDuration()
	}
	return math.MaxInt64
}

// timedOut reports whether it was the caller's own deadline that ended a call: a server that
// says DeadlineExceeded can be reached.
func timedOut(ctx context.Context, err error) bool {
	return status.Code(err) == codes.DeadlineExceeded && errors.Is(ctx.Err(), context.DeadlineExceeded)
}

func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	l, err := c.acquire()
	if err != nil {
		return nil, err
	}
	release := sync.OnceFunc(func() { c.release(l) })
	finish := grpc.OnFinish(func(error) { release() })
	stream, err := l.cc.NewStream(ctx, desc, method, append(slices.Clip(options), finish)...)
	if err != nil {
		release()
	}
	return stream, err
}

// Close closes all underlying connections, and returns when their goroutines have ended.
// Calls under way end with Canceled, later calls with ErrClosed. Closing
// again does nothing. It always returns nil.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.current = nil
	for l := range c.links {
		c.drop(l)
	}
	c.mu.Unlock()
	c.closings.Wait()
	return nil
}

// acquire returns the underlying connection for a call that begins.
func (c *Conn) acquire() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return nil, ErrClosed
	}
	c.current.calls++
	return c.current, nil
}

// release says that a call has ended.
func (c *Conn) release(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.calls--
	if l.calls == 0 && l != c.current && c.links[l] {
		c.drop(l)
	}
}

// drop closes an underlying connection, which takes seconds when it is stuck. The caller
// holds the lock.
func (c *Conn) drop(l *link) {
	delete(c.links, l)
	c.closings.Go(func() { _ = l.cc.Close() })
}

// replace makes later calls use another underlying connection. The caller has a call on the old one.
func (c *Conn) replace(old *link) {
	if old.cc.GetState() != connectivity.Ready {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old != c.current || time.Since(c.replaced) < replaceInterval {
		return
	}
	if c.connect() == nil { // Dial has checked the options
		c.replaced = time.Now()
	}
}
