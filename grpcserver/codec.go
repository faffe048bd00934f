package grpcserver

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec is gRPC's own for protobuf, except that a message may have a method Malformed: it
// then gets the reason why it cannot be decoded, and the handler gets the message. gRPC
// by itself answers Internal before any handler is asked.
type codec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
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
