package recorder

import (
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Forward returns a server that forwards all calls over a connection. If the connection is recorded, so are the calls of other
// processes that use the server.
func Forward(conn *grpc.ClientConn) *grpc.Server {
	return grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, caller grpc.ServerStream) error {
		name, _ := grpc.MethodFromServerStream(caller)
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(name[1:], "/", ".")))
		if err != nil {
			return err
		}
		method := found.(protoreflect.MethodDescriptor)
		ctx, cancel := context.WithCancel(caller.Context())
		defer cancel()
		sent, _ := metadata.FromIncomingContext(ctx)
		call := forwarded{caller: caller, conn: conn, name: name, method: method, ctx: metadata.NewOutgoingContext(ctx, sent), cancel: cancel}
		if method.IsStreamingServer() || method.IsStreamingClient() {
			return call.stream()
		}
		return call.unary()
	}))
}

// forwarded is one call.
type forwarded struct {
	caller grpc.ServerStream
	conn   *grpc.ClientConn
	name   string
	method protoreflect.MethodDescriptor
	ctx    context.Context
	cancel context.CancelFunc
}

func (f *forwarded) unary() error {
	request, response := newMessage(f.method.Input()), newMessage(f.method.Output())
	if err := f.caller.RecvMsg(request); err != nil {
		return err
	}
	if err := f.conn.Invoke(f.ctx, f.name, request, response); err != nil {
		return err
	}
	return f.caller.SendMsg(response)
}

func (f *forwarded) stream() error {
	desc := &grpc.StreamDesc{ServerStreams: f.method.IsStreamingServer(), ClientStreams: f.method.IsStreamingClient()}
	server, err := f.conn.NewStream(f.ctx, desc, f.name)
	if err != nil {
		return err
	}
	go f.requests(server)
	for {
		response := newMessage(f.method.Output())
		switch err := server.RecvMsg(response); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := f.caller.SendMsg(response); err != nil {
			return err
		}
	}
}

// requests forwards the requests of a stream.
func (f *forwarded) requests(server grpc.ClientStream) {
	for {
		request := newMessage(f.method.Input())
		switch err := f.caller.RecvMsg(request); {
		case errors.Is(err, io.EOF):
			_ = server.CloseSend()
			return
		case err != nil:
			f.cancel()
			return
		}
		if server.SendMsg(request) != nil {
			return // RecvMsg returns why
		}
	}
}

// newMessage returns a message of a generated type.
func newMessage(desc protoreflect.MessageDescriptor) any {
	t, err := protoregistry.GlobalTypes.FindMessageByName(desc.FullName())
	if err != nil {
		panic(err) // the module that describes a method has its messages
	}
	return t.New().Interface()
}
