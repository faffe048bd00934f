package grpcserver

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// localWindow is how many messages each side of a stream may send before the other side receives. A watch's messages have up to
// 256 KiB, and there may be thousands of watches with slow callers.
const localWindow = 2

// localStream is the state that both ends of a stream share.
type localStream struct {
	requests  chan proto.Message // closed by CloseSend
	responses chan proto.Message // never closed: a handler may still send after the stream has ended
	done      chan struct{}      // closed when the stream has ended
	err       error              // the status of the stream; read after done
}

// NewStream implements grpc.ClientConnInterface. The stream behaves as over the network: its handler runs on its own
// goroutine, which ends when the caller's context is done, or the caller has received the end.
func (l *Local) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	m, ok := l.streams[method]
	if !ok {
		return nil, status.Error(codes.Unimplemented, "unknown stream "+method)
	}
	stream := &localStream{
		requests: make(chan proto.Message, localWindow), responses: make(chan proto.Message, localWindow), done: make(chan struct{}),
	}
	serverCtx, cancel := context.WithCancel(incoming(ctx))
	info := &grpc.StreamServerInfo{FullMethod: method, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams}
	go func() {
		stream.err = l.chain.stream(m.service, &localServerStream{stream, serverCtx}, info, m.Handler)
		cancel()
		close(stream.done)
	}()
	return &localClientStream{localStream: stream, ctx: ctx, desc: m.StreamDesc}, nil
}

// localServerStream is the handler's end.
type localServerStream struct {
	*localStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *localServerStream) Context() context.Context { return s.ctx }

var errNoHeader = status.Error(codes.Unimplemented, "calls in this process have no header")

// SetHeader implements grpc.ServerStream.
func (s *localServerStream) SetHeader(metadata.MD) error { return errNoHeader }

// SendHeader implements grpc.ServerStream.
func (s *localServerStream) SendHeader(metadata.MD) error { return errNoHeader }

// SetTrailer implements grpc.ServerStream.
func (s *localServerStream) SetTrailer(metadata.MD) {}

func (s *localServerStream) SendMsg(message any) error {
	if s.ctx.Err() == nil {
		select {
		case s.responses <- proto.Clone(message.(proto.Message)):
			return nil
		case <-s.ctx.Done():
		}
	}
	return status.FromContextError(s.ctx.Err()).Err()
}

func (s *localServerStream) RecvMsg(message any) error {
	select {
	case request, open := <-s.requests:
		if !open {
			return io.EOF
		}
		return replace(message, request)
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// localClientStream is the caller's end.
type localClientStream struct {
	*localStream
	ctx    context.Context
	desc   grpc.StreamDesc
	closed bool
}

// Context implements grpc.ClientStream.
func (s *localClientStream) Context() context.Context { return s.ctx }

// Header implements grpc.ClientStream.
func (s *localClientStream) Header() (metadata.MD, error) { return nil, errNoHeader }

// Trailer implements grpc.ClientStream.
func (s *localClientStream) Trailer() metadata.MD { return nil }

func (s *localClientStream) CloseSend() error {
	if !s.closed {
		s.closed = true
		close(s.requests)
	}
	return nil
}

// SendMsg implements grpc.ClientStream. It returns io.EOF if the stream has ended; RecvMsg returns the status.
func (s *localClientStream) SendMsg(message any) error {
	if s.closed {
		return status.Error(codes.Internal, "SendMsg was called after CloseSend")
	}
	select {
	case <-s.done:
		return s.ended()
	case <-s.ctx.Done():
		return s.ended()
	default:
	}
	select {
	case s.requests <- proto.Clone(message.(proto.Message)):
		return nil
	case <-s.done:
	case <-s.ctx.Done():
	}
	return s.ended()
}

// ended is the result of SendMsg after the end: nil if the caller sends only one message, because it calls RecvMsg
// next.
func (s *localClientStream) ended() error {
	if s.desc.ClientStreams {
		return io.EOF
	}
	return nil
}

// RecvMsg implements grpc.ClientStream. It returns the next message, and after the last one the status, io.EOF for OK.
func (s *localClientStream) RecvMsg(message any) error {
	select {
	case response := <-s.responses:
		return replace(message, response)
	case <-s.done:
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
	select {
	case response := <-s.responses: // sent before the end
		return replace(message, response)
	default:
	}
	if s.err != nil {
		return s.err
	}
	return io.EOF
}

// replace copies a message into another one.
func replace(message any, by proto.Message) error {
	if target, ok := message.(proto.Message); ok {
		proto.Reset(target)
	}
	return merge(message, by)
}
