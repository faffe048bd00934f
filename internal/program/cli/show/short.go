package show

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/locket-service/locket/internal/base/ids"
)

// The minimum lengths of short ids, so that few others begin alike: ids of claims have the time to the millisecond, ids
// of sessions 32 random bits.
const (
	ShortClaim   = 10
	ShortSession = 8
)

// Shortener returns how a terminal shows the ids of a list: as the shortest prefixes that distinguish them. Ids that users chose
// stay whole.
func Shortener(list []string, shortest int) func(id string) string {
	length, list := shortest, slices.Sorted(slices.Values(list))
	for i, id := range slices.Compact(list) {
		for i > 0 && strings.HasPrefix(id, list[i-1][:min(length, len(list[i-1]))]) && length < len(id) {
			length++
		}
	}
	return func(id string) string {
		if len(id) > length && (ids.IsClaim(id) || uuid.Validate(id) == nil) {
			return id[:length]
		}
		return id
	}
}
