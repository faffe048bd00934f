package ids

import (
	"crypto/rand"
	"os"
	"strconv"
	"strings"
)

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
