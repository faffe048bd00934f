package grpcserver

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Local is a connection to services in the same process. A call passes the same chain as a call over the network, but
// is not encoded: messages are copied, so that neither side sees what the other does with them later. The caller's
// outgoing metadata become the handler's incoming metadata, and the handler's context has the caller's deadline,
// cancellation and values (including its peer.Peer). A unary handler runs on its caller's goroutine; the call returns
// when the handler does.
type Local struct {
	chain   *Chain
	unary   map[string]localUnary
	streams map[string]localStreaming
}

type localUnary struct {
	service any
	handler grpc.MethodHandler
}

type localStreaming struct {
	service any
	grpc.StreamDesc
}

var (
	_ grpc.ClientConnInterface = (*Local)(nil)
	_ grpc.ServiceRegistrar    = (*Local)(nil)
)

// NewLocal returns a connection to the services that register registers.
func NewLocal(chain *Chain, register func(grpc.ServiceRegistrar)) *Local {
	l := &Local{chain: chain, unary: make(map[string]localUnary), streams: make(map[string]localStreaming)}
	register(l)
	return l
}

func (l *Local) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, method := range desc.Methods {
		l.unary["/"+desc.ServiceName+"/"+method.MethodName] = localUnary{service, method.Handler}
	}
	for _, stream := range desc.Streams {
		l.streams["/"+desc.ServiceName+"/"+stream.StreamName] = localStreaming{service, stream}
	}
}

// Invoke implements grpc.ClientConnInterface. It respects the options grpc.Header and grpc.Trailer, and ignores others.
func (l *Local) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	m, ok := l.unary[method]
	if !ok {
		return status.Error(codes.Unimplemented, "unknown method "+method)
	}
	transport := &localTransport{method: method}
	resp, err := m.handler(m.service, incoming(ctx, transport), func(request any) error {
		return merge(request, args)
	}, l.chain.unary)
	transport.tell(options)
	if err != nil {
		return err
	}
	err = merge(reply, resp)
	l.chain.wasSent(resp)
	return err
}

// merge merges a copy of a message into another one, which must be of the same type.
func merge(to, from any) error {
	target, ok := to.(proto.Message)
	source, also := from.(proto.Message)
	if !ok || !also || target.ProtoReflect().Descriptor() != source.ProtoReflect().Descriptor() {
		return status.Errorf(codes.Internal, "the message is a %T, want a %T", from, to)
	}
	proto.Merge(target, source)
	return nil
}

// incoming returns a handler's context for its caller's.
func incoming(ctx context.Context, transport grpc.ServerTransportStream) context.Context {
	outgoing, _ := metadata.FromOutgoingContext(ctx)
	return grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(ctx, outgoing), transport)
}

// localTransport keeps the header and the trailer that a handler sets.
type localTransport struct {
	method string
	// onHeader is called once, when the header is sent. It may be nil.
	onHeader func()

	mu              sync.Mutex
	sent            bool
	header, trailer metadata.MD
}

// Method implements grpc.ServerTransportStream.
func (t *localTransport) Method() string { return t.method }

func (t *localTransport) SetHeader(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sent {
		return errors.New("the header was sent before")
	}
	t.header = metadata.Join(t.header, md)
	return nil
}

func (t *localTransport) SendHeader(md metadata.MD) error {
	if err := t.SetHeader(md); err != nil {
		return err
	}
	t.flush()
	return nil
}

// flush sends the header unless it has been sent.
func (t *localTransport) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sent && t.onHeader != nil {
		t.onHeader()
	}
	t.sent = true
}

func (t *localTransport) SetTrailer(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trailer = metadata.Join(t.trailer, md)
	return nil
}

func (t *localTransport) received() (header, trailer metadata.MD) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.header, t.trailer
}

func (t *localTransport) tell(options []grpc.CallOption) {
	header, trailer := t.received()
	for _, option := range options {
		switch option := option.(type) {
		case grpc.HeaderCallOption:
			*option.HeaderAddr = header
		case grpc.TrailerCallOption:
			*option.TrailerAddr = trailer
		}
	}
}
