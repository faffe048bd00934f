// Package stream holds locks over sessions: the stream of a session and its heartbeats (stream.go), its held and
// awaited resources (table.go), its commands (command.go), and the goroutines that share its claims (queue.go,
// hold.go).
package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/base/lease"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

// leastAnswerTimeout is the shortest time that a server gets to answer a heartbeat. It waits for its next beat, and
// makes four a second.
const leastAnswerTimeout = 500 * time.Millisecond

var errNoAnswer = status.Error(codes.DeadlineExceeded, "the server does not answer")

// heartbeat is a message without an answer yet, whose answer prolongs the trust window: a Heartbeat, or the message that opens the session.
type heartbeat struct {
	sequence uint64
	sent     time.Time
}

// answerTimeout is how long an answer may take before the connection, or the server, counts as stuck: with
// a heartbeat at a third of the TTL there is time left for the other servers.
func (s *Session) answerTimeout() time.Duration {
	return max(min(s.TTL/4, base.MaxAttempt), leastAnswerTimeout)
}

// run keeps the session attached to one of the servers until it is over.
func (s *Session) run(ctx context.Context) {
	defer close(s.stopped)
	defer s.stop()
	addresses := s.Dialer.Addresses()
	failures := 0
	for next := rand.IntN(len(addresses)); ; next++ {
		healthy, err := s.attach(ctx, addresses[next%len(addresses)])
		if ctx.Err() != nil || !s.goOn(err) {
			return
		}
		s.Log.Warn("session detached", "session", s.ID(), "server", addresses[next%len(addresses)], "error", err)
		if !healthy || errors.Is(err, errNoAnswer) {
			s.RenewalFailed()
		}
		if failures++; healthy {
			failures = 0
		}
		if !s.pause(ctx, failures) || !s.wanted() {
			return
		}
	}
}

// wanted reports whether to open another stream. After a pause the trust window may have ended.
func (s *Session) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resignIfUntrusted()
	return s.err == nil || s.closing()
}

// closing reports whether the servers do not know of the end yet. The caller has the lock.
func (s *Session) closing() bool {
	return s.closeCommand != nil && s.commands[s.closeCommand.request.GetSequence()] != nil
}

// pause waits before the next attempt, unless there is a server that was not tried yet.
func (s *Session) pause(ctx context.Context, failures int) bool {
	rounds := failures / len(s.Dialer.Addresses())
	if failures == 0 || failures%len(s.Dialer.Addresses()) != 0 {
		return true
	}
	longest := min(time.Second, s.TTL/10)
	return periodic.Pause(ctx, base.Backoff.Pause(rounds, longest)) == nil
}

// goOn takes the error of a stream, and reports whether to open another one.
func (s *Session) goOn(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resignIfUntrusted()
	reason, verdict := models.ReasonOf(err), base.Classify(err)
	switch {
	case s.err != nil:
		if s.failure = err; reason == models.ReasonSessionEnded {
			s.closed()
		}
		return s.closing()
	case reason == models.ReasonSessionEnded && s.opened:
		s.end(fmt.Errorf("%w: %w", base.ErrSessionEnded, err))
	case reason == models.ReasonSessionEnded: // made by an attempt whose answer was lost
		s.id, s.offered = ids.NewRequest(), false
	case s.opened:
		s.failure = err
	case verdict == base.Permanent, verdict == base.Denied:
		if s.refusals++; s.refusals >= len(s.Dialer.Addresses()) {
			s.end(fmt.Errorf("the session was refused: %w", err))
		}
	default: // a server that cannot be reached does not contradict earlier answers
		s.failure = err
	}
	return s.err == nil
}

// closed records that the server has ended the session on request. The caller has the lock.
func (s *Session) closed() {
	if s.closing() {
		s.remove(s.closeCommand)
		s.closeCommand.conclude(Status{}, nil)
	}
}

// attach opens or resumes the session over a stream to a server. When the stream ends, it returns its error, and
// whether a Heartbeat or a command was answered.
func (s *Session) attach(ctx context.Context, address string) (healthy bool, err error) {
	cc, err := s.Dialer.Open(address)
	if err != nil {
		return false, err
	}
	defer s.closings.Go(func() { _ = cc.Close() }) // takes seconds when it is stuck
	ctx, cancel := context.WithCancelCause(base.WithRequestID(ctx))
	defer cancel(nil)
	watchdog := time.AfterFunc(s.answerTimeout(), func() { cancel(errNoAnswer) })
	defer watchdog.Stop()
	client := models.NewLocketClient(cc)
	stream, err := client.Session(ctx)
	if err == nil {
		opening := s.opening(client)
		defer s.detached()
		if err = stream.Send(opening); err == nil {
			return s.exchange(ctx, cancel, client, stream, watchdog)
		}
		_, err = stream.Recv() // the stream's error; Send only returns io.EOF
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return false, err
}

// exchange reads from a stream, while another goroutine writes.
func (s *Session) exchange(ctx context.Context, cancel context.CancelCauseFunc, rpc models.LocketClient, stream grpc.BidiStreamingClient[models.SessionRequest, models.SessionResponse], watchdog *time.Timer) (healthy bool, err error) {
	opened, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		select {
		case <-opened:
			s.write(ctx, stream)
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel(nil)
		<-written
	}()
	for attached := false; ; {
		m, err := stream.Recv()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return healthy, err
		}
		for more := m.GetMore(); ; m, more = more[0], more[1:] {
			if m.GetOpened() != nil {
				s.askWhy(ctx, rpc)
			}
			switch s.receive(m) {
			case gotOpened:
				attached = true
				close(opened)
				watchdog.Reset(s.TTL/3 + s.answerTimeout())
			case gotHeartbeat:
				healthy = true
				watchdog.Reset(s.TTL/3 + s.answerTimeout())
			case gotAnswer:
				healthy = true
			case gotEnd:
				return healthy, nil
			case gotOther:
				if !attached { // it lists the session's locks, which takes long if they are many and the network is slow
					watchdog.Reset(s.answerTimeout())
				}
			}
			if len(more) == 0 {
				break
			}
		}
	}
}

// opening begins a stream: it returns the first message.
func (s *Session) opening(client models.LocketClient) *models.SessionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sequence++
	s.openSequence = s.sequence
	s.streams++
	s.offered = true
	s.rpc = client
	s.beat = &heartbeat{s.sequence, time.Now()}
	return &models.SessionRequest{Sequence: s.sequence, Command: &models.SessionRequest_Open{Open: &models.OpenSession{
		Id: s.id, Secret: s.secret, Owner: s.Owner, Ttl: s.TTL.Seconds(), Resume: s.opened, Batches: true,
	}}}
}

// detached ends a stream.
func (s *Session) detached() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rpc, s.beat, s.unsent, s.batches = nil, nil, nil, false
}

// The kinds of messages that a stream's reader distinguishes.
type received int

const (
	gotOther received = iota
	gotOpened
	gotHeartbeat
	gotAnswer
	gotEnd
)

// receive takes a message.
func (s *Session) receive(m *models.SessionResponse) received {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.resignIfUntrusted()
	if s.err != nil && s.closeCommand == nil {
		return gotEnd
	}
	command := s.commands[m.GetSequence()]
	switch event := m.GetEvent().(type) {
	case *models.SessionResponse_Opened:
		if s.answersBeat(m, true) {
			s.batches = event.Opened.GetBatches()
			s.resume()
			s.acknowledge(now)
			s.next = now // a Heartbeat shows that the server's beats, too, keep the session
			return gotOpened
		}
	case *models.SessionResponse_Heartbeat:
		if s.answersBeat(m, false) {
			s.acknowledge(now)
			return gotHeartbeat
		}
	case *models.SessionResponse_Status:
		if s.err == nil {
			s.renewBy(command, event.Status, now)
			s.answer(m.GetSequence(), s.apply(event.Status, m.GetSequence() == s.openSequence), nil)
		}
	case *models.SessionResponse_Done:
		s.answer(m.GetSequence(), Status{}, nil)
	case *models.SessionResponse_Error:
		s.refused(m.GetSequence(), errorOf(event.Error))
	}
	switch {
	case s.closeCommand != nil && !s.closing():
		return gotEnd
	case command != nil:
		return gotAnswer
	default:
		return gotOther
	}
}

// answersBeat reports whether a message answers the heartbeat that has no answer yet: the opening of the stream, or a
// Heartbeat. The caller has the lock.
func (s *Session) answersBeat(m *models.SessionResponse, opening bool) bool {
	return s.beat != nil && s.beat.sequence == m.GetSequence() && opening == (m.GetSequence() == s.openSequence)
}

// answer gives a command its answer; events have none. The caller has the lock.
func (s *Session) answer(sequence uint64, answer Status, err error) {
	c := s.commands[sequence]
	if c == nil {
		return
	}
	s.remove(c)
	if answer.Resource == "" {
		answer.Resource = c.resource
	}
	c.conclude(answer, err)
}

// refused passes a server's refusal to a command, unless the command should be retried, or the session already has the
// claim. The caller has the lock.
func (s *Session) refused(sequence uint64, err error) {
	switch c := s.commands[sequence]; {
	case c == nil:
	case c == s.closeCommand && isMomentary(err):
		s.closeAgain(err)
	case s.hasMade(c):
		s.answer(sequence, s.records[c.resource].Status, nil)
	default:
		s.answer(sequence, Status{}, err)
	}
}

// hasMade reports whether an earlier stream carried out a command, so that the session has its claim: the server
// reported that on resume. A server that refuses the command now leaves the claim unchanged. The caller has the lock.
func (s *Session) hasMade(c *command) bool {
	lock, r := c.request.GetLock(), s.records[c.resource]
	return c.again && lock != nil && r != nil && r.Current != None && r.Shared == (lock.GetMode() == models.Mode_MODE_SHARED)
}

// resume continues over an accepted stream: unanswered commands are sent again, in order. The caller has the lock.
func (s *Session) resume() {
	if s.opened {
		s.Log.Info("session resumed", "session", s.id)
		s.SessionResumed()
		s.reconcile()
	} else {
		s.Log.Info("session opened", "session", s.id)
	}
	s.opened = true
	s.unsent, s.underWay = nil, 0
	for _, sequence := range slices.Sorted(maps.Keys(s.commands)) {
		c := s.commands[sequence]
		c.sent, c.again = false, c.known
		s.unsent = append(s.unsent, c)
	}
}

// acknowledge prolongs the trust window by the answer to a heartbeat. The caller has the lock.
func (s *Session) acknowledge(now time.Time) {
	sent := s.beat.sent
	s.beat = nil
	s.next = sent.Add(base.Jittered(s.TTL / 3))
	s.renew(sent, now)
	s.wakeWriter()
}

// renewBy prolongs the trust window by the answer to a command, if its commit has renewed the session. Prolonging
// touches every held lock and costs more than a command, so commands count only when the answer to a heartbeat is
// overdue. The caller has the lock.
func (s *Session) renewBy(c *command, answer *models.SessionStatus, now time.Time) {
	if c != nil && answer.GetRenewed() && c.sentAt.Sub(s.window.Since()) >= s.TTL/3 {
		s.renew(c.sentAt, now)
	}
}

// renew prolongs the trust window, from the time when a request was sent that renewed the session. The server
// received it later, and committed later still; from then on the session lives for its TTL. The caller has the lock.
func (s *Session) renew(sent, now time.Time) {
	window := lease.WithMargin(sent, s.TTL, s.Margin)
	if s.err != nil || !window.Trusted(now) || !sent.After(s.window.Since()) {
		return
	}
	s.window, s.failure = window, nil
	s.expiry.Reset(window.Left(now))
	s.overdue.Reset(window.Since().Add(s.TTL * 2 / 3).Sub(now))
	if s.isOverdue {
		s.isOverdue = false
		s.tellObservers((*base.Observer).TellVerified)
	}
	s.tellObservers(s.renewed)
	s.forgetEnded()
}

// write sends heartbeats, and commands while there is a trust window: locks without one could not be relied on.
func (s *Session) write(ctx context.Context, stream grpc.BidiStreamingClient[models.SessionRequest, models.SessionResponse]) {
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		messages, wait := s.outgoing()
		timer.Reset(wait)
		for _, message := range messages {
			if stream.Send(message) != nil {
				return // the reader gets the error
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// outgoing returns the messages to send now, and the time until the next heartbeat.
func (s *Session) outgoing() (messages []*models.SessionRequest, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resignIfUntrusted()
	if messages, wait = s.due(); s.batches {
		messages = together(messages)
	}
	return messages, wait
}

// due returns the requests to send now, and the time until the next heartbeat. The caller has the lock.
func (s *Session) due() (requests []*models.SessionRequest, wait time.Duration) {
	now := time.Now()
	if s.beat == nil && !now.Before(s.next) && s.err == nil {
		s.sequence++
		s.beat = &heartbeat{s.sequence, now}
		requests = append(requests, &models.SessionRequest{Sequence: s.sequence, Command: &models.SessionRequest_Heartbeat{Heartbeat: &models.Heartbeat{}}})
	}
	if !s.window.IsZero() || s.closeCommand != nil {
		for len(s.unsent) > 0 && s.underWay < maxUnderWay {
			c := s.unsent[0]
			s.unsent = s.unsent[1:]
			if s.commands[c.request.GetSequence()] == c {
				c.sent, c.known, c.sentAt = true, true, now
				s.underWay += c.weight()
				requests = append(requests, c.request)
			}
		}
	}
	if s.beat != nil || s.err != nil {
		return requests, s.TTL // an answer or the end wakes it
	}
	return requests, max(0, s.next.Sub(now))
}

const (
	// maxTogether and maxTogetherBytes are how many requests one message has, and how large it is; one alone may be
	// larger. A server accepts 256 and 256 KiB, but it hears of the client only when the whole message has arrived,
	// which must take less than a part of the TTL even on a slow network.
	maxTogether      = 64
	maxTogetherBytes = 4 << 10
)

// together puts requests into as few messages as possible. A heartbeat has a message of its own, so that its answer
// waits for nothing else. It does not change the requests, which may be sent again.
func together(requests []*models.SessionRequest) (messages []*models.SessionRequest) {
	if len(requests) < 2 {
		return requests
	}
	bytes := 0
	for _, request := range requests {
		size := proto.Size(request)
		if request.GetHeartbeat() != nil {
			size = maxTogetherBytes
		}
		if last := len(messages) - 1; last >= 0 && len(messages[last].GetMore())+1 < maxTogether && bytes+size <= maxTogetherBytes {
			messages[last].More = append(messages[last].More, request)
			bytes += size
			continue
		}
		messages = append(messages, &models.SessionRequest{Sequence: request.GetSequence(), Command: request.GetCommand(), Traceparent: request.GetTraceparent()})
		bytes = size
	}
	return messages
}
