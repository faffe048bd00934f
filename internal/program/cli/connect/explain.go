package connect

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/models"
)

// notSent is gRPC's error for a request with a text that is not UTF-8. (A server stores no such text.)
const notSent = "grpc: error while marshaling: string field contains invalid UTF-8"

// Explain returns an error of a call as a person can use it: what happened, where, and what to do. It has the program's exit status.
func (c *Connection) Explain(err error) error {
	call := ErrorOfCall(err) // without the words that package lock puts before it
	if exit := (*exit.Error)(nil); call == nil || errors.As(err, &exit) {
		return err
	}
	err = call
	s := status.Convert(err)
	if info := models.ErrorInfoOf(err); info != nil {
		return explainReason(info.GetReason(), s)
	}
	if s.Code() == codes.Internal && s.Message() == notSent {
		return exit.With(exit.Usage, errors.New("an argument is no UTF-8"))
	}
	switch s.Code() {
	case codes.Canceled:
		return context.Canceled
	case codes.Unavailable:
		return fmt.Errorf("no connection to %s: %s", c.Address(), c.withHint(strings.TrimPrefix(reasonOf(s.Message()), c.Address()+": connect: ")))
	case codes.DeadlineExceeded:
		return fmt.Errorf("no answer from %s within %s: is it a Locket server, and does its database answer? --timeout says how long to wait%s",
			c.Address(), c.Timeout, c.lastError(s.Message()))
	case codes.Unimplemented:
		return fmt.Errorf("%s does not know this request: is it a Locket server? (%s)", c.Address(), s.Message())
	default:
		return fmt.Errorf("%s: %s", c.Address(), c.withHint(s.Message()))
	}
}

// ErrorOfCall returns the error of a call that an error wraps, nil if it wraps none.
func ErrorOfCall(err error) error {
	var wire interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &wire) {
		return nil
	}
	return wire.GRPCStatus().Err()
}

func explainReason(reason string, s *status.Status) error {
	message := errors.New(s.Message())
	switch reason {
	case models.ReasonLockCollision:
		return exit.With(exit.Held, message)
	case models.ReasonClaimNotFound:
		return exit.With(exit.NotFound, fmt.Errorf(`%w: no such claim, or it was pruned from the history; to list the claims: locket claims`, message))
	case models.ReasonPermissionDenied:
		return exit.With(exit.Denied, message)
	case models.ReasonUnauthenticated:
		return exit.With(exit.Denied, fmt.Errorf("%w; --credential-file, --oidc-issuer or --tls-cert say who you are", message))
	case models.ReasonResourceNotFound:
		return exit.With(exit.NotFound, message)
	case models.ReasonInvalidField:
		return exit.With(exit.Usage, fmt.Errorf("the server refuses this: %w", message))
	case models.ReasonInvalidTTL, models.ReasonInvalidOwner, models.ReasonInvalidType:
		return exit.With(exit.Usage, fmt.Errorf("the server refuses this: %w%s", message, wrongFields(s)))
	case models.ReasonDatabaseUnavailable, models.ReasonNoQuorum, models.ReasonOutcomeUnknown, models.ReasonShuttingDown, models.ReasonIssuerUnavailable:
		return fmt.Errorf("the server cannot do this now, try again: %w", message)
	default:
		return message
	}
}

// wrongFields returns a server's detailed complaints about the fields of a request.
func wrongFields(s *status.Status) (text string) {
	for _, detail := range s.Details() {
		wrong, _ := detail.(*errdetails.BadRequest)
		for _, f := range wrong.GetFieldViolations() {
			text += ": " + f.GetField() + " " + f.GetDescription()
		}
	}
	return text
}

// reasonOf returns the innermost part of gRPC's message for a connection that did not come to be, or broke.
func reasonOf(message string) string {
	if _, inner, found := strings.Cut(message, `desc = "`); found {
		if text, err := strconv.Unquote(`"` + strings.TrimSuffix(inner, `"`) + `"`); err == nil {
			message = text
		}
	}
	if i := strings.LastIndex(message, "desc = "); i >= 0 {
		message = message[i+len("desc = "):]
	}
	for _, prefix := range []string{"transport: ", "Error while dialing: ", "dial tcp ", "dial tcp: ", "authentication handshake failed: "} {
		message = strings.TrimPrefix(message, prefix)
	}
	return message
}

// lastError returns the part of gRPC's message on a deadline that is about the connection.
func (s Settings) lastError(message string) string {
	_, inner, found := strings.Cut(message, "last connection error: ")
	if !found {
		return ""
	}
	return " (" + s.withHint(reasonOf(inner)) + ")"
}

// hints are advice for messages that contain a text.
var hints = []struct{ in, hint string }{
	{"connection refused", `start a server with "locket server", or name one with --address or $LOCKET_ADDRESS`},
	{"no such host", "check --address, $LOCKET_ADDRESS and the context"},
	{"signed by unknown authority", "did --tls-ca issue the server's certificate?"},
	{"x509: certificate is valid for", "name the server in --address as its certificate does"},
	{"doesn't contain any IP SANs", "name the server in --address as its certificate does"},
	{"x509: certificate has expired", "the server needs a new certificate, or a clock is wrong"},
	{"first record does not look like a TLS handshake", "the server speaks plain text: leave the --tls flags out"},
	{"HTTP/1.1 header", "that looks like the HTTP port: --address takes the gRPC port, 8891 by default"},
}

// hangUps are the errors of a connection that a server closes because of TLS. Its reason may get lost.
var hangUps = []string{"remote error: tls", "error reading server preface", "EOF", "connection reset", "broken pipe"}

func (s Settings) withHint(message string) string {
	for _, h := range hints {
		if strings.Contains(message, h.in) {
			return message + "; " + h.hint
		}
	}
	for _, in := range hangUps {
		switch {
		case !strings.Contains(message, in):
		case s.secure():
			return message + "; does the server trust the certificate of --tls-cert and --tls-key?"
		default:
			return message + "; does the server want TLS? --tls-ca, --tls-cert and --tls-key"
		}
	}
	return message
}
