package stream

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

// command is a request of a session that gets an answer.
type command struct {
	// request is the same each time it is sent.
	request *models.SessionRequest
	// verb and resource are for errors; resource is "" if the command is about all resources.
	verb, resource string
	started        time.Time
	sent           bool // over the current stream
	sentAt         time.Time
	known          bool // it was sent, so a server may know of it
	again          bool // it was sent over an earlier stream, so it may have been executed
	// then, if it is set, gets the answer first, while the session's lock is held.
	then func(Status, error)

	// done is closed when status and err have the answer.
	done   chan struct{}
	status Status
	err    error
}

// maxUnderWay bounds the weight of commands that a stream sends before the first of them is answered. It is much less
// than a server reads ahead, so the server also reads the heartbeats that follow.
const maxUnderWay = 256

// weight is 1 for most commands, and more for one with long texts.
func (c *command) weight() int {
	lock := c.request.GetLock()
	return 1 + (len(lock.GetValue())+len(lock.GetUserData()))/4096
}

func lockCommand(want *Want, resource string, try bool) *command {
	return &command{verb: "lock", resource: resource, request: &models.SessionRequest{Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{
		Resource: resource, Mode: want.Mode, Try: try, Value: want.Value, TypeCode: want.TypeCode,
		AllowDeadlock: want.AllowDeadlock, UserData: want.UserData,
	}}}}
}

// unlockCommand releases the grant with a token, or any claim on the resource.
func unlockCommand(resource string, token *uint64) *command {
	return &command{verb: "unlock", resource: resource, request: &models.SessionRequest{Command: &models.SessionRequest_Unlock{
		Unlock: &models.UnlockCommand{Resource: resource, Token: token},
	}}}
}

// givesUp reports whether the command releases its resource, or all resources.
func (c *command) givesUp() bool {
	return c.request.GetUnlock() != nil || c.request.GetUnlockAll() != nil
}

// conclude gives the command its answer. The caller has the session's lock.
func (c *command) conclude(answer Status, err error) {
	c.status, c.err = answer, err
	if c.then != nil {
		c.then(answer, err)
	}
	close(c.done)
}

// newCommand queues a command to be sent. The caller has the lock.
func (s *Session) newCommand(c *command) *command {
	s.sequence++
	c.request.Sequence, c.started, c.done = s.sequence, time.Now(), make(chan struct{})
	s.commands[s.sequence] = c
	if c.givesUp() {
		s.givingUp[c.resource]++
	}
	if s.rpc != nil { // a later stream begins with all unanswered commands
		s.unsent = append(s.unsent, c)
		s.wakeWriter()
	}
	return c
}

// remove removes a command from the unanswered ones. The caller has the lock.
func (s *Session) remove(c *command) {
	if c.givesUp() && s.commands[c.request.GetSequence()] == c {
		if s.givingUp[c.resource]--; s.givingUp[c.resource] == 0 {
			delete(s.givingUp, c.resource)
		}
	}
	delete(s.commands, c.request.GetSequence())
	s.recall(c)
}

// recall notes that a command is not under way any more. The caller has the lock.
func (s *Session) recall(c *command) {
	if c.sent {
		c.sent = false
		s.underWay -= c.weight()
		s.wakeWriter()
	}
}

// do sends a command, and returns its answer.
func (s *Session) do(ctx context.Context, c *command) (Status, error) {
	s.mu.Lock()
	s.resignIfUntrusted()
	if s.err != nil {
		defer s.mu.Unlock()
		return Status{Resource: c.resource}, c.failed(s.err)
	}
	s.newCommand(c)
	s.mu.Unlock()
	return s.await(ctx, c, s.Timeout)
}

// await waits for the answer to a command, with a timeout if it is not 0.
func (s *Session) await(ctx context.Context, c *command, timeout time.Duration) (Status, error) {
	var tooLong <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		tooLong = timer.C
	}
	select {
	case <-c.done:
	default:
		select {
		case <-c.done:
		case <-ctx.Done():
			return s.unanswered(c, ctx.Err())
		case <-tooLong:
			return s.unanswered(c, base.ErrTimeout)
		}
	}
	if c.err != nil {
		return c.status, c.failed(c.err)
	}
	return c.status, nil
}

// unanswered returns the error of a command whose caller no longer waits. Its request is dropped, unless a server may
// have received it.
func (s *Session) unanswered(c *command, cause error) (Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.known && c.request.GetLock() != nil {
		s.remove(c)
	}
	return Status{Resource: c.resource}, c.failed(s.failedWait(cause))
}

func (c *command) failed(err error) error {
	if c.resource == "" {
		return fmt.Errorf("%s: %w", c.verb, err)
	}
	return fmt.Errorf("%s %q: %w", c.verb, c.resource, err)
}

// wakeWriter tells the writer that there is something to send.
func (s *Session) wakeWriter() { periodic.Wake(s.wake) }

// errorOf returns a server's refusal of a command as the error of a call.
func errorOf(m *models.CommandError) error {
	st := status.New(codes.Code(uint32(m.GetCode())), m.GetMessage()) // a code unknown to gRPC is shown as a number
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{Reason: m.GetReason(), Domain: models.ErrorDomain, Metadata: m.GetMetadata()})
	if err == nil {
		st = detailed
	}
	return base.WithHolder(st.Err())
}
