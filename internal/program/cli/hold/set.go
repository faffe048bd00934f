package hold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// Set is the locks and claims of one command. A runner takes, renews and releases each. One goroutine uses a set.
type Set struct {
	*connect.Connection
	*Messages
	// Ended delivers each runner that has ended, once. Whoever receives one calls its End.
	Ended chan *EndedError

	kept []*Kept
}

// NewSet returns a set for at most so many.
func NewSet(c *connect.Connection, messages *Messages, most int) *Set {
	return &Set{Connection: c, Messages: messages, Ended: make(chan *EndedError, most)}
}

// Kept is a lock or a claim of a set.
type Kept struct {
	Name    string
	Runner  *locklib.Runner
	Process ifrit.Process

	id           string // of the claim that a request made or the runner makes first
	ttl, waitTTL time.Duration
	giveUp       func(ctx context.Context) error // ends the claim
	made         bool                            // by a request, before the runner
	over         bool                            // the runner has ended
	refusal      atomic.Pointer[error]           // the last one of a server, nil for none
	// queued is closed when the claim had to wait, leased when it was active first.
	queued, leased chan struct{}
	queue, lease   func()

	mu    sync.Mutex
	until time.Time // the lease lasts
}

// EndedError is the end of a runner.
type EndedError struct {
	*Kept
	Err error
}

func (e *EndedError) Error() string { return fmt.Sprintf("%q: %v", e.Name, e.Err) }

// Unwrap returns the error of the runner.
func (e *EndedError) Unwrap() error { return e.Err }

// End notes that the runner has ended.
func (e *EndedError) End() { e.over = true }

func newKept(name string, ttl, waitTTL time.Duration) *Kept {
	k := &Kept{Name: name, ttl: ttl, waitTTL: waitTTL, queued: make(chan struct{}), leased: make(chan struct{})}
	k.queue, k.lease = sync.OnceFunc(func() { close(k.queued) }), sync.OnceFunc(func() { close(k.leased) })
	return k
}

// Claim makes a claim, waits for its turn, and keeps it. The runner calls callbacks.
func (s *Set) Claim(req *models.CreateClaimRequest, waitTTL time.Duration, callbacks locklib.Callbacks) *Kept {
	k := newKept(req.GetResource(), seconds(req.GetTtl()), waitTTL)
	k.id = req.GetId()
	k.giveUp = func(ctx context.Context) error {
		_, err := s.EndClaim(ctx, &models.EndClaimRequest{Id: k.ID()})
		return err
	}
	options := append(s.options(k, callbacks), locklib.WithWaitTTL(waitTTL))
	if !req.GetAllowDeadlock() {
		options = append(options, locklib.WithoutDeadlock())
	}
	return s.start(k, locklib.NewClaimRunner(&noting{s.LocketClient, &k.refusal}, req, options...))
}

// Made is Claim for a claim that a request has made.
func (s *Set) Made(req *models.CreateClaimRequest, claim *models.Claim, callbacks locklib.Callbacks) *Kept {
	req.Id, req.Owner = claim.GetId(), claim.GetOwner()
	k := s.Claim(req, seconds(req.GetWaitTtl()), callbacks)
	if k.made = true; claim.GetStatus() == models.Status_STATUS_WAITING {
		k.queue()
	} else {
		k.extend(time.Now(), k.ttl)
	}
	return k
}

// Taken is Made for a lock that a request has taken, with a token.
func (s *Set) Taken(req *models.LockRequest, token uint64, callbacks locklib.Callbacks) *Kept {
	ttl := time.Duration(req.GetTtlInSeconds()) * time.Second
	k := newKept(req.GetResource().GetKey(), ttl, 0)
	k.made = true
	k.extend(time.Now(), ttl)
	k.giveUp = func(ctx context.Context) error {
		_, err := s.Connection.Release(ctx, &models.ReleaseRequest{Resource: req.GetResource(), Token: &token})
		return err
	}
	return s.start(k, locklib.NewLockRunner(s.LocketClient, req.GetResource(), ttl, 0, s.options(k, callbacks)...))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// options returns the options that every runner gets.
func (s *Set) options(k *Kept, callbacks locklib.Callbacks) []locklib.Option {
	callbacks.Waiting = func(string) { k.queue() }
	renewed := callbacks.Renewed
	callbacks.Renewed = func(sent time.Time, lasts time.Duration) {
		k.extend(sent, lasts)
		if renewed != nil {
			renewed(sent, lasts)
		}
		k.lease()
	}
	// Release says first that no server has confirmed it.
	return []locklib.Option{locklib.WithCallbacks(callbacks), locklib.WithReleaseTimeout(s.Timeout + 10*time.Second)}
}

func (s *Set) start(k *Kept, runner *locklib.Runner) *Kept {
	k.Runner, k.Process = runner, ifrit.Background(runner)
	s.kept = append(s.kept, k)
	go func() { s.Ended <- &EndedError{k, <-k.Process.Wait()} }()
	return k
}

// noting is a client that notes why a server does not make a claim: the runner tries again, and does not tell.
type noting struct {
	models.LocketClient
	refusal *atomic.Pointer[error]
}

func (n *noting) CreateClaim(ctx context.Context, in *models.CreateClaimRequest, options ...grpc.CallOption) (*models.Claim, error) {
	claim, err := n.LocketClient.CreateClaim(ctx, in, options...)
	if models.ErrorInfoOf(err) != nil {
		n.refusal.Store(&err)
	}
	return claim, err
}

// ID returns the id of the last claim, "" for a lock.
func (k *Kept) ID() string { return cmp.Or(k.Runner.ClaimID(), k.id) }

// extend notes for how long a lease lasts from a moment on.
func (k *Kept) extend(from time.Time, lasts time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if end := from.Add(lasts); end.After(k.until) {
		k.until = end
	}
}

// forever is longer than any TTL.
const forever = math.MaxInt64

// longest returns how long the claim may stay if nobody ends it: 0 if no server has answered, or its lease is over.
func (k *Kept) longest() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.until.IsZero():
		return max(0, time.Until(k.until)+time.Second)
	case !periodic.IsClosed(k.queued):
		return 0
	case k.waitTTL == 0:
		return forever
	default:
		return k.waitTTL
	}
}

// Await returns nil when a claim of the set is held. The error is a NotAcquiredError, has exit.Interrupted if ctx has ended, or tells why
// no server can be asked.
func (s *Set) Await(ctx context.Context, k *Kept, wait Wait) error {
	t := &turn{
		Connection: s.Connection, Messages: s.Messages, Wait: wait, resource: k.Name, id: k.ID,
		queued: k.queued, active: k.Process.Ready(), ended: s.Ended, refusal: &k.refusal,
	}
	err := t.await(ctx)
	var end *EndedError
	switch {
	case err == nil:
		<-k.leased // which is told before
		return nil
	case errors.As(err, &end):
		end.End()
		return s.whyNot(end, k, wait)
	case errors.Is(err, errLate):
		return tooLate(ctx, s.Connection, k.Name, wait.For)
	case ctx.Err() != nil:
		return interrupted(k.Name)
	}
	return err
}

// whyNot returns the error for a runner that has ended while the turn of a claim was awaited.
func (s *Set) whyNot(end *EndedError, awaited *Kept, wait Wait) error {
	wire, ended := connect.ErrorOfCall(end.Err), endedWhile(end.Err, awaited.Name)
	switch {
	case end.Kept != awaited:
		return notAcquired(exit.Lost, "the lock %q is lost: %w", end.Name, cmp.Or(ended, end.Err))
	case errors.Is(end.Err, models.ErrLockCollision), models.ReasonOf(wire) == models.ReasonLockCollision: // without a wait
		return tooLate(context.Background(), s.Connection, end.Name, wait.For)
	case ended != nil:
		return notAcquired(exit.Failure, "%w", ended)
	case wire != nil:
		return s.Explain(wire)
	}
	return end.Err
}

// endedWhile returns how a claim has ended while the turn of one was awaited, nil if an error does not tell that.
func endedWhile(err error, awaited string) error {
	if deadlock := (*models.DeadlockError)(nil); errors.As(err, &deadlock) {
		return fmt.Errorf("%q was not acquired: %s", awaited, status.Convert(deadlock).Message())
	}
	if ended := (models.ClaimEndedError{}); errors.As(err, &ended) {
		return fmt.Errorf("%w while %q was awaited", ended, awaited)
	}
	return nil
}

// endOf returns how a claim has ended, if an error tells that, and otherwise the error.
func endOf(err error) error {
	if ended := (models.ClaimEndedError{}); errors.As(err, &ended) {
		return ended
	}
	return err
}

// Release releases what is held, and withdraws what waits. While no server can be reached it tries for a second, and for Timeout if none confirms it;
// then the error says when the claims end by themselves. The end of ctx ends it at once, with its cause.
func (s *Set) Release(ctx context.Context) error {
	running := 0
	var rest []*Kept // their runners may have left a claim
	for _, k := range s.kept {
		if k.over || k.made && !periodic.IsClosed(k.leased) {
			rest = append(rest, k)
		}
		if !k.over {
			running++
			k.Process.Signal(os.Interrupt)
		}
	}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for late := time.After(s.Timeout); running > 0; {
		select {
		case end := <-s.Ended: // lost meanwhile, perhaps, which is as good
			end.End()
			running--
		case <-look.C:
			if !s.isReachable(ctx) {
				return s.left("no server can be reached to release")
			}
		case <-late:
			return s.left("no server has released")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return s.giveUp(ctx, rest)
}

// isReachable reports whether a connection can be made, or a server answers.
func (s *Set) isReachable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, lookInterval)
	defer cancel()
	_, err := s.GetQueue(ctx, &models.GetQueueRequest{Resource: s.kept[0].Name})
	return status.Code(err) != codes.Unavailable || models.ErrorInfoOf(err) != nil // which a server says
}

// giveUp ends claims as far as that can be done at once: if the server was out of reach, others would wait for the end of their leases.
func (s *Set) giveUp(ctx context.Context, kept []*Kept) (err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for _, k := range kept {
		if failed := k.giveUp(ctx); unclear(failed) && k.made {
			err = s.left("no server has released")
		}
	}
	return err
}

// left returns an error that says when claims end by themselves, and why they were not released; nil if there are none.
func (s *Set) left(why string) error {
	longest, names := time.Duration(0), make([]string, len(s.kept))
	for i, k := range s.kept {
		longest, names[i] = max(longest, k.longest()), strconv.Quote(k.Name)
	}
	ends := "ends by itself within " + printable.Duration(longest, 2)
	switch longest {
	case 0:
		return nil
	case forever:
		ends = "stays in the queue until somebody ends it"
	}
	return fmt.Errorf("%s %s; it %s; to see it: locket resource %s", why, strings.Join(names, ", "), ends, printable.ShellQuoted(s.kept[0].Name))
}
