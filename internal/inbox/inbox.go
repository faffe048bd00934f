// Package inbox lets one goroutine hand work to others without waiting for them: the goroutine that commits has none
// of the time that it takes.
package inbox

import "sync"

// Inbox carries out what is put into it, one after the other, in the order in which it came, on a goroutine that is
// there only while there is something to do.
type Inbox struct {
	limit int
	full  func()

	mu       sync.Mutex
	pending  []func()
	running  bool
	overflow bool
}

// New returns an inbox. When limit things wait in it, what is offered is dropped, and full, unless it is nil, is carried
// out once, behind them.
func New(limit int, full func()) *Inbox { return &Inbox{limit: limit, full: full} }

// Put takes something in, whatever waits already. It never waits.
func (b *Inbox) Put(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(do)
}

// Offer is Put, as far as there is room.
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

// run carries out what waits, until nothing does.
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
