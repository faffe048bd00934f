package models

// RequestIDKey is the metadata key of the request id (Cloud Foundry's clients send it). Over
// REST it is the header X-Request-Id.
const RequestIDKey = "uuid"

// maxRequestID is the maximum length of a request id, in bytes.
const maxRequestID = 128

// ValidRequestID reports whether a caller's request id is valid: 1 to 128 characters of printable ASCII. A server
// replaces an invalid id, because ids are written to logs and headers.
func ValidRequestID(id string) bool {
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}
