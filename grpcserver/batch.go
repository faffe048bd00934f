package grpcserver

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

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
