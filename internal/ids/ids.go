// Package ids makes the ids of new claims and of requests, for servers and clients alike, and
// owners that nobody else has.
package ids

import (
	"encoding/base32"

	"github.com/google/uuid"
)

// encoding has the digits in the order of their characters, so that ids sort as their bytes
// do, and none that needs escaping in a path.
var encoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// NewClaim returns the id of a new claim: 26 lower-case letters and digits. It is a UUID of
// version 7 (RFC 9562) in base 32: ids rise with the time of their making, to the millisecond
// across processes, so that new ones fall into the same pages of an index. 62 of its bits are
// from the system's secure random source, so nobody can guess the ids of others.
func NewClaim() string {
	id := uuid.Must(uuid.NewV7())
	return encoding.EncodeToString(id[:])
}

// NewRequest returns the id of a request, which the logs of client and server contain: a
// random UUID (version 4).
func NewRequest() string { return uuid.NewString() }
