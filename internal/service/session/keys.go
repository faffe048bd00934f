package session

import (
	"context"
	"sync"
)

// keys are mutexes by name, which can be waited for with a context.
type keys struct {
	mu   sync.Mutex
	held map[string]*key
}

type key struct {
	free  chan struct{} // has a value while nobody holds the key
	users int
}

// lock waits until nobody else holds the name. It returns the cause of ctx if ctx ends first.
func (k *keys) lock(ctx context.Context, name string) (unlock func(), err error) {
	k.mu.Lock()
	if k.held == nil {
		k.held = make(map[string]*key)
	}
	it := k.held[name]
	if it == nil {
		it = &key{free: make(chan struct{}, 1)}
		it.free <- struct{}{}
		k.held[name] = it
	}
	it.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if it.users--; it.users == 0 {
			delete(k.held, name)
		}
	}
	select {
	case <-it.free:
		return func() { it.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
