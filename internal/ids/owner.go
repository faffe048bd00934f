package ids

import (
	"crypto/rand"
	"os"
	"strconv"
	"strings"
)

// maxHost is how much of the host's name an owner has, in bytes: the longest name of the DNS.
const maxHost = 253

// NewOwner returns an owner that nobody else has: HOST/PROCESS/RANDOM, for people to see where
// it runs, with 65 bits from the system's secure random source. It differs for every call. The
// host's name is cut to 253 bytes of valid UTF-8, and "unknown" where the system has none.
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
