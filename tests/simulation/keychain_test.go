package simulation_test

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/locket-service/locket/keychain"
)

// keep is a process that holds resources by a keychain, one after the other, as long as the keychain reports that it holds them.
func (c *client) keep() {
	over := c.web()
	var urls []string
	for n := range c.servers {
		urls = append(urls, c.servers[(c.server+n)%len(c.servers)].url())
	}
	keys, err := keychain.New(urls[0], keychain.WithFailover(urls[1:]...), keychain.WithTransport(over),
		keychain.WithReleaseTimeout(10*time.Second), keychain.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		panic(err)
	}
	holds := false
	for n := c.IntN(3); n >= 0 && c.ctx.Err() == nil; n-- {
		holds = c.keepOne(keys, over)
	}
	if c.IntN(6) == 0 {
		if close(over.dead); holds {
			c.reached.note(keychainDied)
		}
	}
	_ = keys.Close()
	over.transport.CloseIdleConnections()
}

// keepOne holds a resource by a keychain for a while, and reports whether the keychain still holds it then.
func (c *client) keepOne(keys *keychain.Keychain, over *web) (holds bool) {
	key := c.key()
	ctx, cancel := context.WithTimeout(c.ctx, time.Duration(c.IntN(8000))*time.Millisecond)
	defer cancel()
	claim, err := keys.Claim(ctx, key, keychain.WithOwner(c.newID()), keychain.WithTTL(leaseTTL), keychain.WithWaitTTL(15*time.Second))
	if err != nil {
		c.trace.note(c.name, "%v", err)
		return false
	}
	c.trace.note(c.name, "the keychain holds %s by claim %s with token %d", key, claim.ID(), claim.Token())
	if c.IntN(3) == 0 {
		ttl := time.Duration(1+c.IntN(4)) * time.Second
		c.clients.Go(func() { _ = claim.Refresh(c.ctx, ttl) })
	}
	before := over.last.Load()
	switch lost := c.trusts(key, func() (uint64, bool) { return claim.Token(), claim.Held() }); {
	case lost:
		c.awaitLoss(claim)
		return false
	case over.last.Load() != before:
		c.reached.note(keychainMoved)
	}
	if c.IntN(3) == 0 {
		return true
	}
	_ = claim.Release(context.Background())
	return false
}

// awaitLoss fails the test unless the keychain reports that a claim which it holds no longer is lost.
func (c *client) awaitLoss(claim *keychain.Claim) {
	select {
	case <-claim.Done():
	case <-time.After(time.Second): // real time: none, simulations run in bubbles
		c.Errorf("%s: the keychain does not report that it holds %s no longer", c.name, claim.Resource())
		return
	}
	if c.trace.note(c.name, "%v", claim.Err()); !errors.Is(claim.Err(), keychain.ErrLost) || claim.Held() {
		c.Errorf("%s: a lost claim is held (%t) or has the error %v", c.name, claim.Held(), claim.Err())
		return
	}
	c.reached.note(keychainLost)
}
