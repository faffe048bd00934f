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

// The errors of the four lock RPCs. Code and message are those of Cloud Foundry's Locket;
// compare both. errors.Is does not find an error from the wire equal to these, because it
// carries details besides.
var (
	// ErrLockCollision: somebody else holds the lock, or waits for it.
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

// Reasons in google.rpc.ErrorInfo. They are only added to.
const (
	// ReasonLockCollision comes with metadata "holder", "token" and "claim_id" of who
	// holds the lock exclusively, or "mode": "shared".
	ReasonLockCollision    = "LOCK_COLLISION"
	ReasonInvalidTTL       = "INVALID_TTL"
	ReasonInvalidOwner     = "INVALID_OWNER"
	ReasonInvalidType      = "INVALID_TYPE"
	ReasonResourceNotFound = "RESOURCE_NOT_FOUND"
	// ReasonInvalidField comes with a google.rpc.BadRequest that names each field.
	ReasonInvalidField  = "INVALID_FIELD"
	ReasonClaimNotFound = "CLAIM_NOT_FOUND"
	ReasonIDTaken       = "ID_TAKEN"
	// ReasonClaimWaits: the claim is not active yet, others come first.
	ReasonClaimWaits = "CLAIM_WAITS"
	// ReasonWrongStatus comes with metadata "status": the status that the claim has.
	ReasonWrongStatus = "WRONG_STATUS"
	// ReasonDatabaseUnavailable: nothing has changed; ask again.
	ReasonDatabaseUnavailable = "DATABASE_UNAVAILABLE"
	// ReasonOutcomeUnknown: the change may have been made; asking again is safe.
	ReasonOutcomeUnknown = "OUTCOME_UNKNOWN"
	// ReasonShuttingDown: ask another server.
	ReasonShuttingDown = "SHUTTING_DOWN"
)
