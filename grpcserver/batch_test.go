package grpcserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

// TestCheckTogether: guards see each of the requests of a session that come in one message, and a handler gets the allowed ones, whole.
func TestCheckTogether(t *testing.T) {
	guard := func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		call.Check(func(message any) error {
			if request, ok := message.(*models.SessionRequest); ok && strings.Contains(request.GetLock().GetResource(), "forbidden") {
				return status.Error(codes.PermissionDenied, "forbidden")
			}
			return nil
		})
		return next(ctx)
	}
	sent := []*models.SessionRequest{full(1), full(2), full(3), full(4)}
	sent[1].Command = &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: "forbidden"}}
	sent[2].Command = &models.SessionRequest_Unlock{Unlock: &models.UnlockCommand{Resource: "k"}}
	var got []*models.SessionRequest
	bubble(t, config{guards: []grpcserver.Guard{guard}, stream: func(_ any, stream grpc.ServerStream) error {
		for {
			request := new(models.SessionRequest)
			switch err := stream.RecvMsg(request); status.Code(err) {
			case codes.OK, codes.PermissionDenied:
				got = append(got, request)
				if (err != nil) != (request.GetSequence() == 2) {
					t.Errorf("%v: %v", request, err)
				}
			default:
				return nil
			}
		}
	}}, func(t *testing.T, s *server) {
		for transport, conn := range s.transports() {
			got = nil
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Stream/Call")
			must(t, err)
			first := proto.CloneOf(sent[0])
			first.More = sent[1:]
			must(t, stream.SendMsg(first))
			must(t, stream.SendMsg(full(5)))
			must(t, stream.CloseSend())
			_ = stream.RecvMsg(new(models.SessionResponse))
			want := append(sent[:4:4], full(5))
			if len(got) != len(want) {
				t.Fatalf("%s: %d requests came, of %d", transport, len(got), len(want))
			}
			for i := range want {
				if !proto.Equal(got[i], want[i]) {
					t.Errorf("%s: %v came, want %v", transport, got[i], want[i])
				}
			}
		}
	})
}

// full returns a request with every possible field, except more.
func full(sequence uint64) *models.SessionRequest {
	request := &models.SessionRequest{Sequence: sequence}
	fields := request.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		switch field := fields.Get(i); {
		case field.Kind() == protoreflect.StringKind:
			request.ProtoReflect().Set(field, protoreflect.ValueOfString(fmt.Sprint("text ", sequence)))
		case field.ContainingOneof() != nil:
			request.Command = &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: fmt.Sprint("resource ", sequence)}}
		case field.Name() == "sequence", field.Name() == "more":
		default:
			panic(fmt.Sprintf("the test sets no %s", field.Name()))
		}
	}
	return request
}
