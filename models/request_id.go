package models

// RequestIDKey is the metadata key of the request id (Cloud Foundry's clients send it). Over
// REST it is the header X-Request-Id.
const RequestIDKey = "uuid"

// maxRequestID is how many bytes a request id may have.
const maxRequestID = 128

// ValidRequestID reports whether an id that a caller gave to its request may be used: 1 to 128
// characters of printable ASCII. A server generates another id for a request whose id is not
// valid, since ids are written to logs and headers.
func ValidRequestID(id string) bool {
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}
