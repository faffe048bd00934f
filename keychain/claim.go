package keychain

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Claim is a claim that the keychain keeps active until it is released or lost. Its methods may be called by any
// number of goroutines.
type Claim struct {
	keychain  *Keychain
	resource  string
	published published

	// commands reach the worker until the claim has ended.
	commands chan command
	outcome  chan error    // what Keychain.Claim returns; gets one value
	ended    chan struct{} // closed when the claim is in a final state
	result   error         // of ending it; read it after ended is closed
}

func newClaim(kc *Keychain, resource string) *Claim {
	return &Claim{
		keychain: kc, resource: resource, published: published{lost: make(chan struct{})},
		commands: make(chan command), outcome: make(chan error, 1), ended: make(chan struct{}),
	}
}

// command is a request of the client.
type command struct {
	event event
	// cause is why the claim is ended.
	cause error
	// first is set if the command must not interrupt an end in progress.
	first bool
	// ttl is the new TTL of a refresh; 0 changes nothing.
	ttl time.Duration
	// asked is when, and renewed gets the result of a refresh.
	asked   time.Time
	renewed chan error
}

// await returns when the claim is active, or cannot become active any more.
func (c *Claim) await(ctx context.Context) error {
	select {
	case err := <-c.outcome:
		return err
	case <-ctx.Done():
		c.giveUp(context.Cause(ctx))
		return context.Cause(ctx)
	case <-c.keychain.closing: // which ends the claim
		return ErrClosed
	}
}

// giveUp starts the end of the claim. When it returns, the claim is not held, and does not prevent the next one, even
// if the worker is not done.
func (c *Claim) giveUp(cause error) {
	c.published.giveUp()
	c.tell(command{event: eventRelease, cause: cause})
}

// tell sends the worker a command, unless the claim has ended.
func (c *Claim) tell(cmd command) {
	select {
	case c.commands <- cmd:
	case <-c.ended:
	}
}

// Resource returns the name of the claimed resource.
func (c *Claim) Resource() string { return c.resource }

// ID returns the claim's id at the server.
func (c *Claim) ID() string { return c.published.now().id }

// URL returns the claim's address.
func (c *Claim) URL() string { return c.published.now().location }

// Token returns the fencing token: the target of a write refuses tokens lower than one that it has seen. It is 0 if
// the server has no tokens.
func (c *Claim) Token() uint64 { return c.published.now().token }

// Held reports whether the claim holds the resource at this moment. It reads the clock and asks no server, so it is
// right even directly after a long pause. Check it before each step that must not be done twice.
func (c *Claim) Held() bool { return c.published.now().held() && c.published.now().isWanted() }

// Done returns a channel that is closed as soon as the claim is not held any more: it was lost, or is being ended.
func (c *Claim) Done() <-chan struct{} { return c.published.lost }

// Err returns nil while Done is open. Then it returns ErrReleased, ErrClosed, or an error that wraps ErrLost.
func (c *Claim) Err() error {
	if err := c.published.now().loss; err != nil {
		return c.named(err)
	}
	return nil
}

// named returns an error that says which claim it is about.
func (c *Claim) named(err error) error { return fmt.Errorf("claim %q: %w", c.resource, err) }

// Refresh renews the claim now, and returns when that has succeeded, the claim is lost, or ctx is done. The keychain
// renews claims by itself; Refresh also changes the TTL of all later renewals, even if this one fails. 0 keeps the
// TTL.
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
		return c.published.now().loss
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-cmd.renewed:
		return err
	case <-ctx.Done():
		select {
		case err := <-cmd.renewed: // at the same time, as after a pause
			return err
		default:
			return context.Cause(ctx)
		}
	}
}

// Validate asks the server, and returns nil if the claim is held according to the server and to the clock. If the
// server denies it, the keychain tries to renew the claim, which is lost if that fails too. If the server does not
// answer, Validate returns that error, and the claim may still be held: see Held.
func (c *Claim) Validate(ctx context.Context) error {
	err := c.published.now().loss
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

// look asks the current server, and the next one while one fails.
func (c *Claim) look(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.keychain.ctx, cancel)()
	wire, r := c.keychain.wire, request{method: http.MethodGet, url: c.URL(), timeout: c.keychain.requestTimeout}
	a := wire.do(ctx, r)
	for range wire.servers.roots[1:] {
		if a.blamesServer() {
			a = wire.do(ctx, r)
		}
	}
	switch status := a.member("status"); {
	case a.err != nil, a.foreign:
		return a.failure()
	case a.code == http.StatusOK && status == "active":
		return nil
	case a.code == http.StatusNotFound, a.code == http.StatusOK && status != "":
		return c.refresh(ctx, 0)
	default:
		return a.failure()
	}
}

// Release releases the claim, and returns when the server has released it. The claim counts as not held from the call
// on. The request is repeated while no server can be reached, for the time of WithReleaseTimeout (ErrNotEnded). If ctx
// is done, it continues in the background. Releasing a claim again is not an error; releasing a lost one is.
func (c *Claim) Release(ctx context.Context) error {
	c.giveUp(ErrReleased)
	select {
	case <-c.ended:
	case <-ctx.Done():
		select {
		case <-c.ended: // at the same time, as after a pause
		default:
			return context.Cause(ctx)
		}
	}
	if c.result == nil {
		return nil
	}
	return c.named(c.result)
}
