package main

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

const (
	// maxBatch is how many commands a record holds at most.
	maxBatch = 512
	// muteAfter is how long the oldest append may take until the decider stops answering, and giveUpAfter until it stops deciding.
	muteAfter, giveUpAfter = time.Second, 2 * time.Second
)

var errNotDecider = errors.New("this server does not decide")

// command is a caller's request. done is closed when its outcome is known.
type command struct {
	body []byte
	done chan struct{}
	err  error
}

// batcher appends the commands that arrive while an append is under way as the next record: group commit. With a depth above 1 the next
// appends do not wait for the one before.
type batcher struct {
	log   log
	epoch uint64
	beat  time.Duration // the longest time between two records, 0 for none
	depth int
	// gatherFor is how long a batch waits at most for callers that were just answered: most of them ask again.
	gatherFor time.Duration
	event     func(what string, index uint64, took time.Duration)

	mu       sync.Mutex
	waiting  []*command
	closed   bool
	wake     chan struct{}
	reorders int // how many appends found the record before missing
}

func newBatcher(l log, epoch uint64, beat time.Duration, depth int, event func(string, uint64, time.Duration)) *batcher {
	return &batcher{log: l, epoch: epoch, beat: beat, depth: depth, event: event, wake: make(chan struct{}, 1)}
}

// submit waits until a command is in the log.
func (b *batcher) submit(body []byte) error {
	c := &command{body: body, done: make(chan struct{})}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return errNotDecider
	}
	b.waiting = append(b.waiting, c)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	<-c.done
	return c.err
}

func (b *batcher) take() []*command {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), maxBatch)
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return batch
}

// run appends records from index next on until the epoch is raised, an append takes too long, or the context ends.
func (b *batcher) run(ctx context.Context, next uint64) (failure error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	defer func() {
		group.Wait()
		b.refuse(failure)
	}()
	free := make(chan struct{}, b.depth)
	beat := time.NewTimer(0)
	answered := 0
	for {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		b.mu.Lock()
		expected := answered + len(b.waiting)
		b.mu.Unlock()
		var batch []*command
		for due := false; len(batch) == 0 && !due; batch = b.take() {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-b.wake:
			case <-beat.C:
				due = true
			}
		}
		if b.beat > 0 {
			beat.Reset(b.beat)
		}
		if b.gatherFor > 0 && len(batch) > 0 {
			batch = b.gather(batch, expected)
		}
		answered = len(batch)
		b.again()
		r := record{index: next, epoch: b.epoch, body: pack(batch)}
		next++
		group.Go(func() {
			err := b.commit(ctx, r)
			for _, c := range batch {
				c.err = err
				close(c.done)
			}
			if err != nil {
				cancel(err)
			}
			<-free
		})
	}
}

// gather adds commands to a batch until it has nine tenths of the expected ones, for gatherFor at most.
func (b *batcher) gather(batch []*command, expected int) []*command {
	late := time.NewTimer(b.gatherFor)
	defer late.Stop()
	for len(batch) < min(expected*9/10, maxBatch) {
		select {
		case <-b.wake:
			batch = append(batch, b.take()...)
		case <-late.C:
			return append(batch, b.take()...)
		}
	}
	return batch
}

// again wakes the loop if commands are left.
func (b *batcher) again() {
	b.mu.Lock()
	left := len(b.waiting) > 0
	b.mu.Unlock()
	if left {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

// commit attempts to append a record until its outcome is known or it has taken too long.
func (b *batcher) commit(ctx context.Context, r record) error {
	begin := time.Now()
	mute := time.AfterFunc(muteAfter, func() { b.event("mute", r.index, time.Since(begin)) })
	defer mute.Stop()
	ctx, cancel := context.WithTimeout(ctx, giveUpAfter)
	defer cancel()
	for attempt := 0; ; attempt++ {
		err := b.log.append(withAttempt(ctx, attempt), r)
		switch {
		case err == nil, errors.Is(err, errThere):
			b.event("append", r.index, time.Since(begin))
			return nil
		case errors.Is(err, errDeposed):
			return err
		case errors.Is(err, errGap):
			b.mu.Lock()
			b.reorders++
			b.mu.Unlock()
		case ctx.Err() == nil:
			b.event("error "+describe(err), r.index, time.Since(begin))
			wait(ctx, 10*time.Millisecond)
		}
		if ctx.Err() != nil {
			b.event("unknown", r.index, time.Since(begin))
			return context.DeadlineExceeded
		}
	}
}

// refuse fails all commands that are left, and those to come.
func (b *batcher) refuse(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, c := range b.waiting {
		c.err = err
		close(c.done)
	}
	b.waiting = nil
}

func pack(batch []*command) []byte {
	var body []byte
	for _, c := range batch {
		body = binary.AppendUvarint(body, uint64(len(c.body)))
		body = append(body, c.body...)
	}
	return body
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
