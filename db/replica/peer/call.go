package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/locket-service/locket/db/replica/record"
)

// Calls return db.ErrUnavailable, wrapped, when nothing was done, and db.ErrOutcomeUnknown when that is not known. They
// return the errors of the other server's Handler, and ErrAbout.

// CarryOut has another server carry out a message. It returns record.ErrNotSent for one that is too large.
func (p *Peer) CarryOut(ctx context.Context, about, message []byte) (outcome []byte, err error) {
	err = p.call(ctx, about, message, func(ctx context.Context, conn *grpc.ClientConn, noted grpc.CallOption) error {
		return conn.Invoke(ctx, path(callCarryOut), message, &outcome, noted)
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
	err = p.call(ctx, about, request, func(ctx context.Context, conn *grpc.ClientConn, noted grpc.CallOption) error {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path(call), noted)
		if err == nil {
			err = stream.SendMsg(request)
		}
		if err == nil || errors.Is(err, io.EOF) { // then RecvMsg has the error
			err = stream.CloseSend()
		}
		for err == nil {
			var got []byte
			if err = stream.RecvMsg(&got); err == nil {
				if refused = part(got); refused != nil {
					return nil
				}
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
func (p *Peer) call(ctx context.Context, about, message []byte, do func(context.Context, *grpc.ClientConn, grpc.CallOption) error) error {
	if len(message) > MaxMessageBytes {
		return fmt.Errorf("%w: it has %d bytes, and %d are the limit", record.ErrNotSent, len(message), MaxMessageBytes)
	}
	l, err := p.links.use(about)
	if err != nil {
		return err
	}
	defer l.release()
	var to peer.Peer // gRPC fills it if the call was sent
	if err := do(withSecret(ctx, l.about.Secret), l.conn, grpc.Peer(&to)); err != nil {
		return l.errorOf(ctx, err, to.Addr != nil)
	}
	return nil
}

var callOptions = []grpc.CallOption{
	grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes),
}
