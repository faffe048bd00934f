package stream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/base/lease"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

// Config is the configuration of a session.
type Config struct {
	base.Settings // with an owner
	Dialer        *conn.Dialer
	// Timeout bounds each command; 0: nothing does.
	Timeout time.Duration
	// Unused, unless it is nil, is called when no goroutine has used the session for KeepUnused.
	Unused func(*Session)
}

// Session is one session, at one server after the other; lock.Session documents it.
type Session struct {
	Config

	// done is closed when the session is over, stopped when its goroutine has ended.
	done, stopped chan struct{}
	// life is the context of the goroutine, which stop ends.
	life context.Context // it lasts as long as the session
	stop context.CancelFunc
	// wake tells the writer that there is something to send.
	wake chan struct{}
	// closings are the connections that are being closed, and calls under way.
	closings sync.WaitGroup

	// mu guards what follows. Nothing waits while it is held.
	mu         sync.Mutex
	id, secret string
	offered    bool  // a server may have the session
	opened     bool  // a server has it
	err        error // why it is over; nil until then
	started    time.Time
	failure    error // the last of a stream
	refusals   int   // how often a server refused to open it
	window     lease.Window
	expiry     *time.Timer
	// overdue fires when the session was not renewed for two thirds of the TTL; isOverdue is set from then on until a
	// renewal.
	overdue      *time.Timer
	unused       *time.Timer // fires when nobody has used the session for KeepUnused; nil without Unused
	isOverdue    bool
	records      map[string]*record
	queues       map[string]*queue
	listeners    map[*listener]bool
	observed     inbox.Inbox // calls of SessionHeld
	closeCommand *command    // CloseSession
	closers      int         // number of callers that wait for the end

	// sequence numbers the requests, streams the streams; openSequence is the last OpenSession's number.
	sequence     uint64
	openSequence uint64
	streams      int
	batches      bool                // the server of the stream takes several requests in one message
	commands     map[uint64]*command // without an answer
	givingUp     map[string]int      // how many of them release a resource; "" counts commands about all resources
	unsent       []*command          // what is left to send over the stream
	underWay     int                 // the weight of the commands that it has brought, and that have no answer
	// beat is the heartbeat that is unanswered; next is when another one is due.
	beat *heartbeat
	next time.Time
	// rpc is for single calls, over the connection of the stream; nil without one.
	rpc models.LocketClient
}

// listener is a function that is called for every change.
type listener struct {
	f     func(Status)
	calls inbox.Inbox
}

// New returns a session that opens itself at one of the servers, and retries until it can. Close it after use.
func New(config Config) *Session {
	life, stop := context.WithCancel(context.Background())
	s := &Session{
		Config: config,
		done:   make(chan struct{}), stopped: make(chan struct{}), life: life, stop: stop, wake: make(chan struct{}, 1),
		id: ids.NewRequest(), secret: rand.Text(), started: time.Now(),
		records: make(map[string]*record), queues: make(map[string]*queue), listeners: make(map[*listener]bool),
		commands: make(map[uint64]*command), givingUp: make(map[string]int),
	}
	s.Log = s.Log.With("owner", s.Owner)
	s.expiry, s.overdue = time.AfterFunc(math.MaxInt64, s.expire), time.AfterFunc(math.MaxInt64, s.becomeOverdue)
	if s.Unused != nil {
		s.unused = time.AfterFunc(KeepUnused, func() { s.Unused(s) })
	}
	go s.run(life)
	return s
}

// ID returns the name of the session.
func (s *Session) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Lock asks for a resource; with try it does not join the queue.
func (s *Session) Lock(ctx context.Context, resource string, want *Want, try bool) (Status, error) {
	return s.do(ctx, lockCommand(want, resource, try))
}

// Unlock releases a resource, or leaves its queue.
func (s *Session) Unlock(ctx context.Context, resource string) (Status, error) {
	return s.do(ctx, unlockCommand(resource, nil))
}

// UnlockAll releases everything that the session holds, and leaves all queues.
func (s *Session) UnlockAll(ctx context.Context) error {
	request := &models.SessionRequest{Command: &models.SessionRequest_UnlockAll{UnlockAll: &models.UnlockAllCommand{}}}
	_, err := s.do(ctx, &command{verb: "unlock all", request: request})
	return err
}

// Status returns how the session stands to a resource at this moment.
func (s *Session) Status(resource string) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resignIfUntrusted()
	if r := s.records[resource]; r != nil {
		return r.Status
	}
	return Status{Resource: resource}
}

// Listen calls a function for every change, until it is stopped.
func (s *Session) Listen(f func(Status)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &listener{f: f}
	s.listeners[l] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
	}
}

// Done is closed when the session is over. Err then returns the reason.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session is over, nil while it lasts.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resignIfUntrusted()
	return s.err
}

// Close ends the session and releases everything. It returns when a server has done that, or ctx is done.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.err == nil {
		if s.offered {
			request := &models.SessionRequest{Command: &models.SessionRequest_Close{Close: &models.CloseSession{}}}
			s.closeCommand = s.newCommand(&command{request: request})
		}
		s.end(base.ErrClosed)
	}
	closeCommand := s.closeCommand
	s.closers++
	s.mu.Unlock()
	var err error
	if closeCommand != nil {
		select {
		case <-closeCommand.done:
		case <-s.stopped:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.mu.Lock()
	s.closers--
	switch last := s.closers == 0; {
	case s.closing():
		err = fmt.Errorf("the session is not closed yet, and ends with its TTL: %w", s.failedWait(cmp.Or(err, errNoAnswer)))
		if !last {
			s.mu.Unlock()
			return err
		}
	case closeCommand != nil: // the answer counts, even if ctx was done at the same time
		err = closeCommand.err
	}
	s.mu.Unlock()
	s.stop()
	<-s.stopped
	s.closings.Wait()
	return err
}

// closeInterval is the pause before a failed request to close the session is repeated.
const closeInterval = 200 * time.Millisecond

// closeAgain repeats the request to close the session after an error. The caller has the lock.
func (s *Session) closeAgain(err error) {
	s.failure = err
	time.AfterFunc(closeInterval, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.recall(s.closeCommand)
		s.unsent = append(s.unsent, s.closeCommand)
		s.wakeWriter()
	})
}

// trusted reports whether the session may rely on its locks. Before it was opened it has none. The caller has the lock.
func (s *Session) trusted() bool {
	return s.err == nil && (s.window.IsZero() || s.window.Trusted(time.Now()))
}

// resignIfUntrusted ends a session without a trust window. It is called before anything else, because after a pause
// the timer may not run first. The caller has the lock.
func (s *Session) resignIfUntrusted() {
	if s.err == nil && !s.trusted() {
		s.end(base.TimeUp(s.failure))
	}
}

// expire is called when the trust window should have ended.
func (s *Session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resignIfUntrusted()
}

// renewed reports the last renewal to an observer. The caller has the lock.
func (s *Session) renewed(o *base.Observer) {
	if !s.window.IsZero() {
		o.TellRenewed(s.window.Since(), s.TTL)
	}
}

// Watch notifies a watcher of unexpected locks of a resource, until it is stopped or nothing refers to the watcher
// any more.
func (s *Session) Watch(key string, w *Watcher) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, watcher := s.queueOf(key), weak.Make(w)
	q.watchers = append(q.watchers, watcher)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		q.watchers = slices.DeleteFunc(q.watchers, func(other weak.Pointer[Watcher]) bool { return other == watcher })
		q.forget()
	}
}

// used reports whether goroutines hold by the session, or wait.
func (s *Session) used() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && len(s.queues) > 0
}

// rest begins to count the time while nobody uses the session. The caller has the lock.
func (s *Session) rest() {
	if s.unused != nil {
		s.unused.Reset(KeepUnused)
	}
}

// becomeOverdue is called when the session was not renewed for two thirds of the TTL.
func (s *Session) becomeOverdue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resignIfUntrusted(); s.err == nil && time.Since(s.window.Since()) >= s.TTL*2/3 {
		s.isOverdue = true
		s.tellObservers(func(o *base.Observer) { base.Tell(o.Calls, o.Unverifiable, s.unverified()) })
	}
}

// tellObservers calls tell for the observer of each held lock. The caller has the lock.
func (s *Session) tellObservers(tell func(*base.Observer)) {
	for _, q := range s.queues {
		for _, h := range q.holders {
			tell(h.observer)
		}
	}
}

// end ends the session and notifies all that hold, wait or listen. The caller has the lock.
func (s *Session) end(cause error) {
	if s.err != nil {
		return
	}
	s.err = cause
	if cause == base.ErrClosed { //nolint:errorlint // Close has set this error
		s.Log.Info("session closed", "session", s.id)
	} else {
		s.Log.Error("session lost", "session", s.id, "error", cause)
	}
	s.expiry.Stop()
	s.overdue.Stop()
	s.loseAll(cause)
	for _, c := range s.commands {
		if c != s.closeCommand {
			s.remove(c)
			c.conclude(Status{Resource: c.resource}, cause)
		}
	}
	for _, q := range s.queues {
		q.end(cause)
	}
	s.rest()
	close(s.done)
	if s.closeCommand == nil {
		s.stop()
	}
}

// endAfter returns why the session is over, nil if it is not, after an error. When a claim has ended because somebody ends
// the session, endAfter waits for the session's end.
func (s *Session) endAfter(ctx context.Context, err error) error {
	if errors.As(err, new(sessionEndsError)) {
		select {
		case <-s.done:
		case <-time.After(s.answerTimeout()):
		case <-ctx.Done():
		}
	}
	return s.Err()
}

// unverified returns why the session is not renewed. The caller has the lock.
func (s *Session) unverified() error {
	if s.failure != nil {
		return s.failure
	}
	return errNoAnswer
}

// failedWait returns the error of a wait that failed: its cause and, if no server has the session, why that is so. The caller
// has the lock.
func (s *Session) failedWait(cause error) error {
	switch {
	case s.failure != nil:
		return fmt.Errorf("%w: %w", cause, s.failure)
	case s.window.IsZero():
		return fmt.Errorf("%w: no server has opened the session within %s", cause, time.Since(s.started).Round(time.Millisecond))
	default:
		return cause
	}
}
