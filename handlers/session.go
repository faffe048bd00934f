package handlers

import (
	"cmp"
	"context"
	"errors"
	"io"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/session"
	"github.com/locket-service/locket/models"
)

const (
	// lastEvents limits how long the last events of a stream may take to be sent.
	lastEvents = time.Second
	// maxTogether and maxTogetherBytes are how many responses one message may have, and how large it is, about; a
	// single response may be larger. A client hears of the server only when the whole message has arrived, which must
	// take less than a part of its TTL even on a slow network.
	maxTogether      = 64
	maxTogetherBytes = 4 << 10
)

// sessionStream is the server's end of a stream of RPC Session.
type sessionStream = grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]

// Session implements models.LocketServer.
func (h *handler) Session(stream sessionStream) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		err = fieldErrors{{"open", "is required"}}
	}
	if err != nil {
		return h.wireError(stream.Context(), err)
	}
	open, err := decodeOpen(first)
	if err != nil {
		return h.wireError(stream.Context(), err)
	}
	atOnce := 1
	if first.GetOpen().GetBatches() {
		atOnce = maxTogether
	}
	attached, err := h.Sessions.Open(stream.Context(), open)
	if err != nil {
		return h.wireError(stream.Context(), err)
	}
	defer attached.Detach()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		h.beside(stream.Context(), attached, func() { h.sendEvents(stream, attached, atOnce) })
	}()
	go h.beside(stream.Context(), attached, func() { attached.End(h.readCommands(stream, attached)) })
	h.serve(stream.Context(), attached, sent)
	return h.endOf(stream.Context(), attached.Err())
}

// serve returns when the session has ended here and its last events have been sent, or when the stream has broken. It
// ends the session if its client is silent for too long.
func (h *handler) serve(ctx context.Context, attached *session.Attached, sent <-chan struct{}) {
	silence := time.NewTimer(attached.TimeLeft())
	defer silence.Stop()
	for {
		select {
		case <-silence.C:
			left := attached.TimeLeft()
			if left <= 0 {
				attached.End(session.ErrSilent)
			}
			silence.Reset(max(left, db.BeatInterval)) // lease time may not pass now
			continue
		case <-attached.Ended():
			select {
			case <-sent:
			case <-time.After(lastEvents):
			case <-ctx.Done():
			}
		case <-sent:
		case <-ctx.Done():
		}
		return
	}
}

// beside runs a part of a stream's work on its own goroutine. A panic is a bug: it is logged with its stack and ends
// this stream only.
func (h *handler) beside(ctx context.Context, attached *session.Attached, work func()) {
	defer func() {
		if p := recover(); p != nil {
			stack := string(debug.Stack())
			h.failures.Do(func() {
				h.Log.ErrorContext(ctx, "panic", "method", models.Locket_Session_FullMethodName, "panic", p, "stack", stack)
			})
			attached.End(status.Error(codes.Internal, "internal error"))
		}
	}()
	work()
}

// errAllSent ends a stream whose client has closed its side, after all commands have been answered.
var errAllSent = errors.New("the client has ended the stream")

// readCommands passes the messages of a client to its session, and returns the error that ended them.
func (h *handler) readCommands(stream sessionStream, attached *session.Attached) error {
	carryOut, end := h.pacing(stream.Context(), attached)
	defer end()
	for {
		request := new(models.SessionRequest)
		err := stream.RecvMsg(request) // Recv would drop a message that a guard refuses
		if errors.Is(err, io.EOF) {
			if attached.Answered(stream.Context()) {
				return errAllSent
			}
			return session.ErrDetached
		}
		attached.Received()
		switch {
		case denied(request, err):
			request.Command = nil // it is not needed any more
		case err != nil:
			return err
		case request.GetSequence() == 0:
			return fieldErrors{{"sequence", "must be greater than 0"}}
		}
		if !attached.Room(stream.Context()) {
			return cmp.Or(stream.Context().Err(), session.ErrDetached)
		}
		if request.GetHeartbeat() != nil {
			attached.Heartbeat(request.GetSequence())
		} else if err := carryOut(received{request, err}); err != nil {
			return err
		}
	}
}

// denied reports whether an error of Recv is a guard's refusal of a complete command, because of the rules, of a quota, or because it
// cannot be recorded now. The stream continues then: what the session holds depends on it.
func denied(request *models.SessionRequest, err error) bool {
	code := status.Code(err)
	return request.GetSequence() != 0 && (code == codes.PermissionDenied || code == codes.ResourceExhausted || code == codes.Unavailable)
}

// received is a command from a client, with the refusal of a guard or nil.
type received struct {
	request *models.SessionRequest
	refusal error
}

// command executes or refuses a command. Room was taken for it. It returns an error if the message has no command,
// which ends the stream.
func (h *handler) command(ctx context.Context, command received, attached *session.Attached) error {
	request := command.request
	if command.refusal != nil {
		attached.Refuse(request.GetSequence(), command.refusal)
		return nil
	}
	var traced context.Context // nil: the stream's trace
	if h.Trace != nil && request.GetTraceparent() != "" {
		traced = h.Trace(ctx, request.GetTraceparent())
	}
	var c check
	switch cmd := request.GetCommand().(type) {
	case *models.SessionRequest_Lock:
		lock := decodeLockCommand(&c, cmd.Lock)
		lock.Sequence, lock.Context = request.GetSequence(), traced
		give(attached, lock.Sequence, lock, c.err())
	case *models.SessionRequest_Unlock:
		unlock := session.Unlock{Sequence: request.GetSequence(), Context: traced, Resource: cmd.Unlock.GetResource(), Token: c.token(cmd.Unlock.Token)}
		c.name("resource", unlock.Resource)
		give(attached, unlock.Sequence, unlock, c.err())
	case *models.SessionRequest_UnlockAll:
		attached.Do(session.UnlockAll{Sequence: request.GetSequence(), Context: traced})
	case *models.SessionRequest_Close:
		attached.Do(session.Close{Sequence: request.GetSequence(), Context: traced})
	case *models.SessionRequest_Open:
		return fieldErrors{{"open", "the stream has a session already"}}
	default:
		return fieldErrors{{"command", "is missing, or unknown to this server"}}
	}
	return nil
}

// give runs a command, or refuses it if its fields are invalid.
func give(attached *session.Attached, sequence uint64, cmd session.Command, wrong error) {
	if wrong != nil {
		attached.Refuse(sequence, wrong)
		return
	}
	attached.Do(cmd)
}

// sendEvents sends the events, up to a number in one message, until the session ends here or the stream breaks.
func (h *handler) sendEvents(stream sessionStream, attached *session.Attached, atOnce int) {
	for {
		events := attached.Next(stream.Context())
		if events == nil {
			return
		}
		for len(events) > 0 {
			n := together(events, atOnce)
			message := h.encodeEvent(stream.Context(), &events[0], attached)
			for i := range events[1:n] {
				message.More = append(message.More, h.encodeEvent(stream.Context(), &events[1+i], attached))
			}
			if stream.Send(message) != nil {
				return // the stream is broken
			}
			events = events[n:]
		}
	}
}

// together returns how many of the first events go in one message. An error, which may be long, goes alone.
func together(events []session.Event, atOnce int) (n int) {
	for bytes := 0; n < min(len(events), atOnce) && events[n].Err == nil; n++ {
		if bytes += sizeOf(events[n].Standing); bytes > maxTogetherBytes {
			break
		}
	}
	return max(n, 1)
}

// sizeOf returns the approximate size of a response with a Standing, or of an empty one.
func sizeOf(s *session.Standing) int {
	const numbers = 50
	if s == nil {
		return numbers
	}
	size := numbers + len(s.Resource) + len(s.Claim) + len(s.Reason) + len(s.EndedBy)
	if s.Holder != nil {
		size += len(s.Holder.Owner) + len(s.Holder.Session)
	}
	return size
}

// endOf returns the final status of a stream. err is why the session has ended here, nil if the stream broke.
func (h *handler) endOf(ctx context.Context, err error) error {
	if err == nil {
		err = cmp.Or(ctx.Err(), context.Canceled)
	}
	if errors.Is(err, session.ErrClosed) || errors.Is(err, errAllSent) {
		return nil
	}
	return h.wireError(ctx, err)
}

const (
	minSecret     = 16 // bytes of a session's id, and of its secret
	maxSecret     = 128
	maxSessionTTL = 24 * 60 * 60 // seconds
)

func decodeOpen(request *models.SessionRequest) (session.Open, error) {
	if _, ok := request.GetCommand().(*models.SessionRequest_Open); !ok {
		return session.Open{}, fieldErrors{{"open", "must be the first message of the stream"}}
	}
	var c check
	open := request.GetOpen()
	c.that(request.GetSequence() != 0, "sequence", "must be greater than 0")
	c.that(validSessionID(open.GetId()), "open.id", `must be %d to %d letters, digits and any of "-._~", not dots alone`, minSecret, maxID)
	n := len(open.GetSecret())
	c.that(minSecret <= n && n <= maxSecret, "open.secret", "has %d bytes; it must have %d to %d", n, minSecret, maxSecret)
	c.text("open.owner", open.GetOwner())
	seconds := open.GetTtl()
	ttl := c.seconds("open.ttl", &seconds, 1, maxSessionTTL)
	if err := c.err(); err != nil {
		return session.Open{}, err
	}
	return session.Open{
		ID: open.GetId(), Secret: open.GetSecret(), Owner: open.GetOwner(), TTL: *ttl,
		Resume: open.GetResume(), Sequence: request.GetSequence(),
	}, nil
}

func validSessionID(id string) bool { return len(id) >= minSecret && validID(id) }

func decodeLockCommand(c *check, cmd *models.LockCommand) session.Lock {
	lock := session.Lock{
		Resource: cmd.GetResource(), Units: c.units(cmd.GetMode()), Type: c.typeCode(cmd.GetTypeCode()),
		Value: cmd.GetValue(), Try: cmd.GetTry(), AllowDeadlock: cmd.GetAllowDeadlock(),
	}
	c.name("resource", cmd.GetResource())
	c.data("value", cmd.GetValue())
	if cmd.UserData != nil {
		c.json("user_data", cmd.GetUserData())
		lock.UserData = []byte(cmd.GetUserData())
	}
	if lock.Type == claim.Untyped {
		lock.Type = claim.Lock
	}
	return lock
}

func (h *handler) encodeEvent(ctx context.Context, e *session.Event, attached *session.Attached) *models.SessionResponse {
	if e.Standing != nil {
		return h.encodeStanding(ctx, e)
	}
	response := &models.SessionResponse{Sequence: e.Sequence}
	switch {
	case e.Beat:
		response.Event = &models.SessionResponse_Heartbeat{Heartbeat: &models.Heartbeat{}}
	case e.Opened:
		response.Event = &models.SessionResponse_Opened{Opened: &models.SessionOpened{
			Id: attached.ID, Resumed: e.Resumed, Ttl: attached.TTL.Seconds(), Batches: true,
		}}
	case e.Err != nil:
		response.Event = &models.SessionResponse_Error{Error: h.commandError(ctx, e.Err)}
	default:
		response.Event = &models.SessionResponse_Done{Done: &models.Done{}}
	}
	return response
}

// encodedStanding is the parts of a message with a Standing, allocated together: it is the answer to most commands.
type encodedStanding struct {
	response models.SessionResponse
	event    models.SessionResponse_Status
	status   models.SessionStatus
}

func (h *handler) encodeStanding(ctx context.Context, e *session.Event) *models.SessionResponse {
	s, m := e.Standing, new(encodedStanding)
	m.response.Sequence, m.response.Event, m.event.Status = e.Sequence, &m.event, &m.status
	status := &m.status
	status.Resource, status.Previous, status.Current = s.Resource, models.Holding(s.Previous), models.Holding(s.Current)
	status.Token, status.Claim, status.Status, status.Reason = s.Token, s.Claim, models.Status(s.Status), s.Reason
	status.EndedBy, status.Version, status.Mode, status.Renewed = s.EndedBy, s.Version, modeOf(s.Units), s.Renewed
	status.SessionEnds = s.SessionEnds
	if s.Holder != nil && claim.Sees(access.CallerOf(ctx), s.Holder) {
		status.Holder, status.HolderSession, status.HolderToken = s.Holder.Owner, s.Holder.Session, s.Holder.Token
	}
	if err := h.deadlock(ctx, s.Status, s.Reason); err != nil {
		status.Error = h.commandError(ctx, err)
	}
	return &m.response
}

// commandError returns a refused command's error as the client sees it.
func (h *handler) commandError(ctx context.Context, err error) *models.CommandError {
	err = h.wireError(ctx, err)
	info := models.ErrorInfoOf(err)
	s := status.Convert(err)
	return &models.CommandError{Code: int32(s.Code()), Message: s.Message(), Reason: info.GetReason(), Metadata: info.GetMetadata()}
}
