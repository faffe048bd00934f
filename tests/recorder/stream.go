package recorder

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/history"
)

// stream records the streams of sessions and the watches.
func (r *Recorder) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		return stream, err
	}
	switch method {
	case models.Locket_Session_FullMethodName:
		return &sessionTap{ClientStream: stream, recorder: r, sent: make(map[uint64]command), said: make(map[saying]bool)}, nil
	case models.Locket_Watch_FullMethodName:
		return &watchTap{ClientStream: stream, recorder: r}, nil
	}
	return stream, nil
}

// session records a session over all its streams.
type session struct {
	owner string
	ttl   time.Duration
	// asked are the resources that it asked for.
	asked map[string]bool
}

// sessionTap records one stream of a session.
type sessionTap struct {
	grpc.ClientStream
	recorder *Recorder
	id       string
	*session
	sent map[uint64]command // by the sequence: those without an answer
	told *history.Stream
	said map[saying]bool // by report
}

// saying is how a claim once was.
type saying struct {
	claim   string
	version uint64
}

// command is a message that was sent.
type command struct {
	at      int64
	told    int // how much had been reported then
	request *models.SessionRequest
}

// SendMsg implements grpc.ClientStream.
func (s *sessionTap) SendMsg(m any) error {
	first := m.(*models.SessionRequest)
	s.recorder.mu.Lock()
	s.ask(first)
	for _, request := range first.GetMore() {
		s.ask(request)
	}
	s.recorder.mu.Unlock()
	return s.ClientStream.SendMsg(m)
}

func (s *sessionTap) ask(request *models.SessionRequest) {
	if open := request.GetOpen(); open != nil {
		s.open(open)
	}
	c := command{at: s.recorder.now(), told: len(s.told.Reports), request: request}
	if resource := request.GetLock().GetResource(); resource != "" {
		s.asked[resource] = true
	}
	s.sent[request.GetSequence()] = c
}

func (s *sessionTap) open(open *models.OpenSession) {
	s.id = open.GetId()
	known := s.recorder.sessions[s.id]
	if known == nil {
		known = &session{owner: cmp.Or(open.GetOwner(), s.id), ttl: seconds(open.GetTtl()), asked: make(map[string]bool)}
		s.recorder.sessions[s.id] = known
	}
	s.session = known
	s.told = &history.Stream{Session: s.id}
	s.recorder.streams, s.recorder.taps = append(s.recorder.streams, s.told), append(s.recorder.taps, s)
}

// RecvMsg implements grpc.ClientStream.
func (s *sessionTap) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	if err != nil {
		s.end()
		return err
	}
	first := m.(*models.SessionResponse)
	s.take(first)
	for _, response := range first.GetMore() {
		s.take(response)
	}
	return nil
}

func (s *sessionTap) take(response *models.SessionResponse) {
	c, answers := s.sent[response.GetSequence()]
	switch {
	case !answers:
		s.hear(response.GetStatus(), false)
		return
	case c.request.GetOpen() != nil && response.GetStatus() != nil:
		had := toldOf(response.GetStatus(), false)
		s.told.Had = append(s.told.Had, had)
		s.said[saying{had.Claim, had.Version}] = true
		return
	}
	delete(s.sent, response.GetSequence())
	switch {
	case response.GetOpened() != nil:
		s.told.Resumed = response.GetOpened().GetResumed()
		s.recorder.note(c.at, history.Opened(s.id, s.ttl), history.Output{})
	case response.GetHeartbeat() != nil:
		s.recorder.note(c.at, history.Heartbeat(s.id, s.ttl), history.Output{})
	case response.GetStatus() != nil:
		s.answer(c, response.GetStatus())
		if response.GetStatus().GetRenewed() { // which has the effect of a heartbeat
			s.recorder.note(c.at, history.Heartbeat(s.id, s.ttl), history.Output{})
		}
	case response.GetDone() != nil:
		s.done(c)
	case response.GetError() != nil:
		s.unanswered(c)
	}
}

// hear notes a report, and returns whether it was reported before.
func (s *sessionTap) hear(status *models.SessionStatus, answer bool) (again bool) {
	t := toldOf(status, answer)
	s.told.Reports = append(s.told.Reports, t)
	it := saying{t.Claim, t.Version}
	again = s.said[it] && t.Claim != ""
	s.said[it] = true
	return again
}

// answer notes the answer to LOCK or UNLOCK. An event may have reported a command's change before its answer. A LOCK
// that changed nothing repeats an earlier report, which counts once.
func (s *sessionTap) answer(c command, status *models.SessionStatus) {
	again := s.hear(status, true)
	request, out := s.requestOf(c), history.Output{Status: claim.Status(status.GetStatus()), Token: status.GetToken(), Version: status.GetVersion()}
	none := status.GetCurrent() == models.Holding_HOLDING_NONE
	switch lock := c.request.GetLock() != nil; {
	case lock && none && (!c.request.GetLock().GetTry() || s.ended(c, status.GetResource())): // its claim had ended before the answer was sent
		out = history.Output{Unknown: true}
	case lock && none:
		out = history.Output{Refused: history.Collision, Holder: status.GetHolder(), Token: status.GetHolderToken()}
	case lock && again:
		i := slices.IndexFunc(s.told.Reports[c.told:], func(t history.Report) bool {
			return t.Resource == status.GetResource() && !t.Answer && t.Before == 0 && t.After != 0
		})
		if i < 0 {
			return
		}
		t := s.told.Reports[c.told+i]
		out = history.Output{Status: t.After, Token: t.Token, Version: t.Version}
	case !lock && !none:
		return
	case !lock && status.GetVersion() == 0:
		out = history.Output{None: true}
	case !lock:
		out = history.Output{Version: status.GetVersion()}
	}
	s.recorder.note(c.at, request, out)
}

// ended returns whether the end of a claim of a resource was reported since a command was sent.
func (s *sessionTap) ended(c command, resource string) bool {
	return slices.ContainsFunc(s.told.Reports[c.told:], func(t history.Report) bool {
		return t.Resource == resource && !t.Answer && t.Claim != "" && t.After == 0
	})
}

// done notes the answer to UNLOCK_ALL or CLOSE. The changes of each resource were reported before.
func (s *sessionTap) done(c command) {
	for resource := range s.asked {
		out := history.Output{None: true}
		for _, t := range s.told.Reports[c.told:] {
			if t.Resource == resource && t.Claim != "" && t.After == 0 {
				out = history.Output{Version: t.Version}
			}
		}
		if c.request.GetClose() != nil {
			s.recorder.note(c.at, history.Close(resource, s.id), out)
		} else {
			s.recorder.note(c.at, history.UnlockAll(resource, s.id), out)
		}
	}
	if c.request.GetClose() != nil {
		s.recorder.note(c.at, history.Closed(s.id), history.Output{})
		s.told.Complete = true
	}
}

// end notes that there are no more answers.
func (s *sessionTap) end() {
	for _, c := range s.sent {
		s.unanswered(c)
	}
	clear(s.sent)
}

func (s *sessionTap) unanswered(c command) {
	unknown := history.Output{Unknown: true}
	switch {
	case c.request.GetLock() != nil || c.request.GetUnlock() != nil:
		s.recorder.note(c.at, s.requestOf(c), unknown)
	case c.request.GetUnlockAll() != nil:
		for resource := range s.asked {
			s.recorder.note(c.at, history.UnlockAll(resource, s.id), unknown)
		}
	case c.request.GetClose() != nil:
		for resource := range s.asked {
			s.recorder.note(c.at, history.Close(resource, s.id), unknown)
		}
	}
}

func (s *sessionTap) requestOf(c command) history.Request {
	if lock := c.request.GetLock(); lock != nil {
		return history.LockFor(lock.GetResource(), s.id, s.owner, unitsOf(lock.GetMode()), lock.GetTry())
	}
	return history.Unlock(c.request.GetUnlock().GetResource(), s.id)
}

// toldOf returns a status as a report about a claim. A session does not learn how a claim ended.
func toldOf(status *models.SessionStatus, answer bool) history.Report {
	return history.Report{
		Resource: status.GetResource(), Claim: status.GetClaim(), Before: claim.Status(status.GetPrevious()), After: claim.Status(status.GetCurrent()),
		Token: status.GetToken(), Version: status.GetVersion(), Answer: answer,
	}
}
