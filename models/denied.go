package models

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
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
