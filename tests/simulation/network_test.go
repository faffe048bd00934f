package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/db/replica/order/ordertest"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/models"
)

// sharedLog is the log as one run uses it. It notes what the trace and the conditions need.
type sharedLog struct {
	*ordertest.Server
	run *run
	// decides is the last epoch that the run has seen begin with itself as the decider, 0 if a later one has begun.
	decides atomic.Uint64
}

// Append implements order.Log.
func (l *sharedLog) Append(ctx context.Context, epoch, index uint64, data []byte) error {
	before, began := l.run.s.w.log.Epoch().Number, time.Now()
	err := l.Server.Append(ctx, epoch, index, data)
	l.run.s.w.leaseTime.took(epoch, time.Since(began))
	if now := l.run.s.w.log.Epoch().Number; before == epoch && now != epoch {
		l.run.s.w.reached.note(raisedDuringBatch)
	}
	if err != nil {
		l.run.s.note("append of record %d in epoch %d: %v", index, epoch, err)
	}
	return err
}

// Raise implements order.Log.
func (l *sharedLog) Raise(ctx context.Context, after, last uint64, decider []byte) error {
	err := l.Server.Raise(ctx, after, last, decider)
	if l.run.s.note("raises epoch %d for %q: %v", after+1, decider, err); err == nil && len(decider) == 0 {
		l.run.s.w.reached.note(deciderResigned)
	}
	return err
}

// Follow implements order.Log.
func (l *sharedLog) Follow(ctx context.Context, after uint64, event func(order.Event) error) error {
	err := l.Server.Follow(ctx, after, func(e order.Event) error {
		if e.Epoch != nil {
			decides := uint64(0)
			if string(e.Epoch.Decider) == l.run.about() {
				decides = e.Epoch.Number
			}
			l.decides.Store(decides)
		}
		return event(e)
	})
	if errors.Is(err, order.ErrTrimmed) {
		l.run.s.w.reached.note(compacted)
	}
	return err
}

// deposed reports whether the run decides as far as it knows, and another epoch has begun.
func (l *sharedLog) deposed() bool {
	decides := l.decides.Load()
	return decides != 0 && decides != l.run.s.w.log.Epoch().Number
}

func lateBy(chance float64) error {
	return ordertest.Late(time.Second + time.Duration(chance*float64(2*time.Second)))
}

// peers are the connections of one run to the other servers.
type peers struct {
	*run
	got func() // called when another server's snapshot was received
}

// About implements replica.Peers.
func (p *peers) About() []byte { return []byte(p.about()) }

// Serve implements replica.Peers.
func (p *peers) Serve(h replica.Handler) {
	p.s.w.mu.Lock()
	defer p.s.w.mu.Unlock()
	p.handler = h
}

// Close implements replica.Peers.
func (p *peers) Close() {
	p.s.w.mu.Lock()
	p.handler = nil
	p.s.w.mu.Unlock()
	p.calls.Wait()
}

// Snapshot implements replica.Peers.
func (p *peers) Snapshot(ctx context.Context, about, request []byte, part func([]byte) error) error {
	return p.call(ctx, about, func(ctx context.Context, h replica.Handler) error {
		err := h.SendSnapshot(ctx, request, part)
		if err == nil {
			p.got()
		}
		return err
	})
}

// History implements replica.Peers.
func (p *peers) History(ctx context.Context, about, request []byte, part func([]byte) error) error {
	return p.call(ctx, about, func(ctx context.Context, h replica.Handler) error { return h.SendHistory(ctx, request, part) })
}

// CarryOut implements replica.Peers.
func (p *peers) CarryOut(ctx context.Context, decider, message []byte) (outcome []byte, err error) {
	was := p.s.w.isCommitted(message)
	err = p.call(ctx, decider, func(ctx context.Context, h replica.Handler) (err error) {
		if r := p.s.w.runOf(decider); r != nil && r.log.Load().deposed() {
			p.s.w.reached.note(batchAtDeposed)
		}
		outcome, err = h.CarryOut(ctx, message)
		return err
	})
	if err == nil && was {
		p.s.w.reached.note(fromTable)
	}
	return outcome, err
}

var errNetwork = errors.New("the network is down")

// call calls another run. When that becomes unreachable the call fails, and its result is lost.
func (p *peers) call(ctx context.Context, about []byte, do func(context.Context, replica.Handler) error) error {
	other := p.s.w.runOf(about)
	if other == nil || p.s.faults.has(&p.s.faults.apart) || other.s.faults.has(&other.s.faults.apart) {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, errNetwork)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		other.s.faults.wait(ctx)
		err := other.serveOther(ctx, do)
		other.s.faults.wait(ctx)
		done <- err
	}()
	select {
	case err := <-done:
		if p.s.faults.has(&p.s.faults.apart) || other.s.faults.has(&other.s.faults.apart) {
			return errNetwork // the answer is lost
		}
		return err
	case <-other.gone:
		cancel()
		<-done // so that it uses the results no more
		return errNetwork
	case <-ctx.Done():
		<-done
		return context.Cause(ctx)
	}
}

// serveOther has the run serve another one, unless its connections are closed.
func (r *run) serveOther(ctx context.Context, do func(context.Context, replica.Handler) error) error {
	r.s.w.mu.Lock()
	h := r.handler
	if h == nil {
		r.s.w.mu.Unlock()
		return fmt.Errorf("%w: %w", db.ErrUnavailable, errNetwork)
	}
	r.calls.Add(1)
	r.s.w.mu.Unlock()
	defer r.calls.Done()
	return do(ctx, h)
}

// runOf returns the run that others call so, nil if it is gone.
func (w *world) runOf(about []byte) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.named[string(about)]
	if r == nil {
		return nil
	}
	select {
	case <-r.gone:
		return nil
	default:
		return r
	}
}

// isCommitted reports whether the log has the record of a batch.
func (w *world) isCommitted(message []byte) bool {
	from, _, err := record.ReadBatch(message)
	w.mu.Lock()
	defer w.mu.Unlock()
	return err == nil && w.committed[from]
}

// observe notes what the log has, until a context ends.
func (w *world) observe(ctx context.Context) {
	last := uint64(0)
	for ctx.Err() == nil {
		_ = w.log.Open().Follow(ctx, last, func(e order.Event) error {
			if e.Epoch != nil {
				w.trace.note("log", "epoch %d of %q", e.Epoch.Number, e.Epoch.Decider)
				w.leaseTime.begin(e.Epoch)
			}
			if e.Index <= last {
				return nil
			}
			last = e.Index
			if d, err := record.Read(e.Data); err == nil {
				if err := w.leaseTime.check(d.Lease); err != nil {
					w.Errorf("record %d: %v", e.Index, err)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, b := range d.Batches {
					w.committed[b.Origin] = true
				}
			}
			return nil
		})
	}
}

// network is a client's own network, with the faults of each direction.
type network struct{ requests, answers faults }

// connection is a client's connection to a server, whichever run it has.
type connection struct {
	w       *world
	client  string
	network *network // of the client
	s       *server
}

const (
	// callTimeout is how long a call takes at most.
	callTimeout = 8 * time.Second
	// latency is how long a request is on its way.
	latency = 200 * time.Microsecond
	// unreachableAfter is how long it takes to find a server unreachable.
	unreachableAfter = 10 * time.Millisecond
)

var errUnreachable = status.Error(codes.Unavailable, "the server does not answer")

// Invoke implements grpc.ClientConnInterface.
func (c *connection) Invoke(ctx context.Context, method string, request, reply any, _ ...grpc.CallOption) error {
	r, f := c.s.current(), &c.s.faults
	if r == nil || f.has(&f.alone) {
		sleep(ctx, unreachableAfter)
		return errUnreachable
	}
	if r.log.Load().deposed() && isRead(method) {
		c.w.reached.note(readBehindDeposed)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer := reply.(proto.Message).ProtoReflect().New().Interface()
	done := make(chan error, 1)
	go func() {
		c.network.requests.wait(ctx)
		f.wait(ctx)
		sleep(ctx, latency)
		err := r.local.Invoke(ctx, method, request, answer)
		f.wait(ctx)
		c.network.answers.wait(ctx)
		done <- err
	}()
	var err error
	select {
	case err = <-done:
		if f.has(&f.alone) {
			err = errUnreachable // the answer is lost
		}
	case <-r.gone:
		err = errUnreachable
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	}
	if err == nil {
		proto.Merge(reply.(proto.Message), answer)
	}
	c.noted(method, request, reply, err)
	return err
}

func isRead(method string) bool {
	return strings.HasSuffix(method, "Fetch") || strings.HasSuffix(method, "GetClaim") || strings.HasSuffix(method, "ListClaims")
}

func (c *connection) noted(method string, request, reply any, err error) {
	name := method[strings.LastIndex(method, "/")+1:]
	if err != nil {
		if models.ReasonOf(err) == models.ReasonNoQuorum {
			c.w.reached.note(noQuorum)
		}
		c.w.trace.note(c.client, "at %s: %s {%v}: %v", c.s.name, name, request, err)
		return
	}
	c.w.trace.note(c.client, "at %s: %s {%v}: {%v}", c.s.name, name, request, reply)
}

// NewStream implements grpc.ClientConnInterface.
func (c *connection) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	r, f := c.s.current(), &c.s.faults
	if r == nil || f.has(&f.alone) {
		sleep(ctx, unreachableAfter)
		return nil, errUnreachable
	}
	f.wait(ctx)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-r.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	s, err := r.local.NewStream(ctx, desc, method)
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{s, c, cancel}, nil
}

// stream is a client's end of a stream.
type stream struct {
	grpc.ClientStream
	c      *connection
	cancel context.CancelFunc
}

// SendMsg implements grpc.ClientStream.
func (s *stream) SendMsg(m any) error {
	if s.lost() {
		return errUnreachable
	}
	s.c.w.trace.note(s.c.client, "to %s: {%v}", s.c.s.name, m)
	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && s.lost() {
		proto.Reset(m.(proto.Message))
		err = errUnreachable
	}
	if err != nil {
		s.cancel()
		s.c.w.trace.note(s.c.client, "from %s: %v", s.c.s.name, err)
		return err
	}
	if report, is := m.(*models.WatchResponse); is {
		s.c.w.held.hear(report)
	}
	s.c.w.trace.note(s.c.client, "from %s: {%v}", s.c.s.name, short{m})
	return nil
}

// short prints a message in short.
type short struct{ message any }

func (s short) String() string {
	watched, is := s.message.(*models.WatchResponse)
	if !is {
		return fmt.Sprint(s.message)
	}
	var all []string
	for _, c := range watched.GetSnapshot() {
		all = append(all, fmt.Sprintf("%s %s", c.GetId(), c.GetStatus()))
	}
	for _, t := range watched.GetTransitions() {
		all = append(all, fmt.Sprintf("%s from %s to %s (version %d)", t.GetClaim().GetId(), t.GetBefore(), t.GetClaim().GetStatus(), t.GetClaim().GetVersion()))
	}
	return strings.ReplaceAll(strings.Join(all, ", "), "STATUS_", "")
}

// lost waits while the server is paused, and reports whether it is cut off from its clients: that breaks the stream.
func (s *stream) lost() bool {
	if !s.c.s.faults.cut(s.Context()) {
		return false
	}
	s.cancel()
	return true
}
