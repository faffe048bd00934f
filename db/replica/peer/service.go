package peer

import (
	"context"
	"crypto/subtle"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// The calls.
const (
	serviceName  = "locket.peer.v1.Peer"
	callCarryOut = "CarryOut"
	callSnapshot = "Snapshot"
	callHistory  = "History"
	// callPing asks for a sign of life.
	callPing = "Ping"
)

func path(call string) string { return "/" + serviceName + "/" + call }

var service = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*Handler)(nil),
	Methods: []grpc.MethodDesc{
		unary(callCarryOut, Handler.CarryOut),
		unary(callPing, func(Handler, context.Context, []byte) ([]byte, error) { return nil, nil }),
	},
	Streams: []grpc.StreamDesc{
		parts(callSnapshot, Handler.SendSnapshot),
		parts(callHistory, Handler.SendHistory),
	},
}

func unary(name string, do func(h Handler, ctx context.Context, in []byte) (out []byte, err error)) grpc.MethodDesc {
	handle := func(h any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in []byte
		if err := decode(&in); err != nil {
			return nil, err
		}
		out, err := do(h.(Handler), ctx, in)
		if err != nil {
			return nil, statusOf(err)
		}
		return out, nil
	}
	return grpc.MethodDesc{MethodName: name, Handler: handle}
}

// parts is a call with an answer in parts. A caller that takes them slowly makes send wait.
func parts(name string, do func(h Handler, ctx context.Context, request []byte, send func(part []byte) error) error) grpc.StreamDesc {
	handle := func(h any, stream grpc.ServerStream) error {
		var request []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		err := do(h.(Handler), stream.Context(), request, func(part []byte) error { return stream.SendMsg(part) })
		if err != nil {
			return statusOf(err)
		}
		return nil
	}
	return grpc.StreamDesc{StreamName: name, Handler: handle, ServerStreams: true}
}

// raw is a codec of messages that are bytes.
type raw struct{}

// Marshal implements encoding.CodecV2.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, is := v.([]byte)
	if !is {
		return nil, fmt.Errorf("peer: cannot send %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, is := v.(*[]byte)
	if !is {
		return fmt.Errorf("peer: cannot receive %T", v)
	}
	*b = data.Materialize()
	return nil
}

// Name implements encoding.CodecV2.
func (raw) Name() string { return "raw" }

// secretKey is the key of the secret in the metadata of a call.
const secretKey = "locket-peer-secret-bin"

// knows refuses calls without the secret, before their messages are received.
func knows(secret []byte) tap.ServerInHandle {
	return func(ctx context.Context, call *tap.Info) (context.Context, error) {
		if sent := call.Header.Get(secretKey); len(sent) == 1 && subtle.ConstantTimeCompare([]byte(sent[0]), secret) == 1 {
			return ctx, nil
		}
		return ctx, status.Error(codes.Unauthenticated, "the secret is not this server's")
	}
}

func withSecret(ctx context.Context, secret []byte) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(secretKey, string(secret)))
}
