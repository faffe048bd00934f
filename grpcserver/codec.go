package grpcserver

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
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
