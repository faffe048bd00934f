package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The strings of the deprecated field Resource.type.
const (
	LockType     = "lock"
	PresenceType = "presence"
)

// The errors of the four lock RPCs; CreateClaim with no_wait returns ErrLockCollision too. They have the codes and
// messages of Cloud Foundry's Locket. errors.Is(err, ErrLockCollision) is true for errors of calls on a connection of
// package lock, and for errors that FromWire returns. Other errors of calls have details, so that gRPC finds them equal
// to none of these.
var (
	// ErrLockCollision: another owner holds the lock, or waits for it.
	ErrLockCollision = status.Error(codes.AlreadyExists, "lock-collision")
	// ErrInvalidTTL: the TTL is not between 1 second and 100 years.
	ErrInvalidTTL = status.Error(codes.InvalidArgument, "invalid-ttl")
	// ErrInvalidOwner: the owner is empty.
	ErrInvalidOwner = status.Error(codes.InvalidArgument, "invalid-owner")
	// ErrResourceNotFound: the lock is not held.
	ErrResourceNotFound = status.Error(codes.NotFound, "resource-not-found")
	// ErrInvalidType: the type is not "lock" or "presence", or contradicts the type code.
	ErrInvalidType = status.Error(codes.NotFound, "invalid-type")
)

// ErrRolledBack is the error of a request whose token or version is higher than any that the resource has had: see ReasonRolledBack. FromWire
// recognizes it too.
var ErrRolledBack = status.Error(codes.NotFound, "no grant has had this token or version yet: the database was rolled back to an older state, or the token is another resource's")

// AbandonedReason is the reason of a claim that was aborted because nobody asked about it for its wait TTL.
const AbandonedReason = "nobody asked about the claim for its wait TTL"

// DeadlockReason is the beginning of the reason of a claim that was aborted to end a deadlock. The ids of the claims that
// waited follow, each waiting for the next, the aborted one first.
const DeadlockReason = "deadlock: these claims waited for each other: "

// ErrorDomain is the domain of every google.rpc.ErrorInfo that Locket sends.
const ErrorDomain = "locket"

// Reasons in google.rpc.ErrorInfo; ReasonOf returns the reason of an error. Published reasons never change.
const (
	// ReasonLockCollision occurs when another owner holds the lock or waits for it,
	// and when a claim with no_wait would have to wait. Its metadata have "holder", "token" and "claim_id" of the
	// exclusive holder, or "mode": "shared".
	ReasonLockCollision = "LOCK_COLLISION"
	// ReasonInvalidTTL occurs when the TTL of Lock is not between 1 second and 100 years.
	ReasonInvalidTTL = "INVALID_TTL"
	// ReasonInvalidOwner occurs when the owner of Lock is empty.
	ReasonInvalidOwner = "INVALID_OWNER"
	// ReasonInvalidType occurs when type or type_code is unknown, when they contradict each other, and when FetchAll
	// has neither.
	ReasonInvalidType = "INVALID_TYPE"
	// ReasonResourceNotFound occurs when nobody holds the lock, and when the grant
	// with the given token has ended.
	ReasonResourceNotFound = "RESOURCE_NOT_FOUND"
	// ReasonInvalidField occurs when fields of a request are missing, malformed or beyond their limits. It comes with a
	// google.rpc.BadRequest that names each field.
	ReasonInvalidField = "INVALID_FIELD"
	// ReasonAnswerTooLarge occurs when the answer of FetchAll without a limit would have more than 4 MiB. Use a limit,
	// and read page by page.
	ReasonAnswerTooLarge = "ANSWER_TOO_LARGE"
	// ReasonTooManyWaiting occurs when the maximum number of calls wait on this server. Try again later, or at another
	// server; the claim stays in the queue.
	ReasonTooManyWaiting = "TOO_MANY_WAITING"
	// ReasonClaimNotFound occurs when no claim has the id, or it ended so long ago that it was deleted.
	ReasonClaimNotFound = "CLAIM_NOT_FOUND"
	// ReasonIDTaken occurs when CreateClaim has the id of a claim that another request made. If the same request is
	// repeated, it returns its claim.
	ReasonIDTaken = "ID_TAKEN"
	// ReasonClaimWaits occurs when UpdateClaim asks for the status active and the claim still waits. Its metadata have
	// "position", the position in the queue (among the first 1,000), and the same as ReasonLockCollision about the holder.
	ReasonClaimWaits = "CLAIM_WAITS"
	// ReasonWrongStatus occurs when the claim's status does not allow an update, for example the renewal of an ended
	// claim. Its metadata have "status", the claim's status.
	ReasonWrongStatus = "WRONG_STATUS"
	// ReasonVersionChanged occurs when the claim does not have the requested version. Its metadata have "version", the
	// claim's version.
	ReasonVersionChanged = "VERSION_CHANGED"
	// ReasonRolledBack occurs when a request has a token or a version that is higher than any that the resource has had:
	// the database was rolled back to an older state, or the token is another resource's. The grant is lost. Its metadata
	// have "version", the highest one of the resource, if the caller may read it.
	ReasonRolledBack = "ROLLED_BACK"
	// ReasonDatabaseUnavailable occurs when the database cannot be reached, or is too busy. Nothing has changed; try
	// again.
	ReasonDatabaseUnavailable = "DATABASE_UNAVAILABLE"
	// ReasonNoQuorum occurs when a server of a cluster is cut off from the others, or none of them can commit. Nothing has
	// changed; ask another server, or try again.
	ReasonNoQuorum = "NO_QUORUM"
	// ReasonQuarantine occurs after the database was restored from a backup, or was found to be rolled back: what was
	// granted since may still be held, so nothing is granted for the longest TTL. Nothing has changed; try again later.
	ReasonQuarantine = "QUARANTINE"
	// ReasonResourceLocked occurs when a transaction of another server, which has probably failed, keeps the resource
	// locked in the database. Nothing has changed; try again after some seconds. Other resources are not affected.
	ReasonResourceLocked = "RESOURCE_LOCKED"
	// ReasonOverloaded occurs when the server is overloaded: there are more requests than the database can process, or
	// a request costs too much. Nothing has changed; try again later, or with a smaller request.
	ReasonOverloaded = "OVERLOADED"
	// ReasonOutcomeUnknown occurs when the connection to the database broke during a commit. The change may have been
	// made; repeating the request is safe.
	ReasonOutcomeUnknown = "OUTCOME_UNKNOWN"
	// ReasonListTooLong occurs when too many claims would have to be read for the filter of ListClaims, or when the
	// server is busy with such lists. A filter by creation time, by final status, or by a resource with a live status
	// is always answered.
	ReasonListTooLong = "LIST_TOO_LONG"
	// ReasonShuttingDown occurs when the server is shutting down. Use another server.
	ReasonShuttingDown = "SHUTTING_DOWN"
	// ReasonQueueFull occurs when the maximum number of claims wait for a resource.
	ReasonQueueFull = "QUEUE_FULL"
	// ReasonQuotaExceeded occurs when a call would exceed the caller's quota. It comes with metadata "quota" and
	// "limit", a google.rpc.QuotaFailure, and a google.rpc.RetryInfo if the call may be repeated later.
	ReasonQuotaExceeded = "QUOTA_EXCEEDED"
	// ReasonUnauthenticated occurs when a call has no credentials, or invalid ones. The message says which are
	// accepted, and its metadata "www_authenticate" have that as HTTP challenges.
	ReasonUnauthenticated = "UNAUTHENTICATED"
	// ReasonCredentialsEnded occurs when the credentials of a stream or of a waiting call are no longer valid: a bearer
	// credential or a certificate has expired, or was withdrawn or revoked. Call again with other credentials, and
	// resume the session, or continue from the last cursor.
	ReasonCredentialsEnded = "CREDENTIALS_ENDED"
	// ReasonIssuerUnavailable occurs when a JWT cannot be checked because the keys of its issuer cannot be fetched. Try
	// again after some seconds.
	ReasonIssuerUnavailable = "ISSUER_UNAVAILABLE"
	// ReasonAuditUnavailable occurs when a change cannot be recorded in the server's audit log, which the server
	// requires. Nothing has changed; try again, or at another server.
	ReasonAuditUnavailable = "AUDIT_UNAVAILABLE"
	// ReasonPermissionDenied occurs when the server's rules do not allow a call. Its metadata have the missing "right",
	// and the "resource".
	ReasonPermissionDenied = "PERMISSION_DENIED"
	// ReasonSessionEnded occurs when a session has ended: it was closed, its TTL has passed, or an administrator ended
	// it. Open a new session.
	ReasonSessionEnded = "SESSION_ENDED"
	// ReasonSessionSecret occurs when a session is resumed with a wrong secret.
	ReasonSessionSecret = "SESSION_SECRET"
	// ReasonSessionMoved occurs when a session was resumed over another stream.
	ReasonSessionMoved = "SESSION_MOVED"
	// ReasonSessionFull occurs when a session has the maximum number of claims.
	ReasonSessionFull = "SESSION_FULL"
	// ReasonCursorTooOld occurs when changes after the cursor of Watch are no longer kept, or the rules have changed what the caller may see. Watch again without a
	// cursor.
	ReasonCursorTooOld = "CURSOR_TOO_OLD"
	// ReasonWatchTooSlow occurs when the caller of Watch is too slow. Continue from the last cursor.
	ReasonWatchTooSlow = "WATCH_TOO_SLOW"
	// ReasonDeadlock occurs when a waiting claim was aborted to end a deadlock: owners that wait for each other in a
	// cycle. Its metadata "deadlock" has the members in JSON: [{"owner": …, "session": …, "claim": …, "resource": …},
	// …], each with the claim that waited for the resource; as many as fit into 3 KiB.
	ReasonDeadlock = "DEADLOCK"
	// ReasonSessionDetached occurs when a server no longer serves a session: its client was silent, or the server could
	// not reach the database for a while. Resume it, on any server.
	ReasonSessionDetached = "SESSION_DETACHED"
	// ReasonSessionTooSlow occurs when a client does not read the events of its session. Resume the session.
	ReasonSessionTooSlow = "SESSION_TOO_SLOW"
	// ReasonTooManySessions occurs when the maximum number of sessions are attached to this server. Use another server.
	ReasonTooManySessions = "TOO_MANY_SESSIONS"
	// ReasonWrongMode occurs when a session locks a resource that it holds or waits for in another mode. Its metadata
	// have "mode", the present mode.
	ReasonWrongMode = "WRONG_MODE"
)

// ChallengesKey is the metadata key of the HTTP challenges of ReasonUnauthenticated.
const ChallengesKey = "www_authenticate"

// WithInfo returns a status as an error, with a google.rpc.ErrorInfo and other details.
func WithInfo(s *status.Status, reason string, metadata map[string]string, more ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: ErrorDomain, Metadata: metadata}
	detailed, err := s.WithDetails(append([]protoadapt.MessageV1{protoadapt.MessageV1Of(info)}, more...)...)
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}

// maxDenied is the size of the message of a denial, and of the name in it, in bytes. Errors are in the trailer of an answer, and many
// clients accept 8 KiB there. The name may be as large as a request, because nothing of the request is checked
// yet.
const maxDenied = 1 << 10

// Denied returns the error of a call that the rules do not allow. Of a longer message, and of a longer name, it has the beginning.
func Denied(message, right, resource string) error {
	return WithInfo(status.New(codes.PermissionDenied, beginning(message)), ReasonPermissionDenied, map[string]string{"right": right, "resource": beginning(resource)})
}

func beginning(text string) string {
	if len(text) > maxDenied {
		text = strings.ToValidUTF8(text[:maxDenied], "") + "…"
	}
	return text
}

// QuotaExceeded returns the error of a call that would exceed an identity's quota. retry is how long to wait before
// the call may be repeated, 0 if waiting does not help.
func QuotaExceeded(identity, quota, limit string, retry time.Duration) error {
	message := fmt.Sprintf("the quota %s is exceeded: at most %s for each identity", quota, limit)
	details := []protoadapt.MessageV1{protoadapt.MessageV1Of(&errdetails.QuotaFailure{
		Violations: []*errdetails.QuotaFailure_Violation{{Subject: identity, Description: message}},
	})}
	if retry > 0 {
		details = append(details, protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)}))
	}
	return WithInfo(status.New(codes.ResourceExhausted, message), ReasonQuotaExceeded, map[string]string{"quota": quota, "limit": limit}, details...)
}

// ClaimEndedError says that somebody else than its client has ended a claim, and how.
type ClaimEndedError struct {
	// Status is STATUS_UNSPECIFIED if the servers no longer know how the claim has ended.
	Status Status
	// Reason and EndedBy come from the Claim; each may be empty.
	Reason, EndedBy string
}

// ClaimEnded returns how a Claim has ended, or the claim of a SessionStatus: a ClaimEndedError, or a *DeadlockError without
// members.
func ClaimEnded(c interface {
	GetStatus() Status
	GetReason() string
	GetEndedBy() string
},
) error {
	e := ClaimEndedError{Status: c.GetStatus(), Reason: c.GetReason(), EndedBy: c.GetEndedBy()}
	if e.Status == Status_STATUS_ABORTED && strings.HasPrefix(e.Reason, DeadlockReason) {
		return deadlockOf(WithInfo(status.New(codes.Aborted, e.Error()), ReasonDeadlock, nil))
	}
	return e
}

func (e ClaimEndedError) Error() string {
	text := "the claim has ended"
	switch e.Status {
	case Status_STATUS_UNSPECIFIED:
	case Status_STATUS_EXPIRED:
		text = "the claim expired"
	default:
		text = "the claim was " + strings.ToLower(strings.TrimPrefix(e.Status.String(), "STATUS_"))
		if e.EndedBy != "" {
			text += fmt.Sprintf(" by %q", e.EndedBy)
		}
	}
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

// ErrorInfoOf returns the google.rpc.ErrorInfo that Locket sent with an error, wrapped or not. It returns nil, whose
// getters return zero values, if there is none: the error is nil, is not of a call, was made by gRPC itself (no
// connection, a deadline), or is of another service, with another domain.
func ErrorInfoOf(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == ErrorDomain {
			return info
		}
	}
	return nil
}

// ReasonOf returns the reason of an error, one of the constants Reason…; "" if it has no ErrorInfo.
func ReasonOf(err error) string { return ErrorInfoOf(err).GetReason() }

// sentinels are the errors that FromWire recognizes.
var sentinels = []error{ErrLockCollision, ErrInvalidTTL, ErrInvalidOwner, ErrResourceNotFound, ErrInvalidType, ErrRolledBack}

// FromWire wraps an error of a call so that errors.Is finds the matching error of this package, as in
// errors.Is(FromWire(err), ErrLockCollision), and errors.As a *DeadlockError. The text, code, details and wrapped
// errors stay the same. Any other error, and nil, is returned unchanged.
//
// gRPC compares complete status errors (status.Error.Is), so an error with an ErrorInfo, as Locket's are, is not equal
// to one without. Connections of package lock/conn call FromWire for every call; clients with other connections must
// call it themselves.
func FromWire(err error) error {
	var wire interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &wire) {
		return err
	}
	if ReasonOf(err) == ReasonDeadlock {
		return deadlockOf(err)
	}
	got := wire.GRPCStatus()
	for _, sentinel := range sentinels {
		if want := status.Convert(sentinel); got.Code() != want.Code() || got.Message() != want.Message() {
			continue
		}
		if errors.Is(err, sentinel) {
			return err
		}
		return &recognized{err, sentinel}
	}
	return err
}

// recognized is an error of a call that is one of the sentinels, with details.
type recognized struct {
	error
	sentinel error
}

func (e *recognized) Is(target error) bool { return target == e.sentinel }

// Unwrap returns the error as gRPC returned it.
func (e *recognized) Unwrap() error { return e.error }

// GRPCStatus returns the status of the call, with its details.
func (e *recognized) GRPCStatus() *status.Status { return status.Convert(e.error) }

// DeadlockError is an error of reason ReasonDeadlock, as FromWire and the connections and sessions of package lock
// return it: the claim waited in a deadlock, and was aborted to end it.
type DeadlockError struct {
	// Members are the members of the deadlock, each waiting for the next, beginning with the aborted one. Members that
	// the error has no room for, or that the caller may not see, are missing.
	Members []DeadlockMember
	err     error
}

// DeadlockMember is a waiting claim of a deadlock.
type DeadlockMember struct {
	Owner    string `json:"owner,omitempty"`
	Session  string `json:"session,omitempty"`
	Claim    string `json:"claim"`
	Resource string `json:"resource"`
}

// DeadlockKey is the metadata key of the members of a deadlock, in JSON.
const DeadlockKey = "deadlock"

func (e *DeadlockError) Error() string { return e.err.Error() }

// Unwrap returns the error of the call.
func (e *DeadlockError) Unwrap() error { return e.err }

// GRPCStatus returns the status of the call.
func (e *DeadlockError) GRPCStatus() *status.Status { return status.Convert(e.err) }

// deadlockOf returns an error of reason ReasonDeadlock as a DeadlockError.
func deadlockOf(err error) error {
	if known := (*DeadlockError)(nil); errors.As(err, &known) {
		return err
	}
	e := &DeadlockError{err: err}
	if json.Unmarshal([]byte(ErrorInfoOf(err).GetMetadata()[DeadlockKey]), &e.Members) != nil {
		e.Members = nil // of an unknown format
	}
	return e
}
