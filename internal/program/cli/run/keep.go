package run

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/hold"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// kept is a run with its locks, which are renewed from their requests on.
type kept struct {
	*run
	*hold.Set
	locks []*keptLock
	// hiddenInterrupt says that Ctrl-C went to the command alone, and not to the processes around this one.
	hiddenInterrupt bool
	signals         chan os.Signal
}

// keptLock is one of the locks of a run, with the end of its lease by a clock that the guard shares.
type keptLock struct {
	*hold.Kept

	mu    sync.Mutex
	end   time.Duration // until when it is held at least, counted from the boot
	moved func()        // is called when the end has moved
}

// acquire takes all locks, one after the other, and renews them meanwhile; or it takes none, and returns an error with an exit status.
func (k *kept) acquire() error {
	ctx, stop := k.untilSignal()
	err := k.awaitAll(ctx)
	stop()
	if _, is := signalOf(context.Cause(ctx)); is {
		err = context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	if stop := k.release(); stop != nil {
		return stop
	}
	if errors.As(err, new(hold.NotAcquiredError)) {
		return conflictError{exit.With(k.ConflictStatus, errors.New(err.Error()))}
	}
	return err
}

// conflictError is an error whose status counts whatever number it is.
type conflictError struct{ error }

func (e conflictError) Unwrap() error { return e.error }

func (k *kept) awaitAll(ctx context.Context) error {
	wait := hold.Wait{For: k.Wait}
	if k.Verbose || k.Watched() { // what runs unattended says only what went wrong
		wait.Tell = hold.Changes
	}
	if !k.Forever {
		late, cancel := context.WithCancel(context.Background())
		defer cancel()
		defer time.AfterFunc(k.Wait, cancel).Stop()
		wait.Late = late.Done()
	}
	for _, name := range k.Names {
		if err := k.Await(ctx, k.request(name).Kept, wait); err != nil {
			return err
		}
	}
	return nil
}

// untilSignal returns a context that ends when this process gets a deadly signal, which is the cause, and what ends that.
func (k *kept) untilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case sig := <-k.signals:
				if deadly(sig) {
					cancel(signalled(sig))
					return
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		close(done)
		<-gone
		cancel(nil)
	}
}

// release releases the claims, or withdraws them. Another signal ends it at once.
func (k *kept) release() error {
	ctx, stop := k.untilSignal()
	defer stop()
	err := k.Release(ctx)
	if _, is := signalOf(err); is {
		return err
	}
	if err != nil {
		k.Say("%v", err)
	}
	return nil
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
	l := new(keptLock)
	l.Kept = k.Claim(claim, k.WaitTTL, locklib.Callbacks{Renewed: l.renewed})
	k.locks = append(k.locks, l)
	return l
}

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

// isHeld reports whether all locks are held, by their trust windows.
func (k *kept) isHeld() bool {
	for _, l := range k.locks {
		if _, held := l.Runner.Held(); !held {
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

// releaseForSupervisor releases the claims of a supervisor that is gone. The environment of the command has their ids.
func releaseForSupervisor(dial Dial) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := c.Request(context.Background())
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
		if periodic.Pause(ctx, releasePause) != nil {
			return err
		}
	}
}

// releasePause is the time between two attempts to release a claim.
const releasePause = 200 * time.Millisecond

// idVariable has the ids of the claims, a line each, in the environment of the command.
const idVariable = "LOCKET_ID"

// environment returns the command's environment: with the locks, a line each, and with the addresses and files that lead another locket to
// the same servers.
func (k *kept) environment() []string {
	var tokens, claims []string
	for _, l := range k.locks {
		token, _ := l.Runner.Held()
		tokens, claims = append(tokens, strconv.FormatUint(token, 10)), append(claims, l.ID())
	}
	own := map[string]string{
		"LOCKET_NAME": strings.Join(k.Names, "\n"), "LOCKET_TOKEN": strings.Join(tokens, "\n"), idVariable: strings.Join(claims, "\n"),
		hold.RunsVariable: strings.Join(append(claims, strings.Fields(os.Getenv(hold.RunsVariable))...), "\n"),
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
