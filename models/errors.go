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
	// ReasonDatabaseUnavailable occurs when the database cannot be reached, or is too busy.
	// Nothing has changed; ask again.
	ReasonDatabaseUnavailable = "DATABASE_UNAVAILABLE"
	// ReasonOutcomeUnknown occurs when the connection to the database broke during a commit.
	// The change may have been made; asking again is safe.
	ReasonOutcomeUnknown = "OUTCOME_UNKNOWN"
	// ReasonShuttingDown occurs when the server is shutting down. Ask another server.
	ReasonShuttingDown = "SHUTTING_DOWN"
)
