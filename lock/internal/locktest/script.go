package locktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/locket-service/locket/models"
)

// Script is a server that a test scripts, message by message, for cases that a real server does not produce on
// demand.
type Script struct {
	models.UnimplementedLocketServer
	t testing.TB
	// answer answers the unary calls.
	answer  func(ctx context.Context, method string, request any) (any, error)
	watches chan *Watch
	// Streams are the streams of sessions that nobody has accepted yet.
	Streams chan *Stream

	mu       sync.Mutex
	calls    map[string]int
	accepted []*Stream
	finish   sync.Once
}

// Serve starts a Script at a listener. It ends with the test. A function answers the unary calls.
func Serve(t testing.TB, listener net.Listener, answer func(ctx context.Context, method string, request any) (any, error), options ...grpc.ServerOption) (*Script, *grpc.Server) {
	s := &Script{t: t, answer: answer, watches: make(chan *Watch, 16), Streams: make(chan *Stream, 16), calls: make(map[string]int)}
	server := grpc.NewServer(append(options, grpc.WaitForHandlers(true), grpc.ChainUnaryInterceptor(s.unary))...)
	models.RegisterLocketServer(server, s)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("the server ended: %v", err)
		}
	})
	return s, server
}

func (s *Script) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	s.mu.Lock()
	s.calls[method]++
	s.mu.Unlock()
	return s.answer(ctx, method, request)
}

// Calls returns the number of calls of a unary method.
func (s *Script) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// Watch is one call of Watch. Messages in Out are sent to the client; an error in it ends the call.
type Watch struct {
	Cursor string
	Out    chan any
}

// Watch implements models.LocketServer.
func (s *Script) Watch(request *models.WatchRequest, stream grpc.ServerStreamingServer[models.WatchResponse]) error {
	w := &Watch{request.GetCursor(), make(chan any)}
	s.watches <- w
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case m := <-w.Out:
			if err, failed := m.(error); failed {
				return err
			}
			if err := stream.Send(m.(*models.WatchResponse)); err != nil {
				return err
			}
		}
	}
}

// NextWatch returns the next watch. It fails the test unless that continues at a cursor.
func (s *Script) NextWatch(cursor string) *Watch {
	s.t.Helper()
	w := <-s.watches
	if w.Cursor != cursor {
		s.t.Errorf("it goes on at %q, not %q", w.Cursor, cursor)
	}
	return w
}

// Stream is one stream of a session, from the server's side.
type Stream struct {
	// Opening is the first request, Requests gets those after it. An error in End ends the stream.
	Opening  *models.SessionRequest
	Requests chan *models.SessionRequest
	End      chan error
	// Batches is sent before Opened: the server accepts several requests in one message.
	Batches bool

	mu    sync.Mutex
	sizes []int // of the messages after the first

	t      testing.TB
	stream grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]
}

// Session implements models.LocketServer.
func (s *Script) Session(stream grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	st := &Stream{Opening: first, Requests: make(chan *models.SessionRequest, 1024), End: make(chan error, 1), t: s.t, stream: stream}
	s.Streams <- st
	go func() {
		defer close(st.Requests)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			all := append([]*models.SessionRequest{m}, m.GetMore()...)
			st.mu.Lock()
			st.sizes = append(st.sizes, len(all))
			st.mu.Unlock()
			for _, request := range all {
				st.Requests <- request
			}
		}
	}()
	select {
	case err := <-st.End:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

// Sizes returns how many requests each message after the first had.
func (st *Stream) Sizes() []int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(st.sizes)
}

// Accept returns the next stream of a session, before its opening is answered.
func (s *Script) Accept() *Stream {
	s.t.Helper()
	st := next(s.t, s.Streams, "stream")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted = append(s.accepted, st)
	return st
}

// Attach accepts the next stream of a session, and reports what the session holds.
func (s *Script) Attach(snapshot ...*models.SessionStatus) *Stream {
	s.t.Helper()
	st := s.Accept()
	for _, status := range snapshot {
		st.Answer(st.Opening, status)
	}
	st.Opened()
	return st
}

// Finish answers the last requests of sessions: heartbeats and closing. The test accepts no further streams.
func (s *Script) Finish() {
	s.finish.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, st := range s.accepted {
			go st.serve()
		}
		go s.attachAll()
	})
}

func (s *Script) attachAll() {
	for {
		select {
		case st := <-s.Streams:
			_ = st.stream.Send(st.opened())
			go st.serve()
		case <-time.After(time.Minute): // real time: no more of them come
			return
		}
	}
}

func (st *Stream) serve() {
	for m := range st.Requests {
		switch {
		case m.GetHeartbeat() != nil:
			_ = st.stream.Send(heartbeat(m))
		case m.GetClose() != nil:
			_ = st.stream.Send(&models.SessionResponse{Sequence: m.GetSequence(), Event: &models.SessionResponse_Done{Done: &models.Done{}}})
		}
	}
}

func heartbeat(m *models.SessionRequest) *models.SessionResponse {
	return &models.SessionResponse{Sequence: m.GetSequence(), Event: &models.SessionResponse_Heartbeat{Heartbeat: &models.Heartbeat{}}}
}

// Send sends a message.
func (st *Stream) Send(m *models.SessionResponse) {
	st.t.Helper()
	if err := st.stream.Send(m); err != nil {
		st.t.Fatal(err)
	}
}

// Opened answers the opening.
func (st *Stream) Opened() {
	st.t.Helper()
	st.Send(st.opened())
}

func (st *Stream) opened() *models.SessionResponse {
	open := st.Opening.GetOpen()
	return &models.SessionResponse{Sequence: st.Opening.GetSequence(), Event: &models.SessionResponse_Opened{
		Opened: &models.SessionOpened{Id: open.GetId(), Resumed: open.GetResume(), Ttl: open.GetTtl(), Batches: st.Batches},
	}}
}

// Answer sends a status as the answer to a request; for nil, as an event.
func (st *Stream) Answer(request *models.SessionRequest, status *models.SessionStatus) {
	st.t.Helper()
	st.Send(&models.SessionResponse{Sequence: request.GetSequence(), Event: &models.SessionResponse_Status{Status: status}})
}

// Beat answers a heartbeat.
func (st *Stream) Beat(m *models.SessionRequest) {
	st.t.Helper()
	st.Send(heartbeat(m))
}

// Next returns the next request except heartbeats, which it answers.
func (st *Stream) Next() *models.SessionRequest {
	st.t.Helper()
	for {
		m := st.Raw()
		if m.GetHeartbeat() == nil {
			return m
		}
		st.Beat(m)
	}
}

// Raw returns the next request.
func (st *Stream) Raw() *models.SessionRequest {
	st.t.Helper()
	return next(st.t, st.Requests, "request")
}

// next returns the next value of a channel.
func next[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case got, ok := <-from:
		if ok {
			return got
		}
	case <-time.After(2 * time.Minute): // real time: for a test that hangs
	}
	t.Fatalf("no %s comes", what)
	panic("unreachable")
}

// Holds is the status of a resource that a session holds.
func Holds(resource string, token, version uint64) *models.SessionStatus {
	return &models.SessionStatus{
		Resource: resource, Current: models.Holding_HOLDING_HELD, Token: token, Version: version, Claim: fmt.Sprint("claim-", token), Status: models.Status_STATUS_ACTIVE,
	}
}

// Ended is the status of a resource whose claim has ended.
func Ended(resource string, token, version uint64, status models.Status) *models.SessionStatus {
	return &models.SessionStatus{Resource: resource, Current: models.Holding_HOLDING_NONE, Version: version, Claim: fmt.Sprint("claim-", token), Status: status}
}
