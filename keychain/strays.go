package keychain

import (
	"context"
	"net/http"
	"time"
)

// settle decides which claim is kept, once its address is known, or "" if there will be
// none. A POST that was repeated may have made others, on a server that does not
// know the header Idempotency-Key: they are withdrawn when their addresses become known.
func (c *Claim) settle(location string) {
	for _, stray := range c.published.settle(location) {
		c.keychain.withdrawStray(stray)
	}
}

// late handles the answer to a POST that the worker had dropped.
func (c *Claim) late(a *answer) {
	if a.location == "" || a.code != http.StatusCreated && a.code != http.StatusAccepted {
		return
	}
	if c.published.hear(a.location) {
		c.settle("")
	}
}

// withdrawStray withdraws a claim that was made in addition to the kept one. The caller is a
// task of the keychain.
func (kc *Keychain) withdrawStray(address string) {
	kc.mu.Lock()
	kc.strays++
	kc.mu.Unlock()
	kc.tasks.Go(func() {
		defer func() {
			kc.mu.Lock()
			defer kc.mu.Unlock()
			kc.strays--
			kc.tellFewer()
		}()
		ctx, cancel := context.WithTimeout(kc.ctx, kc.releaseTimeout)
		defer cancel()
		r := kc.ending(sendWithdraw, address)
		for attempts := 1; ; attempts++ {
			a := kc.wire.do(ctx, r)
			if a.event() != eventFailed {
				kc.log.Info("stray claim withdrawn", "url", address)
				return
			}
			select {
			case <-time.After(kc.retries.Withdraw.pause(attempts, kc.releaseTimeout)):
			case <-ctx.Done():
				kc.log.Warn("stray claim not withdrawn; it is left to its TTL", "url", address, "error", a.failure())
				return
			}
		}
	})
}
