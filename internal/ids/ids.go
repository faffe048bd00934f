// Package ids makes the ids of new claims and of requests, for servers and clients, and unique owners.
package ids

import (
	"encoding/base32"

	"github.com/google/uuid"
)

// encoding has its digits in the order of their bytes, so that encoded ids sort as the ids do. No digit needs escaping
// in a path.
var encoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// NewClaim returns the id of a new claim: 26 lower-case letters and digits. It is a UUID of version 7 (RFC 9562) in
// base 32: ids rise with time, to the millisecond across processes, so that new ones fall
// into the same pages of an index. 62 bits come from the system's secure random source, so that nobody can guess an id.
func NewClaim() string {
	id := uuid.Must(uuid.NewV7())
	return encoding.EncodeToString(id[:])
}

// NewRequest returns the id of a request for the logs of client and server: a random UUID (version 4).
func NewRequest() string { return uuid.NewString() }
