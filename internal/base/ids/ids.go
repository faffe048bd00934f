// Package ids makes the ids of new claims and of requests, for servers and clients, and unique owners.
package ids

import (
	"crypto/rand"
	"encoding/base32"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// digits are in the order of their bytes, so that encoded ids sort as the ids do. No digit needs escaping in a path.
const digits = "0123456789abcdefghijklmnopqrstuv"

var encoding = base32.NewEncoding(digits).WithPadding(base32.NoPadding)

// NewClaim returns the id of a new claim: 26 lower-case letters and digits. It is a UUID of version 7 (RFC 9562) in
// base 32: ids rise with time, to the millisecond across processes, so that new ones fall
// into the same pages of an index. 62 bits come from the system's secure random source, so that nobody can guess an id.
func NewClaim() string {
	id := uuid.Must(uuid.NewV7())
	return encoding.EncodeToString(id[:])
}

// claimLength is the length of an id of NewClaim, in digits.
const claimLength = 26

// IsClaim reports whether an id is one of NewClaim.
func IsClaim(id string) bool {
	bytes, err := encoding.DecodeString(id)
	return err == nil && len(id) == claimLength && bytes[6]>>4 == 7
}

// TimesOf returns the first and the last possible time of ids of NewClaim with a prefix. ok is false if no id has the
// prefix.
func TimesOf(prefix string) (first, last time.Time, ok bool) {
	if len(prefix) > claimLength || strings.Trim(prefix, digits) != "" {
		return first, last, false
	}
	return timeOf(prefix + strings.Repeat("0", timeLength)), timeOf(prefix + strings.Repeat("v", timeLength)), prefix != ""
}

// timeLength is how many digits have the time in milliseconds, which is 48 bits, and two bits more.
const timeLength = 10

func timeOf(id string) time.Time {
	var bits int64
	for _, digit := range id[:timeLength] {
		bits = bits<<5 | int64(strings.IndexRune(digits, digit))
	}
	return time.UnixMilli(bits >> 2)
}

// NewRequest returns the id of a request for the logs of client and server: a random UUID (version 4).
func NewRequest() string { return uuid.NewString() }

// maxHost limits how much of the host's name an owner has, in bytes: the maximum length of a DNS name.
const maxHost = 253

// NewOwner returns a unique owner: HOST/PROCESS/RANDOM, which shows people where the process runs, with 65 bits from
// the system's secure random source. It differs for every call. The host's name is cut to 253 bytes of valid UTF-8,
// and is "unknown" if the system has none.
func NewOwner() string {
	host, err := os.Hostname()
	return newOwner(host, err)
}

func newOwner(host string, err error) string {
	host = strings.ReplaceAll(strings.ToValidUTF8(host, ""), "\x00", "")
	if len(host) > maxHost {
		host = strings.ToValidUTF8(host[:maxHost], "")
	}
	if host == "" || err != nil {
		host = "unknown"
	}
	return host + "/" + strconv.Itoa(os.Getpid()) + "/" + strings.ToLower(rand.Text()[:13])
}
