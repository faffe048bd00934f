package pipe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/keychain"
)

// maxRequests bounds the requests that are being carried out.
const maxRequests = 10_000

var (
	errWithdrawn    = errors.New("withdrawn: it was released while it waited")
	errShuttingDown = errors.New("the keychain shuts down")
)

// handler serves the client of `locket keychain`. It takes the requests one after the other, and answers each when it is done.
type handler struct {
	keychain *keychain.Keychain
	out      *outbox
	log      *slog.Logger
	notices  bool
	parent   *Parent // to be signalled when a claim is lost; may be nil
	// shutdown is called for the request to shut down, and does not wait.
	shutdown func(*request)

	tasks sync.WaitGroup

	mu      sync.Mutex
	closing bool
	running int
	claims  map[string]*entry // by resource, until released
}

// entry is a claim of a client. A release takes it out of the handler's map at once, so that the
// next request for the resource finds it free.
type entry struct {
	resource string
	ctx      context.Context // of waiting
	withdraw context.CancelCauseFunc

	claim     *keychain.Claim // nil while it waits; guarded by the handler's mutex
	withdrawn bool            // so it is
	toldLost  bool            // so it is

	concluded chan struct{} // closed when the request to claim is answered
	result    error         // of releasing a claim that became active all the same
}

// serve takes requests until the stream ends.
func (h *handler) serve(in *input) error {
	for {
		message, err := in.next()
		if err != nil && !errors.Is(err, errNotJSON) && !errors.Is(err, errTooLong) {
			return err
		}
		h.take(message, err)
		h.out.awaitReader()
	}
}

// take has a message carried out. wrong is an error of the stream.
func (h *handler) take(message []byte, wrong error) {
	r, err := parseRequest(message)
	if wrong != nil {
		err = wrong
	}
	if err == nil {
		err = h.dispatch(r)
	}
	if err != nil {
		h.answer(r, err, nil)
	}
}

// dispatch begins to carry out a request. An error is its answer.
func (h *handler) dispatch(r *request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.claims[r.resource]
	switch {
	case h.closing:
		return errShuttingDown
	case r.command == "ping":
		h.answer(r, nil, nil)
		return nil
	case r.command == "shutdown":
		h.closing = true
		h.shutdown(r)
		return nil
	case r.command != "claim" && r.command != "release" && r.command != "validate":
		return fmt.Errorf("the command %q is unknown; there are claim, release, validate, ping and shutdown", r.command)
	case r.resource == "":
		return errors.New("the resource_name is missing")
	case h.running >= maxRequests && r.command != "release": // which makes them fewer
		return fmt.Errorf("%d requests are being carried out already", maxRequests)
	case r.command == "claim":
		return h.beginClaim(r, e)
	case e == nil:
		return fmt.Errorf("%q is not claimed", r.resource)
	case r.command == "release":
		h.beginRelease(r, e)
		return nil
	default:
		return h.beginValidate(r, e)
	}
}

// begin carries out a request in a goroutine of its own. The caller holds the mutex.
func (h *handler) begin(task func()) {
	h.running++
	h.tasks.Go(func() {
		task()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.running--
	})
}

func (h *handler) answer(r *request, failure error, claim members) {
	if failure != nil {
		h.log.Debug("request failed", "command", r.command, "resource", r.resource, "error", failure)
	}
	h.out.put(r.answer(failure, claim))
}

// beginClaim claims a resource; e is the claim that is in the way.
func (h *handler) beginClaim(r *request, e *entry) error {
	switch {
	case e == nil || h.isLost(e): // perhaps nobody but the client knows that yet, by a validate that failed
	case e.claim != nil:
		return fmt.Errorf("%q is claimed already", r.resource)
	default:
		return fmt.Errorf("%q is being claimed already", r.resource)
	}
	options, err := r.claimOptions()
	if err != nil {
		return err
	}
	e = &entry{resource: r.resource, concluded: make(chan struct{})}
	e.ctx, e.withdraw = context.WithCancelCause(context.Background())
	h.claims[r.resource] = e
	h.begin(func() {
		defer close(e.concluded)
		defer e.withdraw(nil)
		claim, err := h.obtain(e, options)
		if !h.conclude(r, e, claim, err) {
			e.result = claim.Release(context.Background()) // bounded by the keychain
			h.answer(r, errWithdrawn, nil)
		}
	})
	return nil
}

// obtain waits until the claim is active.
func (h *handler) obtain(e *entry, options []keychain.ClaimOption) (*keychain.Claim, error) {
	for {
		claim, err := h.keychain.Claim(e.ctx, e.resource, options...)
		if !errors.Is(err, keychain.ErrClaimed) {
			return claim, err
		}
		// The claim before this one was released, which the keychain knows in a moment.
		if periodic.Pause(e.ctx, time.Millisecond) != nil {
			return nil, fmt.Errorf("claim %q: %w", e.resource, context.Cause(e.ctx))
		}
	}
}

// conclude answers a request to claim, unless the claim must be released first.
func (h *handler) conclude(r *request, e *entry, claim *keychain.Claim, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.forget(e)
		h.answer(r, err, nil)
	case e.withdrawn:
		return false
	default:
		e.claim = claim
		h.answer(r, nil, membersOfClaim(claim)) // before anybody can release it
		h.tasks.Go(func() { h.watch(e) })
	}
	return true
}

// forget makes place for another claim of the resource. The caller holds the mutex.
func (h *handler) forget(e *entry) {
	if h.claims[e.resource] == e {
		delete(h.claims, e.resource)
	}
}

// beginRelease releases a claim, or withdraws it while it waits.
func (h *handler) beginRelease(r *request, e *entry) {
	h.forget(e)
	claim := e.claim
	if claim == nil {
		e.withdrawn = true
		e.withdraw(errWithdrawn)
	}
	h.begin(func() {
		if claim == nil {
			<-e.concluded
			h.answer(r, e.result, nil)
			return
		}
		h.answer(r, claim.Release(context.Background()), nil) // bounded by the keychain
	})
}

// beginValidate asks the server whether a claim is still held.
func (h *handler) beginValidate(r *request, e *entry) error {
	claim := e.claim
	if claim == nil {
		return fmt.Errorf("%q is not ours yet", r.resource)
	}
	h.begin(func() { h.answer(r, claim.Validate(context.Background()), nil) }) // bounded by the keychain
	return nil
}

// watch waits for the end of a claim. If that is a loss, it tells the client.
func (h *handler) watch(e *entry) {
	<-e.claim.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isLost(e)
}

// isLost reports whether a claim was lost. It tells the client so once, before another claim of the
// resource can be made, and makes place for that. The caller holds the mutex.
func (h *handler) isLost(e *entry) bool {
	if e.claim == nil || !errors.Is(e.claim.Err(), keychain.ErrLost) {
		return false
	}
	if !e.toldLost {
		e.toldLost = true
		h.tellLost(e, e.claim.Err())
		h.forget(e)
	}
	return true
}

// tellLost tells the client that a claim is lost: first with a signal, which reaches also a client that does not read.
func (h *handler) tellLost(e *entry, err error) {
	if h.parent != nil {
		h.parent.signal(h.log)
	}
	if h.notices {
		notice := membersOfClaim(e.claim)
		notice["notice"], notice["resource_name"], notice["error_message"] = "lost", e.resource, err.Error()
		h.out.put(notice.encode())
	}
}

// close takes no more requests, has end end all claims, and returns when every request is answered. If the client has not asked for the
// end, why is the cause of its losses.
func (h *handler) close(why error, end func() error) error {
	h.mu.Lock()
	h.closing = true
	if why != nil {
		for _, e := range h.claims {
			if e.claim != nil && e.claim.Err() == nil {
				h.tellLost(e, why)
			}
		}
	}
	h.mu.Unlock()
	err := end()
	h.tasks.Wait()
	return err
}
