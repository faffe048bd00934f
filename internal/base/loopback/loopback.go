// Package loopback recognizes this machine among the hosts of addresses.
package loopback

import (
	"net/netip"
	"strings"
)

// Is reports whether a host, without a port, is this machine, by its spelling alone: nothing is looked up.
func Is(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
