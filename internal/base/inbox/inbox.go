// Package inbox lets a goroutine hand work to others without waiting, so that the goroutine that commits, or keeps a
// lock, is not delayed.
package inbox

import "sync"

// Inbox calls the functions that are put into it, one after the other, in their order. Its goroutine runs only while
// there are some, so it needs no end. The zero value is ready for Put and Flush.
type Inbox struct {
	limit int
	full  func()

	mu       sync.Mutex
	pending  []func()
	running  bool
	overflow bool
}

// New returns an inbox. When limit functions wait, Offer drops further ones, and full is called once, after the
// waiting ones. full may be nil.
func New(limit int, full func()) *Inbox { return &Inbox{limit: limit, full: full} }

// Put adds a function without a limit. It never waits.
func (b *Inbox) Put(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(do)
}

// Flush returns when all functions put before have been called.
func (b *Inbox) Flush() {
	done := make(chan struct{})
	b.Put(func() { close(done) })
	<-done
}

// Offer is Put if fewer than the limit wait.
func (b *Inbox) Offer(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.pending) < b.limit:
		b.put(do)
	case !b.overflow && b.full != nil:
		b.overflow = true
		b.put(b.full)
	}
}

func (b *Inbox) put(do func()) {
	b.pending = append(b.pending, do)
	if !b.running {
		b.running = true
		go b.run()
	}
}

// run calls the functions until none waits.
func (b *Inbox) run() {
	for {
		b.mu.Lock()
		work := b.pending
		b.pending = nil
		b.running = len(work) > 0
		b.mu.Unlock()
		if len(work) == 0 {
			return
		}
		for _, do := range work {
			do()
		}
	}
}
