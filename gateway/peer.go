package gateway

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

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
