package models

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The strings of the deprecated field Resource.type.
const (
	LockType     = "lock"
	PresenceType = "presence"
)

// The errors of the four lock RPCs; ErrLockCollision is also that of CreateClaim with no_wait.
// Code and message are those of Cloud Foundry's Locket. errors.Is(err, ErrLockCollision) is
// true for errors of calls on a connection of package lock, and for those that FromWire
// returns; other errors from the wire carry details, and gRPC finds them equal to none of these.
var (
	// ErrLockCollision: another owner holds the lock, or waits for it.
	ErrLockCollision = status.Error(codes.AlreadyExists, "lock-collision")
	// ErrInvalidTTL: the TTL is not in 1 second to 100 years.
	ErrInvalidTTL = status.Error(codes.InvalidArgument, "invalid-ttl")
	// ErrInvalidOwner: the owner is empty.
	ErrInvalidOwner = status.Error(codes.InvalidArgument, "invalid-owner")
	// ErrResourceNotFound: the lock is not held.
	ErrResourceNotFound = status.Error(codes.NotFound, "resource-not-found")
	// ErrInvalidType: the type is not "lock" or "presence", or type and type code do not
	// agree.
	ErrInvalidType = status.Error(codes.NotFound, "invalid-type")
)

// AbandonedReason is the reason of a claim that was aborted because nobody asked about it for its
// wait TTL.
const AbandonedReason = "nobody asked about the claim for its wait TTL"

// ErrorDomain is the domain of every google.rpc.ErrorInfo that Locket sends.
const ErrorDomain = "locket"

// Reasons in google.rpc.ErrorInfo; ReasonOf returns that of an error. They are only added to.
const (
	// ReasonLockCollision occurs when somebody else holds the lock that was to be locked or
	// released, or waits for it; and when CreateClaim with no_wait would have to wait. It comes with metadata "holder", "token" and "claim_id" of who
	// holds the lock exclusively, or "mode": "shared".
	ReasonLockCollision = "LOCK_COLLISION"
	// ReasonInvalidTTL occurs when the TTL of Lock is not in 1 second to 100 years.
	ReasonInvalidTTL = "INVALID_TTL"
	// ReasonInvalidOwner occurs when the owner of Lock is empty.
	ReasonInvalidOwner = "INVALID_OWNER"
	// ReasonInvalidType occurs when type or type_code is unknown, when the two contradict each
	// other, or when FetchAll is given neither.
	ReasonInvalidType = "INVALID_TYPE"
	// ReasonResourceNotFound occurs when nobody holds the lock that was to be fetched or
	// released; and when a token was given, and the grant with that token is over.
	ReasonResourceNotFound = "RESOURCE_NOT_FOUND"
	// ReasonInvalidField occurs when fields of a request are missing, malformed or over their
	// limits. It comes with a google.rpc.BadRequest that names each field.
	ReasonInvalidField = "INVALID_FIELD"
	// ReasonAnswerTooLarge occurs when FetchAll without a limit would answer with more than 4 MiB.
	// Ask with a limit, page by page.
	ReasonAnswerTooLarge = "ANSWER_TOO_LARGE"
	// ReasonTooManyWaiting occurs when as many calls wait on this server as may. Wait a moment, or
	// ask another server; the claim stays in the line.
	ReasonTooManyWaiting = "TOO_MANY_WAITING"
	// ReasonClaimNotFound occurs when no claim has the id, or one that ended so long ago that
	// it was deleted.
	ReasonClaimNotFound = "CLAIM_NOT_FOUND"
	// ReasonIDTaken occurs when CreateClaim is given the id of a claim that another request
	// made. The same request, repeated, finds its claim, and is no error.
	ReasonIDTaken = "ID_TAKEN"
	// ReasonClaimWaits occurs when UpdateClaim asks for the status active, and the claim still
	// waits: others come first. It comes with metadata "position", the claim's place in line (if
	// it is one of the first 1,000), and that of ReasonLockCollision about who holds the resource.
	ReasonClaimWaits = "CLAIM_WAITS"
	// ReasonWrongStatus occurs when UpdateClaim asks for what is impossible in the status that
	// the claim has, such as the renewal of one that has ended. It comes with metadata
	// "status": the status that the claim has.
	ReasonWrongStatus = "WRONG_STATUS"
	// ReasonVersionChanged: the request was for another version of the claim; the metadata has its version now.
	ReasonVersionChanged = "VERSION_CHANGED"
	// ReasonDatabaseUnavailable occurs when the database cannot be reached, or is too busy.
	// Nothing has changed; ask again.
	ReasonDatabaseUnavailable = "DATABASE_UNAVAILABLE"
	// ReasonQuarantine occurs when the database was restored from a backup, and what was granted after that was taken may
	// still be held: nothing is granted for the longest TTL. Code Unavailable; nothing was done.
	ReasonQuarantine = "QUARANTINE"
	// ReasonResourceLocked occurs when a transaction of another server, which was probably lost,
	// keeps the resource locked in the database. Nothing has changed; ask again after some
	// seconds. Other resources are not affected.
	ReasonResourceLocked = "RESOURCE_LOCKED"
	// ReasonOverloaded occurs when the server has too much to do: more requests come than the
	// database can take, or a request costs too much. Nothing has changed; ask again after a
	// pause, or for less.
	ReasonOverloaded = "OVERLOADED"
	// ReasonOutcomeUnknown occurs when the connection to the database broke during a commit.
	// The change may have been made; asking again is safe.
	ReasonOutcomeUnknown = "OUTCOME_UNKNOWN"
	// ReasonListTooLong occurs when too many claims would have to be read for the filter of
	// ListClaims, or when the server is busy with such lists. A filter by creation time, by
	// final status, or by a resource with a live status is always answered.
	ReasonListTooLong = "LIST_TOO_LONG"
	// ReasonShuttingDown occurs when the server is shutting down. Ask another server.
	ReasonShuttingDown = "SHUTTING_DOWN"
	// ReasonQueueFull occurs when as many claims wait for a resource as may.
	ReasonQueueFull = "QUEUE_FULL"
	// ReasonQuotaExceeded occurs when the caller has as much as its quota allows. It comes with
	// metadata "quota" and "limit", a google.rpc.QuotaFailure, and a google.rpc.RetryInfo if the
	// call may be repeated later.
	ReasonQuotaExceeded = "QUOTA_EXCEEDED"
	// ReasonUnauthenticated occurs when a call has no credentials, or not valid ones. The message
	// says what is accepted, and metadata "www_authenticate" has it as challenges of HTTP.
	ReasonUnauthenticated = "UNAUTHENTICATED"
	// ReasonCredentialsEnded occurs when the credentials by which a stream was opened, or with which a call
	// waits, are not valid any more: a bearer credential has expired or was withdrawn, a certificate is out of
	// date or was revoked. Call again with others, and go on: resume the session, or send the last cursor.
	ReasonCredentialsEnded = "CREDENTIALS_ENDED"
	// ReasonIssuerUnavailable occurs when a token cannot be checked, because the keys of its issuer
	// cannot be fetched. Ask again after some seconds.
	ReasonIssuerUnavailable = "ISSUER_UNAVAILABLE"
	// ReasonAuditUnavailable occurs when a call that would change something cannot be recorded in the
	// server's audit log, which the server requires. Nothing was changed; ask again, or another server.
	ReasonAuditUnavailable = "AUDIT_UNAVAILABLE"
	// ReasonPermissionDenied occurs when the server's rules do not allow a call. It comes with
	// metadata "right" and "resource": what a rule would have to allow.
	ReasonPermissionDenied = "PERMISSION_DENIED"
	// ReasonSessionEnded occurs when a session is not there any more: it was closed, its TTL had passed,
	// or an administrator ended it. A new session is a new identity.
	ReasonSessionEnded = "SESSION_ENDED"
	// ReasonSessionSecret occurs when a session is resumed with another secret than its own.
	ReasonSessionSecret = "SESSION_SECRET"
	// ReasonSessionMoved occurs when a session was resumed over another stream.
	ReasonSessionMoved = "SESSION_MOVED"
	// ReasonSessionFull occurs when a session holds and waits for as much as it may.
	ReasonSessionFull = "SESSION_FULL"
	// ReasonCursorTooOld occurs when changes after the cursor of Watch are no longer kept. Begin again
	// without a cursor.
	ReasonCursorTooOld = "CURSOR_TOO_OLD"
	// ReasonWatchTooSlow occurs when the caller of Watch does not keep up. Go on from the last cursor.
	ReasonWatchTooSlow = "WATCH_TOO_SLOW"
	// ReasonDeadlock occurs when a claim that would wait would cause a deadlock, in which each waits for the
	// next: the claim has been withdrawn. It comes with metadata "deadlock", the members in JSON:
	// [{"owner": …, "session": …, "claim": …, "resource": …}, …], each with the claim by which it
	// waits for the resource; as many of them as have room in 3 KiB.
	ReasonDeadlock = "DEADLOCK"
	// ReasonSessionDetached occurs when a server no longer serves a session: it heard nothing from
	// its client, or lost the database for a while. Resume it, on any server.
	ReasonSessionDetached = "SESSION_DETACHED"
	// ReasonSessionTooSlow occurs when a client does not read what the session's stream brings.
	// Resume the session.
	ReasonSessionTooSlow = "SESSION_TOO_SLOW"
	// ReasonTooManySessions occurs when as many sessions are attached to this server as may be. Ask
	// another server.
	ReasonTooManySessions = "TOO_MANY_SESSIONS"
	// ReasonWrongMode occurs when a session locks a resource that it holds, or waits for, in another
	// mode. It comes with metadata "mode": the mode that it has.
	ReasonWrongMode = "WRONG_MODE"
)
