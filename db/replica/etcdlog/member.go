package etcdlog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcd "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

// member is the connection to one member of etcd.
type member struct {
	endpoint string
	client   *etcd.Client
	// watch is the bare RPC. The client's own Watch buffers without a bound for a slow reader.
	watch pb.WatchClient
	*secrets
	isLocal bool

	turn  chan struct{} // held while the token is read or fetched
	token *string       // nil until fetched; empty if etcd demands none
}

// window is how many bytes may be on their way from a member. Without it gRPC measures the connection: it sends a ping, and gets one
// back, for each message.
const window = 4 << 20

// dial returns the connection to a member. It does not wait for it.
func dial(endpoint string, s *secrets) (*member, error) {
	options := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: 2 * time.Second,
	}), grpc.WithChainUnaryInterceptor(failFast), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window)}
	if s.tls != nil {
		options = append(options, grpc.WithTransportCredentials(transport{credentials.NewTLS(s.tls()), s.tls}))
	}
	client, err := etcd.New(etcd.Config{
		Endpoints: []string{endpoint}, DialOptions: options, Logger: zap.NewNop(),
		// Requests are sent again here, to all members, and not by the client. It has no other way to say so.
		MaxUnaryRetries: 1,
		// gRPC pings no sooner; see guard. Linux closes the connection 2 s after the first byte that the member has not acknowledged.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &member{endpoint: endpoint, client: client, watch: pb.NewWatchClient(client.ActiveConnection()), secrets: s, turn: make(chan struct{}, 1)}, nil
}

// local returns the member in this process. Its client belongs to the member.
func local(m Local) *member {
	return &member{endpoint: "this process", client: m.Client(), watch: bareWatch{m.Watch()}, secrets: &secrets{}, turn: make(chan struct{}, 1), isLocal: true}
}

// bareWatch hides the values of the context from etcd, which prints it while others change them.
type bareWatch struct{ pb.WatchClient }

func (w bareWatch) Watch(ctx context.Context, options ...grpc.CallOption) (grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse], error) {
	return w.WatchClient.Watch(bareContext{ctx}, options...)
}

type bareContext struct{ context.Context } //nolint:containedctx // it is one

// String implements fmt.Stringer.
func (bareContext) String() string { return "context" }

func (m *member) close() {
	if !m.isLocal {
		_ = m.client.Close()
	}
}

var errNoUser = errors.New("etcd demands a user: give --etcd-user and --etcd-password-file")

// failFast has a request fail when its member is down. etcd's client would wait for the member, and hide why it does not
// connect.
func failFast(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return invoke(ctx, method, request, answer, conn, append(options, grpc.WaitForReady(false))...)
}

// do makes a request of this member. The context that it hands on has the token, and has a member without a leader
// refuse the request at once.
func (m *member) do(ctx context.Context, request func(context.Context) error) error {
	token, err := m.authenticate(ctx)
	if err != nil {
		return err
	}
	ctx = etcd.WithRequireLeader(ctx)
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
	}
	err = rpctypes.Error(request(ctx))
	if errors.Is(err, rpctypes.ErrUserEmpty) && m.user == "" {
		return errNoUser
	}
	if needsToken(err) {
		m.forget(ctx)
	}
	return err
}

// authenticate returns the token, and fetches it first if there is none.
func (m *member) authenticate(ctx context.Context) (string, error) {
	if m.user == "" {
		return "", nil
	}
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if m.token != nil {
		return *m.token, nil
	}
	response, err := m.client.Authenticate(ctx, m.user, m.password())
	token := ""
	switch err = rpctypes.Error(err); {
	case err == nil:
		token = response.Token
	case !errors.Is(err, rpctypes.ErrAuthNotEnabled):
		return "", err
	}
	m.token = &token
	return token, nil
}

func (m *member) forget(ctx context.Context) {
	if m.user == "" {
		return
	}
	select {
	case m.turn <- struct{}{}:
		m.token = nil
		<-m.turn
	case <-ctx.Done():
	}
}

// transport makes each TLS connection by the files as they are then.
type transport struct {
	credentials.TransportCredentials
	config func() *tls.Config
}

// ClientHandshake implements credentials.TransportCredentials.
func (t transport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := credentials.NewTLS(t.config()).ClientHandshake(ctx, authority, conn)
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		err = fmt.Errorf("--etcd-ca: %w", err)
	}
	return secured, info, err
}

// Clone implements credentials.TransportCredentials.
func (t transport) Clone() credentials.TransportCredentials { return t }
