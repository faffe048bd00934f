package models

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
)

// ChallengesKey is the metadata of ReasonUnauthenticated that has the challenges of HTTP.
const ChallengesKey = "www_authenticate"

// WithInfo returns the error of a status, with a google.rpc.ErrorInfo and other details.
func WithInfo(s *status.Status, reason string, metadata map[string]string, more ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: ErrorDomain, Metadata: metadata}
	detailed, err := s.WithDetails(append([]protoadapt.MessageV1{protoadapt.MessageV1Of(info)}, more...)...)
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}

// Denied returns the error of a call that the rules do not allow.
func Denied(message, right, resource string) error {
	return WithInfo(status.New(codes.PermissionDenied, message), ReasonPermissionDenied, map[string]string{"right": right, "resource": resource})
}
