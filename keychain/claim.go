package keychain

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/locket-service/locket/lease"
)

// Claim is a claim that was active when Keychain.Claim returned it, and is kept so. It may be
// used by any number of goroutines.
type Claim struct {
	keychain *Keychain
	resource string
	claimSettings
	body json.RawMessage // of POST

	// commands reach the goroutine that keeps the claim, until it has ended.
	commands chan command
	outcome  chan error    // what Keychain.Claim returns; gets one value
	lost     chan struct{} // Done
	ended    chan struct{} // closed when the claim is in a final state
	result   error         // of giving back; to be read once ended is closed
	keeper   keeper

	mu       sync.Mutex
	trust    lease.Window
	loss     error  // why lost is closed
	unwanted bool   // it is being given back
	location string // the claim's address, "" until it is known
	id       string
	token    uint64
	decided  bool     // the claim of location, and no other, is the one that is kept
	told     []string // addresses that came in late answers, before that was decided
}

// command is what the client requests.
type command struct {
	event event
	// cause is why the claim is given back.
	cause error
	// ttl is that from a refresh on; 0 leaves it as it is.
	ttl time.Duration
	// asked is when, and renewed gets the result of a refresh.
	asked   time.Time
	renewed chan error
}

func (kc *Keychain) newClaim(resource string, options []ClaimOption) (*Claim, error) {
	s := claimSettings{ttl: DefaultTTL}
	for _, option := range append(kc.claim[:len(kc.claim):len(kc.claim)], options...) {
		option(&s)
	}
	if err := s.validate(resource); err != nil {
		return nil, err
	}
	body, err := s.registration(resource)
	if err != nil {
		return nil, err
	}
	c := &Claim{
		keychain: kc, resource: resource, claimSettings: s, body: body,
		commands: make(chan command), outcome: make(chan error, 1),
		lost: make(chan struct{}), ended: make(chan struct{}),
	}
	c.keeper = newKeeper(c)
	return c, nil
}

// await returns once the claim is active, or is not going to be.
func (c *Claim) await(ctx context.Context) error {
	select {
	case err := <-c.outcome:
		return err
	case <-ctx.Done():
		c.tell(command{event: eventRelease, cause: context.Cause(ctx)})
		return context.Cause(ctx)
	case <-c.keychain.closing: // which gives the claim back
		return ErrClosed
	}
}

// tell has a command carried out, unless the claim has ended.
func (c *Claim) tell(cmd command) {
	select {
	case c.commands <- cmd:
	case <-c.ended:
	}
}

// Resource returns the name of what is claimed.
func (c *Claim) Resource() string { return c.resource }

// ID returns the name that the server has given the claim: the last part of its address,
// unless an answer told it.
func (c *Claim) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// URL returns the claim's address.
func (c *Claim) URL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.location
}

// Token returns the fencing token: what the claim protects refuses tokens that are lower
// than one that it has seen. It is 0 from a server that has none.
func (c *Claim) Token() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// Held reports whether the resource is ours at this moment. It asks the clock and not the
// server, so it is right even in the first moment after a long pause. Ask it before each step
// that must not be done twice.
func (c *Claim) Held() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trust.Trusted(time.Now())
}

// Done returns a channel that is closed as soon as the claim is not ours any more: it was
// lost, or is being given back.
func (c *Claim) Done() <-chan struct{} { return c.lost }

// Err returns nil while Done is open, and then why it is closed: an error that wraps ErrLost,
// or ErrReleased, or ErrClosed.
func (c *Claim) Err() error {
	if err := c.cause(); err != nil {
		return c.named(err)
	}
	return nil
}

// cause returns Err without the claim's name.
func (c *Claim) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loss
}

// named returns an error that says which claim it is about.
func (c *Claim) named(err error) error { return fmt.Errorf("claim %q: %w", c.resource, err) }

// Refresh renews the claim now, which the keychain does by itself in time, and returns when
// that is done: it is tried until the claim is lost or the context is done. From then on each
// renewal has this TTL, even if this one fails; 0 leaves the TTL as it is.
func (c *Claim) Refresh(ctx context.Context, ttl time.Duration) error {
	if ttl != 0 {
		if err := checkTTL(ttl); err != nil {
			return c.named(err)
		}
	}
	if err := c.refresh(ctx, ttl); err != nil {
		return c.named(err)
	}
	return nil
}

func (c *Claim) refresh(ctx context.Context, ttl time.Duration) error {
	cmd := command{event: eventRefresh, ttl: ttl, asked: time.Now(), renewed: make(chan error, 1)}
	select {
	case c.commands <- cmd:
	case <-c.ended:
		return c.cause()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-cmd.renewed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Validate returns nil if the claim is ours by the server, which it asks, and by the clock.
// When the server says that it is not, the keychain finds out by renewing it, and loses it if
// that is so. When the server does not answer, that is the error, and the claim may well be
// ours: Held says so.
func (c *Claim) Validate(ctx context.Context) error {
	err := c.cause()
	if err == nil {
		err = c.look(ctx)
	}
	if err == nil && !c.Held() {
		err = ErrTimeUp
	}
	if err != nil {
		return c.named(err)
	}
	return nil
}

// look asks the server.
func (c *Claim) look(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.keychain.ctx, cancel)()
	a := c.keychain.wire.do(ctx, request{method: http.MethodGet, url: c.URL(), timeout: c.keychain.requestTimeout})
	switch status := a.member("status"); {
	case a.err != nil:
		return a.err
	case a.code == http.StatusOK && status == "active":
		return nil
	case a.code == http.StatusNotFound, a.code == http.StatusOK && status != "":
		return c.refresh(ctx, 0)
	default:
		return a.failure()
	}
}

// Release gives the claim back, and returns when the server has it. From its beginning on the
// claim is not held. It is repeated while the server cannot be reached, until the context is
// done, when it goes on in the background, or the time of WithReleaseTimeout is up
// (ErrNotGivenBack). A claim that was released already is no error; one that was lost is.
func (c *Claim) Release(ctx context.Context) error {
	select {
	case c.commands <- command{event: eventRelease, cause: ErrReleased}:
	case <-c.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-c.ended:
		if c.result == nil {
			return nil
		}
		return c.named(c.result)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isWanted reports whether the claim is not being given back.
func (c *Claim) isWanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	isOver := !c.trust.IsZero() && !c.trust.Trusted(time.Now())
	return !c.unwanted && !isOver
}

// giveUp notes that the claim is not wanted any more, or has ended.
func (c *Claim) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwanted = true
}

// extend publishes a trust window.
func (c *Claim) extend(trust lease.Window) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trust = trust
}

// lose ends what Held says, and closes Done, before anything else is done about it.
func (c *Claim) lose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trust, c.loss, c.unwanted = lease.Window{}, err, true
	close(c.lost)
}

// learn keeps what an answer tells of the claim.
func (c *Claim) learn(a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if token := a.fencingToken(); token != 0 {
		c.token = token
	}
	if id := a.member("id"); id != "" {
		c.id = id
	}
}

// settle decides which claim is the one that is kept, once its address is known, or "" when
// there will be none. A POST that was repeated may have made others, on a server that does not
// know the header Idempotency-Key: they are withdrawn when their addresses become known.
func (c *Claim) settle(location string) {
	for _, stray := range c.settled(location) {
		c.keychain.withdrawStray(stray)
	}
}

// settled notes what is decided, and returns the addresses of other claims.
func (c *Claim) settled(location string) (strays []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.decided {
		c.decided, c.location = true, location
		if c.id == "" && location != "" {
			c.id = path.Base(location)
		}
	}
	for _, address := range c.told {
		if address != c.location {
			strays = append(strays, address)
		}
	}
	c.told = nil
	return strays
}

// late takes an answer to POST that came after the keeper had given it up.
func (c *Claim) late(a *answer) {
	if a.location == "" || a.code != http.StatusCreated && a.code != http.StatusAccepted {
		return
	}
	c.mu.Lock()
	c.told = append(c.told, a.location)
	decided := c.decided
	c.mu.Unlock()
	if decided {
		c.settle("")
	}
}
