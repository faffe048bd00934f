package harness

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// The states of a session for a resource.
const (
	None    = models.Holding_HOLDING_NONE
	Waiting = models.Holding_HOLDING_WAITING
	Held    = models.Holding_HOLDING_HELD
)

// Session is a stream of a session, message by message.
type Session struct {
	grpc.BidiStreamingClient[models.SessionRequest, models.SessionResponse]
	t *testing.T
	// ID is the id of the session.
	ID       string
	sequence uint64
	// BreakOff ends the stream as a client that dies does.
	BreakOff context.CancelFunc
	sending  sync.Mutex
	// responses gets the messages from the server. It is closed with the stream; Err then has the error.
	responses chan *models.SessionResponse
	Err       error
	// Events are the events that came before an awaited answer.
	Events []*models.SessionStatus
	// Rest are the messages that came before the end, in Ends.
	Rest []*models.SessionResponse
	// Messages counts the messages from the server; each may have several responses.
	Messages atomic.Int64
}

// SessionSecret is the secret of all sessions of OpenRequest.
const SessionSecret = "a secret that nobody knows"

// SessionID returns the id of a session with a name.
func SessionID(name string) string { return "session-" + name + "-0123456789" }

// ClientAt returns a client of the server at an address.
func ClientAt(t *testing.T, address string) models.LocketClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return models.NewLocketClient(conn)
}

// DialSession opens a stream without sending anything.
func DialSession(t *testing.T, client models.LocketClient) *Session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	st, err := client.Session(ctx)
	Must(t, err)
	s := &Session{BidiStreamingClient: st, t: t, BreakOff: cancel, responses: make(chan *models.SessionResponse, 1000)}
	go func() {
		defer close(s.responses)
		for {
			message, err := st.Recv()
			if err != nil {
				s.Err = err
				return
			}
			s.Messages.Add(1)
			for _, response := range append([]*models.SessionResponse{message}, message.GetMore()...) {
				if response.GetSequence() != aliveSequence {
					s.responses <- response
				}
			}
		}
	}()
	t.Cleanup(cancel)
	return s
}

// Open opens a session, and returns its claims.
func (s *Session) Open(name string, more ...func(*models.OpenSession)) []*models.SessionStatus {
	s.t.Helper()
	s.ID = SessionID(name)
	request := OpenRequest(name, more...)
	open, sequence := request.GetOpen(), s.Ask(request)
	var had []*models.SessionStatus
	for {
		response := s.Next()
		switch {
		case response.GetSequence() != sequence:
			s.t.Fatalf("got %v", response)
		case response.GetStatus() != nil:
			had = append(had, response.GetStatus())
		case response.GetOpened().GetId() != s.ID || response.GetOpened().GetTtl() != open.GetTtl():
			s.t.Fatalf("opened: %v", response)
		case response.GetOpened().GetResumed() != open.GetResume(), !response.GetOpened().GetBatches():
			s.t.Fatalf("opened: %v", response)
		default:
			return had
		}
	}
}

// OpenRequest opens a session with a name, and a TTL of 10 seconds.
func OpenRequest(name string, more ...func(*models.OpenSession)) *models.SessionRequest {
	open := &models.OpenSession{Id: SessionID(name), Secret: SessionSecret, Owner: name, Ttl: 10, Batches: true}
	for _, change := range more {
		change(open)
	}
	return &models.SessionRequest{Command: &models.SessionRequest_Open{Open: open}}
}

// Resume resumes a session.
func Resume(open *models.OpenSession) { open.Resume = true }

// SessionTTL sets the TTL.
func SessionTTL(seconds float64) func(*models.OpenSession) {
	return func(open *models.OpenSession) { open.Ttl = seconds }
}

// Ask sends a message with the next sequence number.
func (s *Session) Ask(request *models.SessionRequest) uint64 {
	s.t.Helper()
	s.sequence++
	request.Sequence = s.sequence
	Must(s.t, s.Send(request))
	return s.sequence
}

// AskTogether sends requests with the next sequence numbers in one message. It returns the first of these numbers.
func (s *Session) AskTogether(requests ...*models.SessionRequest) uint64 {
	s.t.Helper()
	for i, request := range requests {
		request.Sequence = s.sequence + 1 + uint64(i)
	}
	s.sequence += uint64(len(requests))
	requests[0].More = requests[1:]
	Must(s.t, s.Send(requests[0]))
	return requests[0].GetSequence()
}

// Answers returns the answers to requests with consecutive sequence numbers, and keeps the events that come before the last of them.
func (s *Session) Answers(first uint64, n int) []*models.SessionResponse {
	s.t.Helper()
	answers := make([]*models.SessionResponse, n)
	for left := n; left > 0; {
		response := s.Next()
		switch at := response.GetSequence() - first; {
		case response.GetSequence() == 0:
			s.Events = append(s.Events, response.GetStatus())
		case at >= uint64(n), answers[at] != nil:
			s.t.Fatalf("got %v while waiting for the answers to %d and %d more", response, first, n-1)
		default:
			answers[at] = response
			left--
		}
	}
	return answers
}

// Next returns the next message from the server.
func (s *Session) Next() *models.SessionResponse {
	s.t.Helper()
	select {
	case response, more := <-s.responses:
		if !more {
			s.t.Fatalf("the stream has ended: %v", s.Err)
		}
		return response
	case <-time.After(HangTimeout):
		s.t.Fatal("nothing came")
	}
	return nil
}

// Answer returns the answer to a message, and keeps the events that come before it.
func (s *Session) Answer(sequence uint64) *models.SessionResponse {
	s.t.Helper()
	for {
		response := s.Next()
		if response.GetSequence() == sequence {
			return response
		}
		if response.GetSequence() != 0 || response.GetStatus() == nil {
			s.t.Fatalf("got %v while waiting for the answer to %d", response, sequence)
		}
		s.Events = append(s.Events, response.GetStatus())
	}
}

// LockCommand locks a resource exclusively, unless it is changed.
func LockCommand(resource string, more ...func(*models.LockCommand)) *models.SessionRequest {
	lock := &models.LockCommand{Resource: resource}
	for _, change := range more {
		change(lock)
	}
	return &models.SessionRequest{Command: &models.SessionRequest_Lock{Lock: lock}}
}

// Try makes a LOCK a TRY_LOCK.
func Try(lock *models.LockCommand) { lock.Try = true }

// Shared makes a LOCK shared.
func Shared(lock *models.LockCommand) { lock.Mode = models.Mode_MODE_SHARED }

// UnlockCommand gives a resource up.
func UnlockCommand(resource string) *models.SessionRequest {
	return &models.SessionRequest{Command: &models.SessionRequest_Unlock{Unlock: &models.UnlockCommand{Resource: resource}}}
}

// Lock sends LOCK, and checks the state of the session after that.
func (s *Session) Lock(resource string, want models.Holding, more ...func(*models.LockCommand)) *models.SessionStatus {
	s.t.Helper()
	return s.Stands(s.Answer(s.Ask(LockCommand(resource, more...))), resource, want)
}

// CloseCircle sends LOCK for a resource that the session must wait for, as the youngest claim of a deadlock, and checks that the
// claim is aborted with these members, by their sessions and claims.
func (s *Session) CloseCircle(resource string, members ...string) {
	s.t.Helper()
	time.Sleep(time.Millisecond) // real time: of claims that join at the same time, the one with the last id is aborted
	s.Lock(resource, models.Holding_HOLDING_WAITING)
	got := s.Hears(resource, models.Holding_HOLDING_WAITING, models.Holding_HOLDING_NONE)
	if e := got.GetError(); codes.Code(e.GetCode()) != codes.Aborted || e.GetReason() != models.ReasonDeadlock || got.GetStatus() != models.Status_STATUS_ABORTED {
		s.t.Fatalf("%s: got %v, want a deadlock", s.ID, got)
	}
	for _, member := range members {
		if !strings.Contains(got.GetError().GetMetadata()[models.DeadlockKey], member) {
			s.t.Errorf("%s: the deadlock is %v, without %s", s.ID, got.GetError().GetMetadata(), member)
		}
	}
}

// Unlock sends UNLOCK, and checks that it is carried out.
func (s *Session) Unlock(resource string) *models.SessionStatus {
	s.t.Helper()
	return s.Stands(s.Answer(s.Ask(UnlockCommand(resource))), resource, None)
}

// Stands checks the session's state for a resource in an answer.
func (s *Session) Stands(response *models.SessionResponse, resource string, want models.Holding) *models.SessionStatus {
	s.t.Helper()
	got := response.GetStatus()
	if got.GetResource() != resource || got.GetCurrent() != want || (want == Held) != (got.GetToken() != 0) {
		s.t.Fatalf("%s: got %v, want %s of %s", s.ID, response, want, resource)
	}
	return got
}

// UnlockAll sends UNLOCK_ALL. The events of each resource come before its answer.
func (s *Session) UnlockAll() {
	s.t.Helper()
	s.Done(s.Ask(&models.SessionRequest{Command: &models.SessionRequest_UnlockAll{UnlockAll: &models.UnlockAllCommand{}}}))
}

// Close closes the session, and checks that the stream then ends.
func (s *Session) Close() {
	s.t.Helper()
	s.Done(s.Ask(&models.SessionRequest{Command: &models.SessionRequest_Close{Close: &models.CloseSession{}}}))
	s.Ends(codes.OK, "")
}

// Done checks that a command has been carried out.
func (s *Session) Done(sequence uint64) {
	s.t.Helper()
	if response := s.Answer(sequence); response.GetDone() == nil {
		s.t.Fatalf("got %v", response)
	}
}

// Heartbeat sends a heartbeat, and waits for its answer.
func (s *Session) Heartbeat() {
	s.t.Helper()
	if response := s.Answer(s.Ask(HeartbeatCommand())); response.GetHeartbeat() == nil {
		s.t.Fatalf("got %v", response)
	}
}

// HeartbeatCommand returns a heartbeat.
func HeartbeatCommand() *models.SessionRequest {
	return &models.SessionRequest{Command: &models.SessionRequest_Heartbeat{Heartbeat: &models.Heartbeat{}}}
}

// Hears checks the next event.
func (s *Session) Hears(resource string, previous, current models.Holding) *models.SessionStatus {
	s.t.Helper()
	if len(s.Events) == 0 {
		s.Events = append(s.Events, s.Next().GetStatus())
	}
	got := s.Events[0]
	s.Events = s.Events[1:]
	if got.GetResource() != resource || got.GetPrevious() != previous || got.GetCurrent() != current || (current == Held) != (got.GetToken() != 0) {
		s.t.Fatalf("%s heard %v, want %s after %s of %s", s.ID, got, current, previous, resource)
	}
	return got
}

// HearsAll is Hears for several resources, in any order: the changes of one transaction have no order.
func (s *Session) HearsAll(previous, current models.Holding, resources ...string) {
	s.t.Helper()
	for left := slices.Clone(resources); len(left) > 0; {
		if len(s.Events) == 0 {
			s.Events = append(s.Events, s.Next().GetStatus())
		}
		heard := s.Events[0].GetResource()
		if !slices.Contains(left, heard) {
			heard = left[0]
		}
		s.Hears(heard, previous, current)
		left = slices.DeleteFunc(left, func(resource string) bool { return resource == heard })
	}
}

// Heard waits for an event, which Hears checks, and reports whether one came in time.
func (s *Session) Heard(timeout time.Duration) bool {
	if len(s.Events) > 0 {
		return true
	}
	select {
	case response, more := <-s.responses:
		if more {
			s.Events = append(s.Events, response.GetStatus())
		}
		return more
	case <-time.After(timeout): // real time: the caller asks again
		return false
	}
}

// Quiet checks that nothing has come.
func (s *Session) Quiet() {
	s.t.Helper()
	if len(s.Events) > 0 {
		s.t.Fatalf("%s heard %v", s.ID, s.Events)
	}
	select {
	case response := <-s.responses:
		s.t.Fatalf("%s heard %v", s.ID, response)
	default:
	}
}

// Ends checks how the stream ends, after the messages that have come.
func (s *Session) Ends(code codes.Code, reason string) {
	s.t.Helper()
	if err := s.end(); status.Code(err) != code || models.ReasonOf(err) != reason {
		s.t.Fatalf("the stream ended with %v (%s), want %s %s", err, models.ReasonOf(err), code, reason)
	}
}

// EndsFor checks that the stream ends for one of several reasons, whichever the server finds first.
func (s *Session) EndsFor(reasons ...string) {
	s.t.Helper()
	if err := s.end(); !slices.Contains(reasons, models.ReasonOf(err)) {
		s.t.Fatalf("the stream ended with %v (%s), want one of %q", err, models.ReasonOf(err), reasons)
	}
}

// end returns the error that ended the stream, nil if there was none.
func (s *Session) end() error {
	s.t.Helper()
	for {
		select {
		case response, more := <-s.responses:
			if more {
				s.Rest = append(s.Rest, response)
				continue
			}
		case <-time.After(HangTimeout):
			s.t.Fatal("the stream goes on")
		}
		break
	}
	if s.Err.Error() == "EOF" {
		return nil
	}
	return s.Err
}

// aliveSequence is the sequence number of the heartbeats of KeepAlive, whose answers are ignored.
const aliveSequence = 1 << 40

// KeepAlive sends heartbeats until the stream ends.
func (s *Session) KeepAlive() {
	go func() {
		for s.Send(&models.SessionRequest{Sequence: aliveSequence, Command: HeartbeatCommand().GetCommand()}) == nil {
			select {
			case <-s.Context().Done():
				return
			case <-time.After(time.Second): // real time: between two heartbeats
			}
		}
	}()
}

// Send sends a message. Several goroutines may call it.
func (s *Session) Send(request *models.SessionRequest) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.BidiStreamingClient.Send(request)
}
