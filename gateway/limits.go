package gateway

import (
	"fmt"
	"math"
	"net/http"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// limits sets the headers of a call that exceeds its quota: Retry-After, and the header fields of the IETF's draft
// on RateLimit. A quota that does not refill has no time, and a quota that is not a rate has no window.
func limits(header http.Header, s *status.Status) {
	info := models.ErrorInfoOf(s.Err())
	if info.GetReason() != models.ReasonQuotaExceeded {
		return
	}
	quota, limit := info.GetMetadata()["quota"], info.GetMetadata()["limit"]
	for _, detail := range s.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			seconds := int(math.Ceil(retry.GetRetryDelay().AsDuration().Seconds()))
			header.Set("Retry-After", strconv.Itoa(seconds))
			policy := fmt.Sprintf(`"%s";q=%s`, quota, limit)
			if quota == "requests_per_second" {
				policy += ";w=1"
			}
			header.Set("RateLimit-Policy", policy)
			header.Set("RateLimit", fmt.Sprintf(`"%s";r=0;t=%d`, quota, seconds))
			return
		}
	}
	header.Set("RateLimit", fmt.Sprintf(`"%s";r=0`, quota))
}
