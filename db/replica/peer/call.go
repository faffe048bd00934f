package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/locket-service/locket/db/replica/record"
)

// Calls return db.ErrUnavailable, wrapped, when nothing was done, and db.ErrOutcomeUnknown when that is not known. They
// return the errors of the other server's Handler, and ErrAbout.

// CarryOut has another server carry out a message. It returns record.ErrNotSent for one that is too large.
func (p *Peer) CarryOut(ctx context.Context, about, message []byte) (outcome []byte, err error) {
	err = p.call(ctx, about, message, func(ctx context.Context, conn *grpc.ClientConn) error {
		return conn.Invoke(ctx, path(callCarryOut), message, &outcome)
	})
	return outcome, err
}

// Snapshot asks another server for a snapshot, and calls part for each part of the answer. It returns an error of part.
func (p *Peer) Snapshot(ctx context.Context, about, request []byte, part func([]byte) error) error {
	return p.parts(ctx, about, callSnapshot, request, part)
}

// History does so for ended claims.
func (p *Peer) History(ctx context.Context, about, request []byte, part func([]byte) error) error {
	return p.parts(ctx, about, callHistory, request, part)
}

func (p *Peer) parts(ctx context.Context, about []byte, call string, request []byte, part func([]byte) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var refused error
	err = p.call(ctx, about, request, func(ctx context.Context, conn *grpc.ClientConn) error {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path(call))
		if err == nil {
			err = stream.SendMsg(request)
		}
		if err == nil || errors.Is(err, io.EOF) { // then RecvMsg has the error
			err = stream.CloseSend()
		}
		for err == nil {
			var got []byte
			if err = stream.RecvMsg(&got); err == nil {
				refused = part(got)
				err = refused
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	return cmp.Or(refused, err)
}

// call makes a call.
func (p *Peer) call(ctx context.Context, about, message []byte, do func(context.Context, *grpc.ClientConn) error) error {
	if len(message) > MaxMessageBytes {
		return fmt.Errorf("%w: it has %d bytes, and %d are the limit", record.ErrNotSent, len(message), MaxMessageBytes)
	}
	l, err := p.links.use(about)
	if err != nil {
		return err
	}
	defer l.release()
	noted, sent := noteSent(withSecret(ctx, l.about.Secret))
	if err := do(noted, l.conn); err != nil {
		return l.errorOf(ctx, err, sent.Load())
	}
	return nil
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
