package ordertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/locket-service/locket/db/replica/order"
)

// Server is the log as one server uses it.
type Server struct {
	shared *Shared

	mu            sync.Mutex
	before, after func(op string) error
	paused        chan struct{} // closed by Resume; nil unless paused
	cut           chan struct{} // closed by Cut
	seen          int           // how many beats this server knows of
	closed        chan struct{}
}

var _ order.Log = (*Server)(nil)

// Late makes the error for a fault before a commit that fails the call at once, and attempts the commit after a delay.
func Late(by time.Duration) error { return lateError(by) }

type lateError time.Duration

func (l lateError) Error() string { return fmt.Sprintf("the commit is late by %v", time.Duration(l)) }

var (
	errClosed = errors.New("closed")
	errCut    = errors.New("cut off")
	errLag    = errors.New("lags behind")
)

// Open returns the log for one more server.
func (s *Shared) Open() *Server {
	return &Server{shared: s, cut: make(chan struct{}), closed: make(chan struct{})}
}

// Fail sets the faults. Each call of an operation calls before, commits, and calls after; either may be nil.
// An error fails the call: one of before, unless it is Late, means that nothing is committed, and one of after that the
// outcome is lost. A fault that waits makes the call slow. The operations are append, beat, raise, last, follow, trim,
// cluster, announce, announced, and event: before is called with it before each event of Follow.
func (s *Server) Fail(before, after func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

// Pause cuts the server off: calls wait, before and after their commits, and Follow gives no events, until Resume.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == nil {
		s.paused = make(chan struct{})
	}
}

// Resume ends a pause.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused != nil {
		close(s.paused)
		s.paused = nil
	}
}

// Cut ends each Follow with ErrUnavailable.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// Close implements order.Log.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

// pass waits for the end of a pause and calls a fault.
func (s *Server) pass(ctx context.Context, op string, after bool) error {
	s.mu.Lock()
	fault, paused := s.before, s.paused
	if after {
		fault = s.after
	}
	s.mu.Unlock()
	if paused != nil {
		select {
		case <-paused:
			return s.pass(ctx, op, after)
		case <-ctx.Done():
		case <-s.closed:
		}
	}
	if err := s.ended(ctx); err != nil {
		return err
	}
	if fault != nil {
		return unavailable(fault(op))
	}
	return nil
}

// ended returns an error when the context has ended or the log is closed.
func (s *Server) ended(ctx context.Context) error {
	select {
	case <-s.closed:
		return unavailable(errClosed)
	default:
		return unavailable(context.Cause(ctx))
	}
}

func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", order.ErrUnavailable, err)
}

// do carries out an operation with its faults.
func (s *Server) do(ctx context.Context, op string, commit func(*Shared) error) error {
	locked := func() error {
		s.shared.mu.Lock()
		defer s.shared.mu.Unlock()
		return commit(s.shared)
	}
	if err := s.pass(ctx, op, false); err != nil {
		var late lateError
		if errors.As(err, &late) {
			time.AfterFunc(time.Duration(late), func() { _ = locked() })
		}
		return err
	}
	err := locked()
	if lost := s.pass(ctx, op, true); lost != nil {
		return lost
	}
	return err
}

// Cluster implements order.Log.
func (s *Server) Cluster(ctx context.Context, proposed, last uint64) (id uint64, err error) {
	var read uint64
	err = s.do(ctx, "cluster", func(l *Shared) error {
		if l.state.cluster == 0 && proposed != 0 {
			l.state.cluster = proposed
			if last > 0 {
				l.state.first, l.state.records = last, []record{{}}
			}
		}
		read = l.state.cluster
		return nil
	})
	if err != nil {
		return 0, err
	}
	return read, nil
}

// Append implements order.Log.
func (s *Server) Append(ctx context.Context, epoch, index uint64, data []byte) error {
	if len(data) > order.MaxRecord {
		return order.ErrTooLarge
	}
	data = bytes.Clone(data) // the commit may be late
	return s.do(ctx, "append", func(l *Shared) error { return l.append(epoch, index, data) })
}

// Beat implements order.Log.
func (s *Server) Beat(ctx context.Context, epoch uint64) error {
	return s.do(ctx, "beat", func(l *Shared) error { return l.beat(epoch) })
}

// Raise implements order.Log.
func (s *Server) Raise(ctx context.Context, after, last uint64, decider []byte) error {
	decider = bytes.Clone(decider)
	return s.do(ctx, "raise", func(l *Shared) error { return l.raise(after, last, decider, s.sees(l.state.beats)) })
}

// sees notes how many beats there were, and reports whether there are new ones.
func (s *Server) sees(beats int) (isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isNew = beats > s.seen
	s.seen = max(s.seen, beats)
	return isNew
}

// Last implements order.Log.
func (s *Server) Last(ctx context.Context, applied uint64) (index uint64, err error) {
	var read uint64
	err = s.do(ctx, "last", func(l *Shared) error {
		read = l.state.last()
		return l.state.after(applied)
	})
	if err != nil {
		return 0, err
	}
	return read, nil
}

// Trim implements order.Log.
func (s *Server) Trim(ctx context.Context, upTo uint64) error {
	return s.do(ctx, "trim", func(l *Shared) error { return l.trim(upTo) })
}

// Announce implements order.Log.
func (s *Server) Announce(ctx context.Context, server string, about []byte) error {
	about = bytes.Clone(about)
	return s.do(ctx, "announce", func(l *Shared) error {
		if about == nil {
			delete(l.state.servers, server)
		} else {
			l.state.servers[server] = about
		}
		return nil
	})
}

// Announced implements order.Log.
func (s *Server) Announced(ctx context.Context) (servers map[string][]byte, err error) {
	var read map[string][]byte
	err = s.do(ctx, "announced", func(l *Shared) error {
		read = maps.Clone(l.state.servers)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return read, nil
}

// Follow implements order.Log.
func (s *Server) Follow(ctx context.Context, after uint64, event func(order.Event) error) error {
	s.mu.Lock()
	cut := s.cut
	s.mu.Unlock()
	var (
		events   []change
		position int
		restored chan struct{}
	)
	err := s.do(ctx, "follow", func(l *Shared) error {
		restored, position = l.restore, l.dropped+len(l.history)
		epoch := l.state.epoch
		events = append(events, change{order.Event{Epoch: &epoch}, 0})
		if l.state.beats > 0 && s.sees(l.state.beats) {
			events = append(events, change{order.Event{}, 0})
		}
		for i, r := range l.state.records {
			if index := l.state.first + uint64(i); index > after {
				events = append(events, change{order.Event{Index: index, Data: r.data}, 0})
			}
		}
		return l.state.after(after)
	})
	for err == nil {
		if err = s.deliver(ctx, cut, restored, events, event); err == nil {
			events, err = s.next(ctx, cut, restored, position)
			position += len(events)
		}
	}
	return err
}

// deliver gives events to the caller of Follow.
func (s *Server) deliver(ctx context.Context, cut, restored chan struct{}, events []change, event func(order.Event) error) error {
	for _, e := range events {
		if err := s.pass(ctx, "event", false); err != nil {
			return err
		}
		select {
		case <-cut:
			return unavailable(errCut)
		case <-restored:
			return unavailable(errCut)
		default:
		}
		s.sees(e.beats)
		if err := event(e.Event); err != nil {
			return err
		}
	}
	return nil
}

// next waits for the changes behind a position.
func (s *Server) next(ctx context.Context, cut, restored chan struct{}, position int) ([]change, error) {
	for {
		s.shared.mu.Lock()
		behind := position - s.shared.dropped
		var events []change
		if behind >= 0 {
			events = slices.Clone(s.shared.history[behind:])
		}
		changed := s.shared.changed
		s.shared.mu.Unlock()
		switch {
		case behind < 0:
			return nil, unavailable(errLag)
		case len(events) > 0:
			return events, nil
		}
		select {
		case <-changed:
		case <-cut:
			return nil, unavailable(errCut)
		case <-restored:
			return nil, unavailable(errCut)
		case <-ctx.Done():
			return nil, unavailable(context.Cause(ctx))
		case <-s.closed:
			return nil, unavailable(errClosed)
		}
	}
}
