package peer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/record"
)

// An error of a Handler travels as a status with an ErrorInfo. A status without one was not made by a Handler.

// domain is the domain of each ErrorInfo.
const domain = "peer.locket"

// reasons are the errors that keep their types. The first one that an error is counts.
var reasons = []struct {
	name string
	code codes.Code
	err  error
}{
	{"OUTCOME_UNKNOWN", codes.Unknown, db.ErrOutcomeUnknown},
	{"OLD_BATCH", codes.FailedPrecondition, replica.ErrOldBatch},
	{"NOT_DECIDER", codes.FailedPrecondition, replica.ErrNotDecider},
	{"UNAVAILABLE", codes.Unavailable, db.ErrUnavailable},
	{"FORMAT", codes.InvalidArgument, record.ErrFormat},
}

// maxText bounds the text of an error.
const maxText = 1024

// statusOf returns the status of an error.
func statusOf(err error) error {
	text := err.Error()
	text = strings.ToValidUTF8(text[:min(len(text), maxText)], "")
	is := reasons[0]
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			is = r
			break
		}
	}
	s, failed := status.New(is.code, text).WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: is.name})
	if failed != nil {
		return status.Error(is.code, text)
	}
	return s.Err()
}

// failedError is an error of a call.
type failedError struct {
	address string
	text    string
	is      error
}

func (e *failedError) Error() string { return e.address + ": " + e.text }

func (e *failedError) Unwrap() error { return e.is }

// errorOf returns the error of a call, which ended with a status. sent says whether the other server may have got the call.
func (l *link) errorOf(ctx context.Context, err error, sent bool) error {
	s, address := status.Convert(err), l.about.Address
	for _, detail := range s.Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetDomain() == domain {
			return &failedError{address, s.Message(), carried(info.GetReason())}
		}
	}
	is := db.ErrUnavailable
	if refused := s.Code() == codes.Unauthenticated || s.Code() == codes.Unimplemented; sent && !refused {
		is = db.ErrOutcomeUnknown
	}
	switch {
	case ctx.Err() != nil:
		return &failedError{address, fmt.Sprint(is, ": ", context.Cause(ctx)), fmt.Errorf("%w: %w", is, context.Cause(ctx))}
	case l.dead.Load():
		return &failedError{address, fmt.Sprintf("%s: the server has not answered for %s", is, pingTimeout), is}
	}
	return &failedError{address, fmt.Sprint(is, ": ", s.Message()), is}
}

// carried returns the error of a reason. It is db.ErrOutcomeUnknown for one that this locket does not know.
func carried(reason string) error {
	for _, r := range reasons {
		if r.name == reason {
			return r.err
		}
	}
	return db.ErrOutcomeUnknown
}
