package grpcserver

import (
	"context"

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
// when the handler does. Locket's services use neither header nor trailer of an answer, and have no stream whose handler
// answers only once, so Local has none of these. It ignores the options of a call.
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
		if stream.ServerStreams {
			l.streams["/"+desc.ServiceName+"/"+stream.StreamName] = localStreaming{service, stream}
		}
	}
}

// Invoke implements grpc.ClientConnInterface.
func (l *Local) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	m, ok := l.unary[method]
	if !ok {
		return status.Error(codes.Unimplemented, "unknown method "+method)
	}
	resp, err := m.handler(m.service, incoming(ctx), func(request any) error { return merge(request, args) }, l.chain.unary)
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
func incoming(ctx context.Context) context.Context {
	outgoing, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewIncomingContext(ctx, outgoing)
}
