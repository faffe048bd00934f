package grpcserver_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/locket-service/locket/models"
)

var (
	call = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	down = &grpc.StreamDesc{ServerStreams: true}
)

// streaming is a stream of a test, whose handler is a function.
type streaming struct {
	grpc.ClientStream
	cancel context.CancelFunc
}

func (s streaming) send(text string) error { return s.SendMsg(wrapperspb.String(text)) }

// receive returns the next message, or how the stream ended: "EOF" or a code.
func (s streaming) receive() string {
	message := wrapperspb.String("left from before")
	err := s.RecvMsg(message)
	switch {
	case errors.Is(err, io.EOF):
		return "EOF"
	case err != nil:
		return status.Code(err).String() + " " + status.Convert(err).Message()
	}
	return message.GetValue()
}

// all receives until the end.
func (s streaming) all() string {
	var got []string
	for {
		next := s.receive()
		got = append(got, next)
		if next == "EOF" || strings.Contains(next, " ") {
			return strings.Join(got, ", ")
		}
	}
}

// overEachTransport runs a test of a stream over gRPC and in the process: nothing may differ.
func overEachTransport(t *testing.T, desc *grpc.StreamDesc, handler func(stream grpc.ServerStream) error, test func(t *testing.T, s *server, stream streaming)) {
	t.Helper()
	name := map[*grpc.StreamDesc]string{call: "Call", down: "Down"}[desc]
	for _, transport := range []string{"gRPC", "in process"} {
		t.Run(transport, func(t *testing.T) {
			bubble(t, config{stream: func(_ any, stream grpc.ServerStream) error { return handler(stream) }}, func(t *testing.T, s *server) {
				ctx, cancel := context.WithTimeout(withID(t, "the-id"), time.Minute)
				defer cancel()
				stream, err := s.transports()[transport].NewStream(ctx, desc, "/test.Stream/"+name)
				must(t, err)
				test(t, s, streaming{stream, cancel})
			})
		})
	}
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// echo answers each message until the caller sends no more.
func echo(stream grpc.ServerStream) error {
	message := &wrapperspb.StringValue{}
	for {
		err := stream.RecvMsg(message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = stream.SendMsg(message)
		}
		if err != nil {
			return err
		}
		message.Value += " changed after it was sent"
	}
}

func TestBothStream(t *testing.T) {
	overEachTransport(t, call, echo, func(t *testing.T, _ *server, s streaming) {
		message := wrapperspb.String("one")
		must(t, s.SendMsg(message))
		message.Value = "changed after it was sent"
		synctest.Wait()
		want(t, s.receive(), "one")
		must(t, s.send("two"))
		must(t, s.send("three"))
		must(t, s.CloseSend())
		want(t, s.all(), "two, three, EOF")
		want(t, s.receive(), "EOF")
	})
}

// TestServerStreams: messages that were sent before an error are received before it.
func TestServerStreams(t *testing.T) {
	overEachTransport(t, down, func(stream grpc.ServerStream) error {
		var request wrapperspb.StringValue
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		if err := stream.RecvMsg(&wrapperspb.StringValue{}); !errors.Is(err, io.EOF) {
			t.Errorf("after the only request: %v", err)
		}
		for _, text := range []string{"a", "b", request.GetValue()} {
			if err := stream.SendMsg(wrapperspb.String(text)); err != nil {
				return err
			}
		}
		return status.Error(codes.Aborted, "that is all")
	}, func(t *testing.T, _ *server, s streaming) {
		must(t, s.send("c"))
		must(t, s.CloseSend())
		want(t, s.all(), "a, b, c, Aborted that is all")
		must(t, s.CloseSend()) // repeated
	})
}

// TestStreamMetadata: the handler gets the caller's metadata.
func TestStreamMetadata(t *testing.T) {
	overEachTransport(t, call, func(stream grpc.ServerStream) error {
		in, _ := metadata.FromIncomingContext(stream.Context())
		return stream.SendMsg(wrapperspb.String(in.Get("uuid")[0]))
	}, func(t *testing.T, _ *server, s streaming) { want(t, s.all(), "the-id, EOF") })
}

// waits receives until its caller has left, and reports it.
func waits(t *testing.T, ended chan<- error) func(grpc.ServerStream) error {
	return func(stream grpc.ServerStream) error {
		err := stream.RecvMsg(&wrapperspb.StringValue{})
		<-stream.Context().Done() // soon: gRPC's own context ends RecvMsg, before the contexts made from it end
		if sent := stream.SendMsg(wrapperspb.String("too late")); sent == nil {
			t.Error("a message was sent to nobody")
		}
		ended <- err
		return err
	}
}

// TestStreamEndsWithItsCaller: by its cancellation, and by its deadline.
func TestStreamEndsWithItsCaller(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(streaming)
		code codes.Code
	}{
		"canceled": {func(s streaming) { s.cancel() }, codes.Canceled},
		"deadline": {func(streaming) {}, codes.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			overEachTransport(t, call, waits(t, ended), func(t *testing.T, s *server, stream streaming) {
				c.end(stream)
				if got := stream.receive(); !strings.HasPrefix(got, c.code.String()+" ") {
					t.Errorf("the caller: %s", got)
				}
				if err := <-ended; status.Code(err) != codes.Canceled && status.Code(err) != c.code {
					t.Errorf("the handler: %v", err)
				}
				if err := stream.send("x"); !errors.Is(err, io.EOF) {
					t.Errorf("a message after the end: %v", err)
				}
				synctest.Wait()
				time.Sleep(time.Second)
				got := requests(t, s.registry) // gRPC may report a deadline by cancelling the context
				if len(got) != 1 || got["Call Canceled"] != 1 && got["Call "+c.code.String()] != 1 {
					t.Errorf("observed: %v", got)
				}
			})
		})
	}
}

// TestStreamsEndWithTheServer: over each transport, streams end with the error that the server shuts down.
func TestStreamsEndWithTheServer(t *testing.T) {
	ended := make(chan error, 1)
	overEachTransport(t, call, waits(t, ended), func(t *testing.T, s *server, stream streaming) {
		synctest.Wait()
		begin := time.Now()
		s.process.Signal(os.Interrupt)
		if err := stream.RecvMsg(&wrapperspb.StringValue{}); status.Code(err) != codes.Unavailable || models.ReasonOf(err) != models.ReasonShuttingDown {
			t.Errorf("the caller: %v", err)
		}
		<-ended
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestStreamIsFull: a side that sends faster than the other receives blocks after a few large messages, and still learns of the end.
func TestStreamIsFull(t *testing.T) {
	large := strings.Repeat("x", 100<<10)
	overEachTransport(t, call, func(stream grpc.ServerStream) error {
		<-stream.Context().Done()
		return nil
	}, func(t *testing.T, _ *server, s streaming) {
		sent := 0
		full := make(chan error)
		go func() {
			var err error
			for ; err == nil && sent < 1000; sent++ {
				err = s.send(large)
			}
			full <- err
		}()
		synctest.Wait()
		s.cancel()
		if err := <-full; err == nil || sent > 10 {
			t.Errorf("%d messages were sent to who receives none: %v", sent, err)
		}
	})
	const many = 500
	overEachTransport(t, down, func(stream grpc.ServerStream) error {
		for range many {
			if err := stream.SendMsg(wrapperspb.String("m")); err != nil {
				return err
			}
		}
		return nil
	}, func(t *testing.T, _ *server, s streaming) {
		synctest.Wait()
		want(t, s.all(), strings.Repeat("m, ", many)+"EOF")
	})
}
