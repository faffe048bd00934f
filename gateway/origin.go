package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// A page in a browser can send requests to every server that the browser can reach, even on loopback. Two checks
// refuse them: requests of pages of another origin (origins), and requests for a host name that is not this server's,
// because the name of a malicious page was made to resolve to this server (hosts, in this file). Together with
// readBody, which refuses content types that a page may send without a preflight, either check is enough against simple
// requests.

// hosts are the names that the header Host may have, in addition to IP addresses and the names of loopback.
type hosts struct {
	names map[string]bool
	// only refuses other names on all connections; otherwise they are refused only on loopback.
	only bool
}

func newHosts(configured []string) hosts {
	h := hosts{names: make(map[string]bool), only: len(configured) > 0}
	for _, name := range configured {
		h.names[hostName(name)] = true
	}
	if own, err := os.Hostname(); err == nil {
		h.names[hostName(own)] = true
	}
	return h
}

// ValidHosts returns an error for a name in Config.Hosts that no request can have.
func ValidHosts(names []string) error {
	for _, name := range names {
		if name == "" || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-._:[]") != "" {
			return fmt.Errorf("%q: must be a name or an address, like locket.example.com", name)
		}
	}
	return nil
}

// allow reports whether the Host of a request is allowed. IP addresses always are, because they cannot be made to
// resolve elsewhere. With TLS the certificate has the names.
func (h hosts) allow(r *http.Request) bool {
	name := hostName(r.Host)
	if r.TLS != nil || name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || h.names[name] {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	return !h.only && !onLoopback(r)
}

// hostName returns a host without its port, in a normal form.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// onLoopback reports whether the connection of a request arrived on loopback.
func onLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	address, err := netip.ParseAddrPort(local.String())
	return err == nil && address.Addr().Unmap().IsLoopback()
}

// refuse returns the refusal of a request whose Host is not allowed, otherwise nil.
func (h hosts) refuse(r *http.Request) *refusal {
	if h.allow(r) {
		return nil
	}
	return &refusal{code: http.StatusMisdirectedRequest, body: problems{
		"message": "the Host of the request is not a name of this server; --http-hosts lists its names",
	}}
}
