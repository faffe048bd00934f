package keychain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/locket-service/locket/internal/base/periodic"
)

// Keychain keeps claims alive. It may be used by any number of goroutines.
type Keychain struct {
	settings
	wire *wire

	// ctx ends with the keychain, and with it all that the keychain has started.
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	closing chan struct{} // closed when closing begins
	closed  chan struct{} // and when it has ended
	err     error         // of closing

	mu     sync.Mutex
	claims map[string]*Claim // claims that have not ended, by resource
	strays int               // claims that are being withdrawn, see Claim.settle
	fewer  chan struct{}     // closed, and replaced, when there are fewer of either
}

// New returns a keychain for the claims of a server. url is the address of its root: "http://127.0.0.1:8892".
// WithFailover adds servers. New does not wait for a connection. Close the keychain after use.
func New(url string, options ...Option) (*Keychain, error) {
	s := newSettings(options)
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("keychain: %w", err)
	}
	wire, err := newWire(append([]string{url}, s.more...), &s)
	if err != nil {
		return nil, fmt.Errorf("keychain: %w", err)
	}
	kc := &Keychain{
		settings: s, wire: wire, claims: make(map[string]*Claim),
		closing: make(chan struct{}), closed: make(chan struct{}), fewer: make(chan struct{}),
	}
	kc.ctx, kc.cancel = context.WithCancel(context.Background())
	return kc, nil
}

// Claim claims a resource and returns when the claim is active. It repeats requests while no server can be reached.
// If the server refuses one, it returns an *AnswerError. It returns ErrClaimed if the keychain already has a claim on
// the resource; it waits for a claim that is being released.
//
// If ctx or the time of WithTimeout ends first, or the keychain is closed, the claim is withdrawn in the background,
// within WithReleaseTimeout. After Claim has returned, ctx has no effect.
func (kc *Keychain) Claim(ctx context.Context, resource string, options ...ClaimOption) (*Claim, error) {
	w, err := kc.newWorker(resource, options)
	if err == nil {
		err = kc.add(ctx, w)
	}
	if err == nil {
		err = w.claim.await(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("claim %q: %w", resource, err)
	}
	return w.claim, nil
}

// add starts a claim as soon as the keychain has no other claim on the resource.
func (kc *Keychain) add(ctx context.Context, w *worker) error {
	for {
		before, err := kc.tryToAdd(ctx, w)
		if before == nil || err != nil {
			return err
		}
		select {
		case <-before.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryToAdd starts a worker, or returns the existing claim on the resource.
func (kc *Keychain) tryToAdd(ctx context.Context, w *worker) (before *Claim, err error) {
	kc.mu.Lock()
	defer kc.mu.Unlock()
	before = kc.claims[w.claim.resource]
	switch {
	case kc.isClosing():
		return nil, ErrClosed
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case before != nil && before.published.now().isWanted():
		return nil, ErrClaimed
	case before == nil:
		kc.claims[w.claim.resource] = w.claim
		kc.tasks.Go(w.keep)
	}
	return before, nil
}

func (kc *Keychain) isClosing() bool { return periodic.IsClosed(kc.closing) }

// forget is called by the worker of a claim that has ended.
func (kc *Keychain) forget(c *Claim) {
	kc.mu.Lock()
	defer kc.mu.Unlock()
	delete(kc.claims, c.resource)
	kc.tellFewer()
}

func (kc *Keychain) tellFewer() {
	close(kc.fewer)
	kc.fewer = make(chan struct{})
}

// Close ends all claims: active ones are released, the others withdrawn. It returns when that is done, or after the
// time of WithReleaseTimeout with an error that names the remaining claims. Afterwards Claim returns ErrClosed.
func (kc *Keychain) Close() error { return kc.shut(eventRelease) }

// Abort is Close for a program that fails: its claims end as aborted, and failed requests are repeated sooner. If
// Close is already running, Abort ends it at once, and the remaining claims end with their TTL.
func (kc *Keychain) Abort() error { return kc.shut(eventSignal) }

func (kc *Keychain) shut(e event) error {
	kc.mu.Lock()
	first := !kc.isClosing()
	if first {
		close(kc.closing)
	}
	claims := slices.Collect(maps.Values(kc.claims))
	kc.mu.Unlock()
	for _, c := range claims {
		c.tell(command{event: e, cause: ErrClosed, first: first})
	}
	if first {
		kc.finish(claims)
	}
	<-kc.closed
	return kc.err
}

// finish waits for claims to end, and then ends everything else.
func (kc *Keychain) finish(claims []*Claim) {
	defer close(kc.closed)
	timeout := time.NewTimer(kc.releaseTimeout + 100*time.Millisecond) // the claims have timers of their own
	defer timeout.Stop()
	kc.awaitIdle(timeout.C)
	kc.cancel()
	for _, c := range claims {
		c.tell(command{event: eventSignal, cause: ErrClosed})
		<-c.ended
		if c.result != nil && !errors.Is(c.result, ErrLost) { // already reported
			kc.err = errors.Join(kc.err, c.named(c.result))
		}
	}
	kc.tasks.Wait()
	kc.wire.hangUp()
}

// awaitIdle waits until there is no claim left, or the time is up.
func (kc *Keychain) awaitIdle(timeout <-chan time.Time) {
	for {
		kc.mu.Lock()
		idle, fewer := len(kc.claims)+kc.strays == 0, kc.fewer
		kc.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-fewer:
		case <-timeout:
			return
		}
	}
}
