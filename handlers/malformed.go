package handlers

import (
	"context"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/locket-service/locket/models"
)

// incoming is a request that is being decoded. The codec of package grpcserver calls Malformed if it cannot be decoded.
type incoming struct {
	proto.Message
	err error
}

// Reset does nothing: the message is new.
func (*incoming) Reset() {}

// tolerant returns a handler that also accepts messages that cannot be decoded. Such a message fails after the
// interceptors, in place of the service, rather than before them. So its caller is logged, and learns nothing unless it
// may call the method.
func tolerant(decode grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		var request incoming
		receive := func(message any) error {
			request.Message = message.(proto.Message)
			return dec(&request)
		}
		if interceptor == nil {
			interceptor = func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				return handler(ctx, req)
			}
		}
		return decode(srv, ctx, receive, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if request.err != nil {
				handler = func(context.Context, any) (any, error) { return nil, request.err }
			}
			return interceptor(ctx, req, info, handler)
		})
	}
}

func (i *incoming) Decoded() any { return i.Message }

// tolerantStream is tolerant for streams: a message that cannot be decoded makes the handler's next receive fail.
func tolerantStream(handler grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error { return handler(srv, decodingStream{stream}) }
}

type decodingStream struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (s decodingStream) RecvMsg(message any) error {
	request := incoming{Message: message.(proto.Message)}
	if err := s.ServerStream.RecvMsg(&request); err != nil {
		return err
	}
	return request.err
}

// maxMore is how many requests of a session may come with another one in one message.
const maxMore = 255

var moreField = (*models.SessionRequest)(nil).ProtoReflect().Descriptor().Fields().ByName("more").Number()

// Takes checks a request before it is decoded, because decoding many empty requests in one message takes fifty times
// their size. It keeps the error.
func (i *incoming) Takes(data []byte) bool {
	if _, ok := i.Message.(*models.SessionRequest); ok && hasMoreThan(data, maxMore) {
		i.err = invalidFields(fieldErrors{{"more", "may have 255 requests, which must not have more themselves"}})
		return false
	}
	return true
}

// hasMoreThan reports whether a session's message has more requests than most, or nested ones.
func hasMoreThan(data []byte, most int) bool {
	for n := 0; len(data) > 0; {
		number, wireType, tag := protowire.ConsumeTag(data)
		if tag < 0 {
			return false // it cannot be decoded
		}
		size := protowire.ConsumeFieldValue(number, wireType, data[tag:])
		if size < 0 {
			return false
		}
		if number == moreField && wireType == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(data[tag:])
			if n++; n > most || hasMoreThan(inner, 0) {
				return true
			}
		}
		data = data[tag+size:]
	}
	return false
}

// Malformed keeps the error of a request that cannot be decoded. It drops all requests of the message.
func (i *incoming) Malformed(data []byte, err error) {
	if request, ok := i.Message.(*models.SessionRequest); ok {
		request.Reset()
	}
	if field := notUTF8(i.ProtoReflect().Descriptor(), data); field != "" {
		i.err = invalidFields(fieldErrors{{field, "is not valid UTF-8"}})
		return
	}
	i.err = status.Error(codes.InvalidArgument, "the request cannot be decoded: "+err.Error())
}

func invalidFields(wrong fieldErrors) error {
	return models.WithInfo(status.New(codes.InvalidArgument, wrong.Error()), models.ReasonInvalidField, nil, wrong.details()...)
}

// notUTF8 returns the path of the first string in a message that is not valid UTF-8, "" if
// there is none.
func notUTF8(message protoreflect.MessageDescriptor, data []byte) string {
	for len(data) > 0 {
		number, wireType, tag := protowire.ConsumeTag(data)
		if tag < 0 {
			return ""
		}
		data = data[tag:]
		size := protowire.ConsumeFieldValue(number, wireType, data)
		if size < 0 {
			return ""
		}
		if field := message.Fields().ByNumber(number); field != nil && wireType == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(data)
			if field.Kind() == protoreflect.StringKind && !utf8.Valid(value) {
				return string(field.Name())
			}
			if field.Message() != nil {
				if inner := notUTF8(field.Message(), value); inner != "" {
					return string(field.Name()) + "." + inner
				}
			}
		}
		data = data[size:]
	}
	return ""
}
