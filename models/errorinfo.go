package models

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

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
