package grpcserver_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestFirstMessage: a stream whose first message does not come ends, before it has a place in any limit. One that has
// sent it lasts.
func TestFirstMessage(t *testing.T) {
	receive := func(_ any, stream grpc.ServerStream) error {
		for {
			if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
				return err
			}
		}
	}
	bubble(t, config{stream: receive}, func(t *testing.T, s *server) {
		for _, conn := range []grpc.ClientConnInterface{s.conn, s.local} {
			for _, c := range []struct {
				name  string
				desc  grpc.StreamDesc
				sends bool
				want  codes.Code // OK for a stream that lasts
			}{
				{"Call", grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, false, codes.DeadlineExceeded},
				{"Down", grpc.StreamDesc{ServerStreams: true}, false, codes.DeadlineExceeded},
				{"Call", grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, true, codes.OK},
			} {
				stream, err := conn.NewStream(t.Context(), &c.desc, "/test.Stream/"+c.name)
				must(t, err)
				if c.sends {
					must(t, stream.SendMsg(&emptypb.Empty{}))
				}
				ended := make(chan error, 1)
				go func() { ended <- stream.RecvMsg(&emptypb.Empty{}) }()
				begin := time.Now()
				select {
				case err := <-ended:
					wantCode(t, err, c.want)
					if took := time.Since(begin); took > 10*time.Second {
						t.Errorf("%s ended after %s", c.name, took)
					}
				case <-time.After(time.Minute):
					if c.want != codes.OK {
						t.Errorf("%s lasts", c.name)
					}
					_ = stream.CloseSend()
					<-ended
				}
			}
		}
		// A single message counts when its sender says that there are no more.
		stream, err := s.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test.Stream/Down")
		must(t, err)
		must(t, stream.SendMsg(&emptypb.Empty{}))
		synctest.Wait()
		wantCode(t, stream.RecvMsg(&emptypb.Empty{}), codes.DeadlineExceeded)
	})
}
