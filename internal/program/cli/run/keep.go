package run

import (
	"cmp"
	"context"
	"errors"
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
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/program/cli/connect"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// kept is a run with its locks, which are kept from the moment on in which they are requested.
type kept struct {
	*run
	*connect.Connection
	locks []*keptLock
	// ended delivers each runner that has ended, once.
	ended chan ending
	// hiddenInterrupt says that Ctrl-C went to the command alone, and not to the processes around this one.
	hiddenInterrupt bool
	signals         chan os.Signal
}

// keptLock is one of the locks of a run: a claim, and the runner that keeps it.
type keptLock struct {
	name    string
	claim   *models.CreateClaimRequest
	runner  *locklib.Runner
	process ifrit.Process
	over    bool                  // the runner has ended
	refusal atomic.Pointer[error] // the last one of a server, nil for none

	// queued is closed when the claim had to wait, leased when it was active first.
	queued, leased chan struct{}

	mu    sync.Mutex
	end   time.Duration // until when it is held at least, counted from the boot
	first sync.Once     // closes leased
	moved func()        // is called when the end has moved
}

// ending is the end of a runner.
type ending struct {
	lock *keptLock
	err  error
}

// request begins to claim a lock, and to keep it.
func (k *kept) request(name string) *keptLock {
	claim := &models.CreateClaimRequest{
		Resource: name, Owner: k.Owner, Value: k.Value, Id: ids.NewClaim(), NoWait: k.noWait(),
		Ttl: proto.Float64(k.TTL.Seconds()), Mode: models.Mode_MODE_EXCLUSIVE,
	}
	if k.Shared {
		claim.Mode = models.Mode_MODE_SHARED
	}
	l := &keptLock{name: name, claim: claim, queued: make(chan struct{}), leased: make(chan struct{})}
	queue := sync.OnceFunc(func() { close(l.queued) })
	l.runner = locklib.NewClaimRunner(&noting{k.LocketClient, &l.refusal}, claim, locklib.WithWaitTTL(k.WaitTTL), locklib.WithoutDeadlock(),
		locklib.WithReleaseTimeout(k.Timeout+10*time.Second), // release says first that nobody has confirmed it
		locklib.WithCallbacks(locklib.Callbacks{Waiting: func(string) { queue() }, Renewed: l.renewed}))
	l.process = ifrit.Background(l.runner)
	k.locks = append(k.locks, l)
	go func() { k.ended <- ending{l, <-l.process.Wait()} }()
	return l
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

// id returns that of the last claim that the runner made.
func (l *keptLock) id() string { return cmp.Or(l.runner.ClaimID(), l.claim.GetId()) }

// renewed moves the end of the lease, by a clock that the guard shares and that goes on while the machine sleeps. The time since the
// renewal was sent is the longer one by two clocks: the monotonic one may stand still meanwhile, the other may have been set back.
func (l *keptLock) renewed(sent time.Time, lasts time.Duration) {
	now := time.Now()
	since := max(now.Sub(sent), now.Round(0).Sub(sent.Round(0)))
	end := sinceBoot() - since + lasts
	l.mu.Lock()
	moved := l.moved
	if end <= l.end { // as where the clock was set forward meanwhile: the next renewal says more
		moved = nil
	}
	l.end = max(l.end, end)
	l.mu.Unlock()
	l.first.Do(func() { close(l.leased) })
	if moved != nil {
		moved()
	}
}

// follow calls moved whenever the end of the lease moves from now on.
func (l *keptLock) follow(moved func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved = moved
}

// leaseEnd returns until when the claim is held at least, counted from the boot.
func (l *keptLock) leaseEnd() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// hasAnswered reports whether a server has answered.
func (l *keptLock) hasAnswered() bool { return isClosed(l.queued) || isClosed(l.leased) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// isHeld reports whether all locks are held, by their trust windows.
func (k *kept) isHeld() bool {
	for _, l := range k.locks {
		if _, held := l.runner.Held(); !held {
			return false
		}
	}
	return true
}

// leaseEnd returns when the first of the leases ends, counted from the boot.
func (k *kept) leaseEnd() time.Duration {
	end := k.locks[0].leaseEnd()
	for _, l := range k.locks {
		end = min(end, l.leaseEnd())
	}
	return end
}

// release releases the claims, or withdraws them. While no server can be reached it tries for a second, and for Timeout if one
// does not confirm it; then it says when they end by themselves. Another signal ends it at once.
func (k *kept) release() error {
	running := 0
	for _, l := range k.locks {
		if l.over {
			k.endLost(l)
		} else {
			running++
			l.process.Signal(os.Interrupt)
		}
	}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	late := time.After(k.Timeout)
	for running > 0 {
		select {
		case end := <-k.ended:
			end.lock.over = true // lost meanwhile, perhaps, which is as good
			running--
		case <-look.C:
			if _, err := k.queueOf(k.locks[0], atOnce); status.Code(err) == codes.Unavailable && models.ErrorInfoOf(err) == nil { // else a server says so
				k.leave("no server can be reached to release")
				return nil
			}
		case <-late:
			k.leave("no server has released")
			return nil
		case sig := <-k.signals:
			if deadly(sig) {
				return signalled(sig)
			}
		}
	}
	return nil
}

// leave says when the claims end by themselves, and why they are not released.
func (k *kept) leave(why string) {
	left := time.Duration(0)
	for _, l := range k.locks {
		switch {
		case l.leaseEnd() > 0:
			left = max(left, l.leaseEnd()-sinceBoot())
		case isClosed(l.queued):
			left = max(left, k.WaitTTL)
		}
	}
	if left > 0 {
		k.say("%s %s; it ends by itself within %s", why, k.names(), (left + time.Second).Truncate(time.Second))
	}
}

// releaseForSupervisor releases the claims of a supervisor that is gone. The environment of the command has their ids.
func releaseForSupervisor(dial Dial) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	for id := range strings.SplitSeq(os.Getenv(idVariable), "\n") {
		err = errors.Join(err, endClaim(ctx, c, id))
	}
	return err
}

// endClaim ends a claim. While no server says that it has, or refuses, it tries again until ctx ends: then the claim ends with its lease.
func endClaim(ctx context.Context, client models.LocketClient, id string) error {
	for {
		_, err := client.EndClaim(ctx, &models.EndClaimRequest{Id: id}, grpc.WaitForReady(true))
		switch status.Code(err) {
		case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded:
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(releasePause):
		}
	}
}

// releasePause is the time between two attempts to release a claim.
const releasePause = 200 * time.Millisecond

const (
	// idVariable has the ids of the claims, a line each, in the environment of the command.
	idVariable = "LOCKET_ID"
	// aroundVariable has those of all runs around the command, which wait for its end.
	aroundVariable = "LOCKET_RUNS"
)

// endLost ends a claim that the runner has lost, as far as that can be done at
// once: if the server was out of reach, others would wait for the end of its lease.
func (k *kept) endLost(l *keptLock) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = k.EndClaim(ctx, &models.EndClaimRequest{Id: l.id()})
}

// environment returns that of the command: with the locks, a line each, and with what a locket
// in it needs to reach the same servers.
func (k *kept) environment() []string {
	var tokens, claims []string
	for _, l := range k.locks {
		token, _ := l.runner.Held()
		tokens, claims = append(tokens, strconv.FormatUint(token, 10)), append(claims, l.id())
	}
	own := map[string]string{
		"LOCKET_NAME": strings.Join(k.Names, "\n"), "LOCKET_TOKEN": strings.Join(tokens, "\n"), idVariable: strings.Join(claims, "\n"),
		aroundVariable: strings.Join(append(claims, strings.Fields(os.Getenv(aroundVariable))...), "\n"),
	}
	for name, value := range k.Environment() {
		own[name] = value
	}
	var env []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if _, hidden := own[name]; !hidden {
			env = append(env, variable)
		}
	}
	for name, value := range own {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}
