//go:build soak

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
)

// TestSoakGoroutinesDisturbed: goroutines of three clients ask for the same resources in all ways, and give up at any
// moment, while networks and the server fail. Exclusive holds never overlap, no call outlasts its context, and at the
// end no unwanted claim is left.
func TestSoakGoroutinesDisturbed(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) { newDisturbed(t, w).run(seed) })
		})
	}
}

// disturbed has the goroutines and their holds.
type disturbed struct {
	t       *testing.T
	w       *world
	nets    []clients
	clients []*lock.Client
	keys    []string

	mu    sync.Mutex
	holds map[string]map[*lock.Hold]bool // by resource; true for one that is shared
}

func newDisturbed(t *testing.T, w *world) *disturbed {
	c := &disturbed{t: t, w: w, keys: []string{"a", "b", "c"}, holds: make(map[string]map[*lock.Hold]bool)}
	for range 3 {
		net := w.beside()
		c.nets, c.clients = append(c.nets, net), append(c.clients, net.client(lock.WithTTL(5*time.Second)))
	}
	for _, key := range c.keys {
		c.holds[key] = make(map[*lock.Hold]bool)
	}
	return c
}

func (c *disturbed) run(seed uint64) {
	working, end := context.WithCancel(c.t.Context())
	var all sync.WaitGroup
	for n := range uint64(24) {
		all.Go(func() {
			for rnd := rand.New(rand.NewPCG(seed, n)); working.Err() == nil; {
				c.hold(rnd)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(seed, 1000))
	for range 25 {
		c.disturb(rnd)
	}
	end()
	all.Wait()
	time.Sleep(30 * time.Second) // for releases in the background
	for _, key := range c.keys {
		queue, err := c.w.own().GetQueue(c.t.Context(), &models.GetQueueRequest{Resource: key})
		must(c.t, err)
		if len(queue.GetHolders())+len(queue.GetWaiters()) > 0 {
			c.t.Errorf("left: %v", queue)
		}
		for _, client := range c.clients {
			must(c.t, client.Do(c.t.Context(), key, func(context.Context, uint64) error { return nil }))
		}
	}
}

// hold asks for a resource, and holds it for a while.
func (c *disturbed) hold(rnd *rand.Rand) {
	client, key, shared := c.clients[rnd.IntN(len(c.clients))], c.keys[rnd.IntN(len(c.keys))], rnd.IntN(2) == 0
	var options []lock.AcquireOption
	if shared {
		options = append(options, lock.WithShared())
	}
	if rnd.IntN(4) == 0 {
		options = append(options, lock.WithValue(fmt.Sprint(rnd.IntN(2))))
	}
	acquire := client.Acquire
	if rnd.IntN(3) == 0 {
		acquire = client.TryAcquire
	}
	timeout := time.Duration(1+rnd.IntN(3000)) * time.Millisecond
	ctx, cancel := context.WithTimeout(c.t.Context(), timeout)
	defer cancel()
	started := time.Now()
	held, err := acquire(ctx, key, options...)
	if took := time.Since(started); took > timeout+100*time.Millisecond {
		c.t.Errorf("%v instead of %v: %v", took, timeout, err)
	}
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, models.ErrLockCollision) {
			c.t.Error(err)
		}
		time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
		return
	}
	c.enter(key, held, shared)
	time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
	c.leave(key, held)
	ctx, cancel = context.WithTimeout(c.t.Context(), time.Duration(rnd.IntN(1000))*time.Millisecond)
	defer cancel()
	_ = held.Release(ctx)
}

// enter fails the test if others hold a resource that must not.
func (c *disturbed) enter(key string, held *lock.Hold, shared bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, isShared := range c.holds[key] {
		if (!shared || !isShared) && other.Err() == nil && held.Err() == nil {
			c.t.Errorf("%s is held with %d and with %d", key, other.Token(), held.Token())
		}
	}
	c.holds[key][held] = shared
}

func (c *disturbed) leave(key string, held *lock.Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.holds[key], held)
}

// disturb has something fail for a while.
func (c *disturbed) disturb(rnd *rand.Rand) {
	net := c.nets[rnd.IntN(len(c.nets))]
	switch rnd.IntN(4) {
	case 0:
		net.Set(locktest.Cut)
	case 1:
		net.Set(locktest.Silent)
	case 2:
		c.w.restart(time.Duration(rnd.IntN(1500)) * time.Millisecond)
	}
	time.Sleep(time.Duration(rnd.IntN(4000)) * time.Millisecond)
	net.Set(locktest.Open)
	time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
}
