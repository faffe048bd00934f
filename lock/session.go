package lock

import (
	"context"
	"fmt"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/stream"
)

// Session is an identity with one TTL for all its locks and waits, kept alive by one heartbeat over one stream to any
// of the servers. Any number of goroutines may call its methods.
//
// When its stream breaks, the session resumes over another one, at any server, and its state is unchanged; commands
// without an answer are sent again. Until then it keeps its locks, within its trust window. The window lasts for the
// TTL less the margin, from the sending of the last request that renewed the session: a heartbeat, the opening of a
// stream, or a command that made a claim. When the window ends, the session resigns: it is done, and its listeners hear
// of the loss of each lock, before any server grants one to somebody else. A session that is done stays done; a new one
// has a new identity.
//
// Lock, TryLock, Unlock and UnlockAll are the commands of the lock service. They do not wait in a queue, and know one
// holder: the session. Acquire of a Client, Mutex and RWMutex wait, and tell the goroutines of one session from each
// other; do not give up their locks by Unlock.
type Session struct {
	stream    *stream.Session
	observers observers
}

// NewSession returns a session that opens itself at one of the servers, and retries until it can. Close it after use.
// It returns an error if an address or an option is invalid, as Dial does.
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

// ID returns the name of the session that lists and other sessions show.
func (s *Session) ID() string { return s.stream.ID() }

// Owner returns the owner of all that the session holds.
func (s *Session) Owner() string { return s.stream.Owner }

// Lock holds a resource, or joins its queue, and returns how the session now stands to it: Holding or
// Waiting; Listen tells of the grant. To lock again keeps the place. An error of ctx, or ErrTimeout, leaves
// open whether the command is carried out: Status knows, in time.
func (s *Session) Lock(ctx context.Context, resource string, options ...AcquireOption) (Status, error) {
	return s.lock(ctx, resource, false, options)
}

// TryLock holds a resource, or returns who does. A session that waits already goes on waiting.
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

// Unlock gives a resource up: a session that holds it releases it, one that waits leaves the queue.
// One that does neither changes nothing.
func (s *Session) Unlock(ctx context.Context, resource string) (Status, error) {
	if err := base.CheckResource(resource); err != nil {
		return Status{Resource: resource}, fmt.Errorf("unlock %q: %w", resource, err)
	}
	status, err := s.stream.Unlock(ctx, resource)
	return statusOf(status), err
}

// UnlockAll gives everything up that the session holds and waits for.
func (s *Session) UnlockAll(ctx context.Context) error { return s.stream.UnlockAll(ctx) }

// Status returns how the session stands to a resource at this moment: it reads the clock, so nothing is
// Holding outside of the trust window.
func (s *Session) Status(resource string) Status { return statusOf(s.stream.Status(resource)) }

// Listen has f called for every change of the session's state for any resource, in commit order, and never twice at
// once. A slow f delays only itself. After stop no further call begins.
func (s *Session) Listen(f func(Status)) (stop func()) {
	return s.stream.Listen(func(status stream.Status) { f(statusOf(status)) })
}

// Done is closed when the session is over. Err then says why.
func (s *Session) Done() <-chan struct{} { return s.stream.Done() }

// Err returns nil while the session lasts. Then it is ErrClosed; or it wraps ErrTimeUp (no server could be reached
// within the trust window), ErrSessionEnded (a server ended it), or a server's refusal to open it.
func (s *Session) Err() error { return s.stream.Err() }

// Close ends the session, and gives everything up at once. It returns when a server has done that, or ctx
// is done, whose error it then returns; the session ends with its TTL in that case, unless another Close still waits. To close what is
// over does nothing.
func (s *Session) Close(ctx context.Context) error { return s.stream.Close(ctx) }
