package cli

import (
	"crypto/rand"
	"fmt"
	"os"
)

// defaultOwner returns the owner of whoever names none: the host, the process and a random
// text, so that no two commands are the same owner by accident.
func defaultOwner() string { return fmt.Sprintf("%s/%d/%s", host(), os.Getpid(), rand.Text()[:8]) }

// ownerOfClaim returns the owner of a claim with an id that a user chose: it is the same when
// the command is repeated, or the second would not find the claim of the first.
func ownerOfClaim(id string) string { return host() + "/" + id }

func host() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}
