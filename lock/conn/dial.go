package conn

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// ServiceConfig is the gRPC service config of a Conn, for programs that dial by themselves. Calls take turns among the
// servers. If a call ends with Unavailable before any part of the answer has come, it is retried up to three times,
// within about a second and the caller's deadline, for these methods:
//
//   - methods that change nothing;
//   - Lock, which renews a lock that an earlier attempt took for the same owner;
//   - UpdateClaim and EndClaim, which have the same effect however often they are sent.
//
// The caller decides about retries of the other five: CreateClaim, Release, EndSession, ResetSessions and Session. The
// table in package models/methods has the reasons. gRPC itself resends any call that no server has seen.
var ServiceConfig = serviceConfig()

func serviceConfig() string {
	var names []string
	for _, name := range methods.Repeatable() {
		names = append(names, fmt.Sprintf(`{"service": %q, "method": %q}`, models.Locket_ServiceDesc.ServiceName, name))
	}
	return `{
	"loadBalancingConfig": [{"round_robin": {}}],
	"methodConfig": [{
		"name": [` + strings.Join(names, ", ") + `],
		"retryPolicy": {
			"maxAttempts": 4,
			"initialBackoff": "0.1s",
			"maxBackoff": "0.5s",
			"backoffMultiplier": 2,
			"retryableStatusCodes": ["UNAVAILABLE"]
		}
	}]
}`
}

const (
	// keepaliveTime is how long a connection may be silent before it is pinged: the least
	// that gRPC's clients do, and more than the 5 s that the server demands.
	keepaliveTime = 10 * time.Second
	// keepaliveTimeout is how long the answer to a ping may take, and on Linux what was sent
	// may stay without TCP's acknowledgement, before the connection is closed.
	keepaliveTimeout = 5 * time.Second
	// connectTimeout bounds one attempt to connect, TLS included.
	connectTimeout = 3 * time.Second
	// maxAnswer is the size of the largest answer, in bytes: Cloud Foundry's servers answer FetchAll with all locks at
	// once, however many there are.
	maxAnswer = 64 << 20
)

// Option is an option of Dial and NewDialer.
type Option func(*Dialer)

// Dialer makes connections to servers, for programs that connect to each server separately.
type Dialer struct {
	addresses []string
	security  []security
	insecure  bool
	options   []grpc.DialOption
	creds     grpc.DialOption
	wrong     []error // of the options
}

// WithDialOptions adds options of gRPC, such as interceptors and a dialer. They have priority
// over Dial's options.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(d *Dialer) { d.options = append(d.options, options...) }
}

// Dial returns a connection to one or several servers, for models.NewLocketClient. Close it after use. Each address is
// a host and a port, "db-1.internal:8891" or "[::1]:8891". Calls take turns among the servers that can be reached. A
// host name is looked up for each connection, and the first of its IP addresses that answers is used.
//
// Dial begins to connect and does not wait. A server that cannot be reached is tried again after 100 ms, later after
// up to a second. Silent connections are closed after 15 s at most; Conn describes calls that cannot wait so long, and
// ServiceConfig retries. HTTP proxies of the environment are not used.
//
// It returns an error if there is no address or an address is malformed, if a file of WithTLSFiles is invalid, if two
// of WithTLS, WithTLSFiles, WithCredentials and WithInsecure are given, and if an address is on another machine and
// none of them is given.
func Dial(addresses []string, options ...Option) (*Conn, error) {
	d, err := NewDialer(addresses, options...)
	if err != nil {
		return nil, err
	}
	return d.Dial()
}

// NewDialer returns a dialer for some servers. It returns the same errors as Dial.
func NewDialer(addresses []string, options ...Option) (*Dialer, error) {
	d := &Dialer{addresses: slices.Clone(addresses)}
	for _, option := range options {
		option(d)
	}
	hosts, err := hostsOf(addresses)
	if err = errors.Join(append(d.wrong, err)...); err != nil {
		return nil, err
	}
	d.creds, err = d.credentials(hosts)
	return d, err
}

// Addresses returns the servers' addresses. Do not change them.
func (d *Dialer) Addresses() []string { return d.addresses }

// Dial returns a connection to all servers.
func (d *Dialer) Dial() (*Conn, error) {
	return newConn(func() (*grpc.ClientConn, error) { return d.Open(d.addresses...) })
}

// Open returns a gRPC connection to some of the servers.
func (d *Dialer) Open(addresses ...string) (*grpc.ClientConn, error) {
	return grpc.NewClient("locket:///servers", slices.Concat(defaults(addresses), []grpc.DialOption{d.creds}, d.options)...)
}

func defaults(addresses []string) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithResolvers(newResolver(addresses)),
		grpc.WithDefaultServiceConfig(ServiceConfig),
		grpc.WithUserAgent("locket-go"),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			// With the jitter a pause is a second at most.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 800 * time.Millisecond},
			MinConnectTimeout: connectTimeout,
		}),
	}
}

// newResolver returns a resolver, for one underlying connection, that knows the addresses. Each is its own name in TLS
// and the authority of its calls.
func newResolver(addresses []string) resolver.Builder {
	endpoints := make([]resolver.Endpoint, len(addresses))
	for i, address := range addresses {
		endpoints[i].Addresses = []resolver.Address{{Addr: address, ServerName: address}}
	}
	r := manual.NewBuilderWithScheme("locket")
	r.InitialState(resolver.State{Endpoints: endpoints})
	return r
}

func hostsOf(addresses []string) ([]string, error) {
	if len(addresses) == 0 {
		return nil, errors.New("no address of a server is given")
	}
	hosts := make([]string, len(addresses))
	for i, address := range addresses {
		host, err := hostOf(address)
		if err != nil {
			return nil, fmt.Errorf("server address %q: %w", address, err)
		}
		hosts[i] = host
	}
	return hosts, nil
}

func hostOf(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", errors.New("must be a host and a port, as in 127.0.0.1:8891")
	}
	if host == "" || strings.ContainsAny(host, " \t\r\n/,@") {
		return "", errors.New("invalid host")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("the port is not one of 1 to 65535")
	}
	return host, nil
}
