package gateway

import (
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// etagOf returns the entity tag of a claim, made from its version, which every change raises. Values that only change
// with time (ttl, durations) do not change it.
func etagOf(version uint64) string { return strconv.Quote(strconv.FormatUint(version, 10)) }

// ifMatch makes a change conditional on the version in the header If-Match (RFC 9110, section 13.1.1). Other tags, and
// weak ones, match no version of a claim.
func ifMatch(message proto.Message, header http.Header) *refusal {
	tags := strings.TrimSpace(strings.Join(header.Values("If-Match"), ","))
	if tags == "" || tags == "*" { // matches every claim
		return nil
	}
	if strings.Contains(tags, ",") {
		return badRequest(problems{"message": "the header If-Match: give one entity tag"})
	}
	quoted, _ := strings.CutPrefix(tags, `"`)
	version, err := strconv.ParseUint(strings.TrimSuffix(quoted, `"`), 10, 64)
	if err != nil || etagOf(version) != tags {
		version = 0
	}
	switch message := message.(type) {
	case *models.UpdateClaimRequest:
		message.IfVersion = &version
	case *models.EndClaimRequest:
		message.IfVersion = &version
	}
	return nil
}
