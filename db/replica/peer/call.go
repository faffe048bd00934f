package peer

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/locket-service/locket/db/replica/record"
)

// Calls return db.ErrUnavailable, wrapped, when nothing was done, and db.ErrOutcomeUnknown when that is not known. They
// return the errors of the other server's Handler, and ErrAbout.

// CarryOut has another server carry out a batch. It returns record.ErrNotSent for a batch that is too large.
func (p *Peer) CarryOut(ctx context.Context, about, batch []byte) (outcome []byte, err error) {
	return p.call(ctx, about, callCarryOut, batch)
}

// Register registers this server's name with another server.
func (p *Peer) Register(ctx context.Context, about []byte, name string) error {
	_, err := p.call(ctx, about, callRegister, []byte(name))
	return err
}

// Alive tells another server that this one is alive.
func (p *Peer) Alive(ctx context.Context, about []byte, name string) error {
	_, err := p.call(ctx, about, callAlive, []byte(name))
	return err
}

func (p *Peer) call(ctx context.Context, about []byte, call string, in []byte) (out []byte, err error) {
	if len(in) > MaxMessageBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, and %d are the limit", record.ErrNotSent, len(in), MaxMessageBytes)
	}
	l, err := p.links.use(about)
	if err != nil {
		return nil, err
	}
	defer l.release()
	noted, sent := noteSent(withSecret(ctx, l.about.Secret))
	if err := l.conn.Invoke(noted, path(call), in, &out); err != nil {
		return nil, l.errorOf(ctx, err, sent.Load())
	}
	return out, nil
}

// sentKey is the key of a call's flag that its header may have been sent.
type sentKey struct{}

func noteSent(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return context.WithValue(ctx, sentKey{}, sent), sent
}

// sentNotes is a stats.Handler that sets the flags of calls.
type sentNotes struct{}

// HandleRPC implements stats.Handler.
func (sentNotes) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, is := s.(*stats.OutHeader); is {
		if sent, is := ctx.Value(sentKey{}).(*atomic.Bool); is {
			sent.Store(true)
		}
	}
}

// TagRPC implements stats.Handler.
func (sentNotes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (sentNotes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (sentNotes) HandleConn(context.Context, stats.ConnStats) {}

var callOptions = []grpc.CallOption{
	grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes),
}
