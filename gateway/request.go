package gateway

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
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

// proxies are the addresses of the proxies whose X-Forwarded headers are used. From others these headers are ignored.
type proxies []netip.Prefix

func (p proxies) trust(remote string) bool {
	address, err := netip.ParseAddrPort(remote)
	return err == nil && slices.ContainsFunc(p, func(prefix netip.Prefix) bool { return prefix.Contains(address.Addr().Unmap()) })
}

// baseOf returns the beginning of the URLs in an answer, as the client sees it: scheme and host, and the path prefix of
// a proxy.
func (p proxies) baseOf(r *http.Request) string {
	scheme, host, prefix := "http", r.Host, ""
	if r.TLS != nil {
		scheme = "https"
	}
	if p.trust(r.RemoteAddr) {
		if forwarded := strings.ToLower(last(r.Header, "X-Forwarded-Proto")); forwarded == "http" || forwarded == "https" {
			scheme = forwarded
		}
		if forwarded := last(r.Header, "X-Forwarded-Host"); forwarded != "" && onlyHas(forwarded, ".-_:[]") {
			host = forwarded
		}
		if forwarded := last(r.Header, "X-Forwarded-Prefix"); strings.HasPrefix(forwarded, "/") && onlyHas(forwarded, "/.-_~%") {
			prefix = "/" + strings.Trim(forwarded, "/")
		}
	}
	if host == "" { // HTTP/1.0
		host = r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
	}
	return scheme + "://" + host + strings.TrimSuffix(prefix, "/")
}

// last returns the last value of a header, which the nearest proxy has set.
func last(header http.Header, name string) string {
	values := header.Values(name)
	if len(values) == 0 {
		return ""
	}
	value := values[len(values)-1]
	return strings.TrimSpace(value[strings.LastIndex(value, ",")+1:])
}

// onlyHas reports whether a text has only ASCII letters, digits, and some other characters.
func onlyHas(text, others string) bool {
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

// arrive notes that the body of a request has not arrived yet; until then the request may be cut off. end must be
// called when the request ends.
func (c Config) arrive(r *http.Request) (end func()) {
	arriving, connection := &arrivingBody{ReadCloser: r.Body}, requestOf(r.Context()).connection
	arriving.arrived = c.Arrive(c.incoming(r), func() { arriving.cut(connection) })
	if arriving.arrived == nil {
		return func() {}
	}
	r.Body = arriving
	return arriving.end
}

// incoming returns the context of the calls of a request, with its peer and metadata.
func (c Config) incoming(r *http.Request) context.Context {
	return metadata.NewIncomingContext(peer.NewContext(r.Context(), requestOf(r.Context()).peer), callMetadata(c, r))
}

// arrivingBody is the body of a request that may be cut off until the body has arrived.
type arrivingBody struct {
	io.ReadCloser
	arrived func()

	mu   sync.Mutex
	came bool
}

func (b *arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *arrivingBody) end() {
	b.mu.Lock()
	b.came = true
	b.mu.Unlock()
	b.arrived()
}

// cut ends the reading of the body. It does nothing after the body has arrived, because the deadline would then apply
// to the connection's next request.
func (b *arrivingBody) cut(connection *http.ResponseController) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.came {
		_ = connection.SetReadDeadline(time.Now())
	}
}
