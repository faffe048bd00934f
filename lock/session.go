package lock

import (
	"context"
	"fmt"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/stream"
)

// Session is an identity with one TTL for all its locks and waits. One heartbeat over one stream to any of the servers
// renews it. Any number of goroutines may call its methods.
//
// When its stream breaks, the session resumes over another one, at any server, with its locks and places in queues;
// unanswered commands are sent again. Until then it keeps its locks for the trust window: the TTL less the margin,
// counted from the time when it sent the last request that renewed the session (a heartbeat, the opening of a stream,
// or a command that made a claim). When the window ends, the session is over: its listeners hear of the loss of each
// lock before any server grants one to somebody else. A new session has a new identity.
//
// Lock, TryLock, Unlock and UnlockAll are the commands of the lock service. They do not wait for a grant, and know one
// holder: the session. Acquire of a Client, Mutex and RWMutex wait, and exclude the goroutines of one session. Do not
// release their locks with Unlock.
type Session struct {
	stream    *stream.Session
	observers observers
}

// NewSession returns a session that opens itself at one of the servers, and retries until it can. Close it after use.
// Like Dial it returns an error if an address or an option is invalid.
func NewSession(addresses []string, options ...ClientOption) (*Session, error) {
	config, err := newClientConfig(addresses, options)
	if err != nil {
		return nil, err
	}
	of, err := config.session(config.ttl, "")
	if err != nil {
		return nil, err
	}
	return &Session{stream.New(of), config.settings(config.ttl).observers}, nil
}

// ID returns the session's id, as lists and other sessions show it.
func (s *Session) ID() string { return s.stream.ID() }

// Owner returns the owner of the session's locks.
func (s *Session) Owner() string { return s.stream.Owner }

// Lock takes a resource or joins its queue, and returns the session's state: Holding or Waiting. Listen reports the
// later grant. Locking again keeps the place. After an error of ctx, or ErrTimeout, the command may still be executed:
// see Status.
func (s *Session) Lock(ctx context.Context, resource string, options ...AcquireOption) (Status, error) {
	return s.lock(ctx, resource, false, options)
}

// TryLock takes a resource, or returns its holder. A session that already waits keeps waiting.
func (s *Session) TryLock(ctx context.Context, resource string, options ...AcquireOption) (Status, error) {
	return s.lock(ctx, resource, true, options)
}

func (s *Session) lock(ctx context.Context, resource string, try bool, options []AcquireOption) (Status, error) {
	want, err := newWant(resource, false, options)
	if err == nil && want.TTL != 0 && want.TTL != s.stream.TTL {
		err = fmt.Errorf("the TTL of the session is %s, and cannot be %s for one lock", s.stream.TTL, want.TTL)
	}
	if err != nil {
		return Status{Resource: resource}, fmt.Errorf("lock %q: %w", resource, err)
	}
	status, err := s.stream.Lock(ctx, resource, &want, try)
	return statusOf(status), err
}

// Unlock releases a resource that the session holds, or leaves its queue. Otherwise it does nothing.
func (s *Session) Unlock(ctx context.Context, resource string) (Status, error) {
	if err := base.CheckResource(resource); err != nil {
		return Status{Resource: resource}, fmt.Errorf("unlock %q: %w", resource, err)
	}
	status, err := s.stream.Unlock(ctx, resource)
	return statusOf(status), err
}

// UnlockAll releases everything that the session holds, and leaves all queues.
func (s *Session) UnlockAll(ctx context.Context) error { return s.stream.UnlockAll(ctx) }

// Status returns the session's state for a resource at this moment. It reads the clock, so it is never Holding outside
// of the trust window.
func (s *Session) Status(resource string) Status { return statusOf(s.stream.Status(resource)) }

// Listen calls f for every change of the session's state for any resource, in commit order and one at a time. A slow f
// delays only itself. After stop no further call begins.
func (s *Session) Listen(f func(Status)) (stop func()) {
	return s.stream.Listen(func(status stream.Status) { f(statusOf(status)) })
}

// Done returns a channel that is closed when the session is over. Err then returns the reason.
func (s *Session) Done() <-chan struct{} { return s.stream.Done() }

// Err returns nil while the session lasts. Then it returns ErrClosed, a server's refusal to open the session, or an
// error that wraps ErrTimeUp (no server could be reached within the trust window) or ErrSessionEnded (a server ended
// it).
func (s *Session) Err() error { return s.stream.Err() }

// Close releases everything and ends the session. It returns when a server has done that, or with ctx's error when ctx
// is done first; the session then ends with its TTL, unless another Close still waits. Closing again does nothing.
func (s *Session) Close(ctx context.Context) error { return s.stream.Close(ctx) }
