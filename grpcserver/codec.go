package grpcserver

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// codec is gRPC's codec for protobuf, except for messages with a method Malformed: if such a message cannot be
// decoded, Malformed gets the reason, and the handler gets the message. gRPC itself answers Internal without calling
// a handler. A message with a method Takes is decoded only if Takes accepts the data. The chain gets each message
// that was encoded: see OnSent.
type codec struct {
	encoding.CodecV2
	chain *Chain
}

func newCodec(chain *Chain) encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name), chain} }

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(message)
	c.chain.wasSent(message)
	return data, err
}

func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	if m, ok := message.(interface{ Takes(data []byte) bool }); ok {
		whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer whole.Free()
		if !m.Takes(whole.ReadOnlyData()) {
			return nil
		}
		data = mem.BufferSlice{whole}
	}
	err := c.CodecV2.Unmarshal(data, message)
	if err == nil {
		return nil
	}
	if m, ok := message.(interface{ Malformed(data []byte, err error) }); ok {
		m.Malformed(data.Materialize(), err)
		return nil
	}
	return err
}

// unbatched is a stream that returns the requests of a session one by one, even if several came in one message. Guards
// and handlers see no difference.
type unbatched struct {
	grpc.ServerStream
	ctx  context.Context          // ends with the call
	more []*models.SessionRequest // arrived, and not yet received by the handler
}

// RecvMsg implements grpc.ServerStream.
func (s *unbatched) RecvMsg(message any) error {
	request, ok := decoded(message).(*models.SessionRequest)
	if !ok {
		return s.ServerStream.RecvMsg(message)
	}
	if len(s.more) > 0 {
		if err := s.ctx.Err(); err != nil {
			return status.FromContextError(err).Err()
		}
		from := s.more[0]
		request.Sequence, request.Command, request.Traceparent = from.GetSequence(), from.GetCommand(), from.GetTraceparent()
		s.more[0] = nil
		s.more = s.more[1:]
		return nil
	}
	err := s.ServerStream.RecvMsg(message)
	s.more, request.More = request.GetMore(), nil
	return err
}
