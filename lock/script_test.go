package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
)

// script is a server of sessions that does what a test says, message by message: for what the real one
// cannot be made to do at will, such as late news.
type script struct {
	models.UnimplementedLocketServer
	t        *testing.T
	listener *bufconn.Listener
	streams  chan *scriptStream
}

// scriptStream is one stream, from the server's side.
type scriptStream struct {
	t    *testing.T
	s    grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]
	in   chan *models.SessionRequest
	end  chan error
	open *models.OpenSession
	seq  uint64 // of the opening
}

// scripted runs a test in a bubble, with a script.
func scripted(t *testing.T, test func(t *testing.T, s *script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, listener: bufconn.Listen(1 << 20), streams: make(chan *scriptStream, 16)}
		server := grpc.NewServer()
		models.RegisterLocketServer(server, s)
		served := make(chan error)
		go func() { served <- server.Serve(s.listener) }()
		test(t, s)
		server.Stop()
		must(t, <-served)
		time.Sleep(time.Minute)
	})
}

// Session implements models.LocketServer.
func (s *script) Session(stream grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]) error {
	st := &scriptStream{t: s.t, s: stream, in: make(chan *models.SessionRequest, 1024), end: make(chan error, 1)}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	st.open, st.seq = first.GetOpen(), first.GetSequence()
	s.streams <- st
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				close(st.in)
				return
			}
			st.in <- m
		}
	}()
	select {
	case err := <-st.end:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

func (s *script) dialer() lock.ClientOption {
	return lock.WithDial(conn.WithDialOptions(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) })))
}

// session returns a session of the client under test.
func (s *script) session(options ...lock.ClientOption) *lock.Session {
	s.t.Helper()
	session, err := lock.NewSession([]string{"127.0.0.1:1"}, append(options, s.dialer())...)
	must(s.t, err)
	return session
}

// accept returns the next stream, before its opening is answered.
func (s *script) accept() *scriptStream {
	s.t.Helper()
	select {
	case st := <-s.streams:
		return st
	case <-time.After(time.Minute):
		s.t.Fatal("no stream comes")
		return nil
	}
}

// attach accepts the next stream, with what the session holds.
func (s *script) attach(snapshot ...*models.SessionStatus) *scriptStream {
	s.t.Helper()
	st := s.accept()
	for _, status := range snapshot {
		st.send(&models.SessionResponse{Sequence: st.seq, Event: &models.SessionResponse_Status{Status: status}})
	}
	st.send(&models.SessionResponse{Sequence: st.seq, Event: &models.SessionResponse_Opened{Opened: &models.SessionOpened{Id: st.open.GetId(), Resumed: st.open.GetResume(), Ttl: st.open.GetTtl()}}})
	return st
}

func (st *scriptStream) send(m *models.SessionResponse) {
	st.t.Helper()
	must(st.t, st.s.Send(m))
}

// answer sends a status; with sequence 0 it is news.
func (st *scriptStream) answer(sequence uint64, status *models.SessionStatus) {
	st.t.Helper()
	st.send(&models.SessionResponse{Sequence: sequence, Event: &models.SessionResponse_Status{Status: status}})
}

// next returns the next request that is no heartbeat; heartbeats are answered.
func (st *scriptStream) next() *models.SessionRequest {
	st.t.Helper()
	for {
		m := st.raw()
		if m.GetHeartbeat() == nil {
			return m
		}
		st.beat(m)
	}
}

func (st *scriptStream) beat(m *models.SessionRequest) {
	st.t.Helper()
	st.send(&models.SessionResponse{Sequence: m.GetSequence(), Event: &models.SessionResponse_Heartbeat{Heartbeat: &models.Heartbeat{}}})
}

// raw returns the next request.
func (st *scriptStream) raw() *models.SessionRequest {
	st.t.Helper()
	select {
	case m, ok := <-st.in:
		if !ok {
			st.t.Fatal("the stream has ended")
		}
		return m
	case <-time.After(time.Minute):
		st.t.Fatal("no request comes")
		return nil
	}
}

// serve answers heartbeats until the stream ends.
func (st *scriptStream) serve() {
	for m := range st.in {
		if m.GetHeartbeat() != nil {
			_ = st.s.Send(&models.SessionResponse{Sequence: m.GetSequence(), Event: &models.SessionResponse_Heartbeat{Heartbeat: &models.Heartbeat{}}})
		}
		if m.GetClose() != nil {
			_ = st.s.Send(&models.SessionResponse{Sequence: m.GetSequence(), Event: &models.SessionResponse_Done{Done: &models.Done{}}})
		}
	}
}

// holds is the status of a resource that the session holds.
func holds(resource string, token, version uint64) *models.SessionStatus {
	return &models.SessionStatus{Resource: resource, Current: models.Holding_HOLDING_HELD, Token: token, Version: version, Claim: fmt.Sprint("claim-", token), Status: models.Status_STATUS_ACTIVE}
}

func ended(resource string, token, version uint64, status models.Status) *models.SessionStatus {
	return &models.SessionStatus{Resource: resource, Current: models.Holding_HOLDING_NONE, Version: version, Claim: fmt.Sprint("claim-", token), Status: status}
}

// lines notes what a listener hears.
func lines(d *diary) func(lock.Status) {
	return func(s lock.Status) {
		text := fmt.Sprintf("%s %s-%s", s.Resource, s.Previous, s.Current)
		if errors.Is(s.Cause, lock.ErrLost) {
			text += " lost"
		}
		d.note("%s", text)
	}
}

// TestSessionLateNews: news that come after later ones, or twice, change nothing, and a listener hears each
// step once.
func TestSessionLateNews(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session()
		var heard diary
		session.Listen(lines(&heard))
		st := s.attach()
		st.beat(st.raw())
		go func() {
			_, err := session.Lock(t.Context(), "k")
			must(t, err)
		}()
		asked := st.next()
		st.answer(0, holds("k", 5, 5)) // the news first
		st.answer(asked.GetSequence(), holds("k", 5, 5))
		st.answer(0, ended("k", 5, 6, models.Status_STATUS_REVOKED))
		st.answer(0, holds("k", 5, 5)) // late
		st.answer(0, ended("k", 5, 6, models.Status_STATUS_REVOKED))
		synctest.Wait()
		heard.says(t, "k NONE-HOLDING, k HOLDING-NONE lost")
		if got := session.Status("k"); got.Current != lock.None {
			t.Errorf("%+v", got)
		}
		go st.serve()
		must(t, session.Close(t.Context()))
	})
}
