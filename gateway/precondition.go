package gateway

import (
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// etagOf returns the entity tag of a claim, which is its version: every change of the claim moves it. What runs
// with time alone (ttl, durations) does not.
func etagOf(version uint64) string { return strconv.Quote(strconv.FormatUint(version, 10)) }

// ifMatch has a change made only if the claim has the version that the header If-Match names (RFC 9110,
// section 13.1.1). A tag that is none of a claim, or weak, names no version that a claim has.
func ifMatch(message proto.Message, header http.Header) *refusal {
	tags := strings.TrimSpace(strings.Join(header.Values("If-Match"), ","))
	if tags == "" || tags == "*" { // any claim that is there
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
