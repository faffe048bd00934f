package cli

import (
	"os"

	locklib "github.com/locket-service/locket/lock"
)

// defaultOwner returns the owner for a command without --owner. No two commands have the same one.
func defaultOwner() string { return locklib.UniqueOwner() }

// ownerOfClaim returns the owner of a claim with an id that a user chose: it is the same when
// the command is repeated, or the second would not find the claim of the first.
func ownerOfClaim(id string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + id
}
