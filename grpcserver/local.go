package grpcserver

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Local is a connection to services in the same process. A call goes the way of one that
// comes over the network, observed and recovered, but is not encoded.
type Local struct {
	observer *Observer
	methods  map[string]localMethod
}

type localMethod struct {
	service any
	handler grpc.MethodHandler
}

var (
	_ grpc.ClientConnInterface = (*Local)(nil)
	_ grpc.ServiceRegistrar    = (*Local)(nil)
)

// NewLocal returns a connection on which register has registered its services.
func NewLocal(observer *Observer, register func(grpc.ServiceRegistrar)) *Local {
	l := &Local{observer: observer, methods: make(map[string]localMethod)}
	register(l)
	return l
}

// RegisterService implements grpc.ServiceRegistrar. Streams are left out.
func (l *Local) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, method := range desc.Methods {
		l.methods["/"+desc.ServiceName+"/"+method.MethodName] = localMethod{service, method.Handler}
	}
}

// Invoke implements grpc.ClientConnInterface. Options are not heeded.
func (l *Local) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	m, ok := l.methods[method]
	if !ok {
		return status.Error(codes.Unimplemented, "unknown method "+method)
	}
	outgoing, _ := metadata.FromOutgoingContext(ctx)
	resp, err := m.handler(m.service, metadata.NewIncomingContext(ctx, outgoing), func(request any) error {
		proto.Merge(request.(proto.Message), args.(proto.Message))
		return nil
	}, l.observer.unary)
	if err != nil {
		return err
	}
	proto.Merge(reply.(proto.Message), resp.(proto.Message))
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (l *Local) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}
