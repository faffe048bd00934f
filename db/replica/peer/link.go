package peer

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db"
)

const (
	// watchInterval is how often a link is looked after, and pingTimeout how long the other server may take for a sign of life while
	// calls are on their way. Together they are how long a dead server stays unnoticed.
	watchInterval = 500 * time.Millisecond
	pingTimeout   = 1400 * time.Millisecond
	// dialTimeout is how long a dial may take.
	dialTimeout = 2 * time.Second
	// redial is the longest pause after a failed dial. Calls in a pause fail at once.
	redial = 500 * time.Millisecond
	// window is how many bytes may be under way in each direction. Without it gRPC measures the connection: it sends a ping, and
	// gets one back, for each message.
	window = 4 << 20
	// idleTimeout is after how long without calls a link is closed.
	idleTimeout = 30 * time.Second
)

// links are the connections to other servers, by their Abouts.
type links struct {
	mu      sync.Mutex // guards the following
	byAbout map[string]*link
	closed  bool
	idle    time.Duration
	watches sync.WaitGroup
}

func newLinks() links { return links{byAbout: make(map[string]*link), idle: idleTimeout} }

// link is the connection to one server.
type link struct {
	all   *links
	key   string
	about about
	conn  *grpc.ClientConn
	stop  chan struct{} // closed when the link is
	dead  atomic.Bool   // the server has given no sign of life

	calls int // on their way; guarded by links.mu
	last  time.Time
}

// use returns the link to a server for a call, which ends with release.
func (s *links) use(key []byte) (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("%w: the connections to other servers are closed", db.ErrUnavailable)
	}
	l := s.byAbout[string(key)]
	if l == nil {
		var err error
		if l, err = s.add(key); err != nil {
			return nil, err
		}
	}
	l.calls++
	return l, nil
}

func (l *link) release() {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.calls--
	l.last = time.Now()
}

// add makes a link. The caller has mu.
func (s *links) add(key []byte) (*link, error) {
	about, err := readAbout(key)
	if err != nil {
		return nil, err
	}
	l := &link{all: s, key: string(key), about: about, stop: make(chan struct{})}
	if l.conn, err = dial(about); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAbout, err)
	}
	s.byAbout[l.key] = l
	s.watches.Go(l.watch)
	return l, nil
}

// dial prepares a connection. It is made with the first call, and again with the first call after it was lost.
func dial(a about) (*grpc.ClientConn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	pause := backoff.Config{BaseDelay: redial / 10, Multiplier: 2, Jitter: 0.2, MaxDelay: redial}
	return grpc.NewClient("passthrough:///"+a.Address,
		grpc.WithTransportCredentials(credentials.NewTLS(pinned(a.Fingerprint))),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pause, MinConnectTimeout: dialTimeout}),
		grpc.WithDefaultCallOptions(callOptions...),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithIdleTimeout(0), grpc.WithDisableServiceConfig(),
	)
}

// pinned is the configuration of a client that accepts one certificate.
func pinned(fingerprint []byte) *tls.Config {
	verify := func(s tls.ConnectionState) error {
		got := sha256.Sum256(s.PeerCertificates[0].Raw)
		if subtle.ConstantTimeCompare(got[:], fingerprint) != 1 {
			return errors.New("the certificate is another server's")
		}
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, VerifyConnection: verify, ServerName: serviceName}
}

// watch closes the link when the server gives no sign of life while calls are on their way, and when nobody has used it for long.
func (l *link) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		l.all.mu.Lock()
		used := l.calls > 0
		if !used && time.Since(l.last) > l.all.idle {
			l.close()
		}
		l.all.mu.Unlock()
		if used && !l.lives() {
			l.dead.Store(true)
			l.all.mu.Lock()
			l.close()
			l.all.mu.Unlock()
		}
	}
}

// lives reports whether the server gives a sign of life, or refuses to. Calls learn of a lost connection by themselves.
func (l *link) lives() bool {
	ctx, cancel := context.WithTimeout(withSecret(context.Background(), l.about.Secret), pingTimeout)
	defer cancel()
	var nothing []byte
	err := l.conn.Invoke(ctx, path(callPing), []byte(nil), &nothing)
	return status.Code(err) != codes.DeadlineExceeded
}

// close closes the link. The caller has mu.
func (l *link) close() {
	select {
	case <-l.stop:
		return
	default:
	}
	close(l.stop)
	if l.all.byAbout[l.key] == l {
		delete(l.all.byAbout, l.key)
	}
	_ = l.conn.Close() // its calls report the error
}

func (s *links) close() {
	s.mu.Lock()
	s.closed = true
	for _, l := range s.byAbout {
		l.close()
	}
	s.mu.Unlock()
	s.watches.Wait()
}
