package gateway

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/models"
)

// request is the state of one request.
type request struct {
	// id identifies the request in the log, and in a header of the answer.
	id string
	// peer is the client.
	peer *peer.Peer
	// method is the method, GET instead of HEAD.
	method string
	// headOnly is set if the client wants no more than the header of the answer: the method was HEAD.
	headOnly bool
	// base is the beginning of the URLs in the answer: scheme, host and a proxy's prefix.
	base string
	// path is the path without trailing and repeated slashes.
	path string
	// query is the original query.
	query url.Values
	// connection sets the deadlines of the connection.
	connection *http.ResponseController
	// operation is the requested operation; zero if there is none.
	operation operation
	// message is the message of the call, decoded from body, query and path.
	message proto.Message
	// wait is how long the client prefers to wait; 0 for no wait.
	wait time.Duration
	// waited is set when the preference has been applied.
	waited bool
	// retryAfter is set if the server had no room for the wait.
	retryAfter bool
}

type requestKey struct{}

// requestOf returns the request that a context belongs to.
func requestOf(ctx context.Context) *request { return ctx.Value(requestKey{}).(*request) }

func newRequest(w http.ResponseWriter, r *http.Request, base, path string) *request {
	known := &request{
		id: r.Header.Get("X-Request-Id"), peer: peerOf(r), method: r.Method, base: base, path: path, query: r.URL.Query(),
		connection: http.NewResponseController(w),
	}
	if known.method == http.MethodHead {
		known.method, known.headOnly = http.MethodGet, true
	}
	if !models.ValidRequestID(known.id) {
		known.id = ids.NewRequest()
	}
	return known
}

func (r *request) nextPage(token string) string {
	query := maps.Clone(r.query)
	query.Del("offset")
	query.Set("page_token", token)
	return r.base + r.path + "/?" + query.Encode()
}

// list returns the path of the list of locks or presences that the request is about.
func (r *request) list() string {
	if strings.HasPrefix(r.path, presencesPath) {
		return presencesPath
	}
	return locksPath
}

// peerOf returns the client of a request as gRPC does: the address and the TLS state of the connection. It ignores
// headers of proxies.
func peerOf(r *http.Request) *peer.Peer {
	p := &peer.Peer{Addr: addressOf(r.RemoteAddr)}
	p.LocalAddr, _ = r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if r.TLS != nil {
		p.AuthInfo = credentials.TLSInfo{
			State:          *r.TLS,
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		}
	}
	return p
}

func addressOf(remote string) net.Addr {
	if address, err := netip.ParseAddrPort(remote); err == nil {
		return net.TCPAddrFromAddrPort(address)
	}
	return &net.UnixAddr{Name: remote, Net: "unix"} // net/http knows only one other kind of listener
}

// fromPeer is a connection that sets the peer of each call to the client of its request.
type fromPeer struct{ grpc.ClientConnInterface }

// Invoke implements grpc.ClientConnInterface.
func (c fromPeer) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	return c.ClientConnInterface.Invoke(peer.NewContext(ctx, requestOf(ctx).peer), method, args, reply, options...)
}

func (c fromPeer) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.ClientConnInterface.NewStream(peer.NewContext(ctx, requestOf(ctx).peer), desc, method, options...)
}
