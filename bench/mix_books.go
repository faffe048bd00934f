package main

import (
	"fmt"
	"sync"
	"time"
)

// book records one resource as its clients see it: its holder, the last token, and when a holder last asked to release
// it.
type book struct {
	resource string

	mu     sync.Mutex
	holder string
	token  uint64
	ended  time.Time // zero if it is uncertain
}

// hold records that a client has learned that its claim is active.
func (b *book) hold(claim string, token uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holder != "" {
		return fmt.Errorf("%s is held twice: by %s, and by %s", b.resource, b.holder, claim)
	}
	if token <= b.token {
		return fmt.Errorf("%s: token %d of %s comes after %d", b.resource, token, claim, b.token)
	}
	b.holder, b.token = claim, token
	return nil
}

// leave records that the holder is about to release.
func (b *book) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holder, b.ended = "", time.Now()
}

// withdraw records a withdrawal by a client that does not know whether it already holds.
func (b *book) withdraw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = time.Time{}
}

// freed returns when the previous claim asked to be ended, if that is known.
func (b *book) freed() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}
