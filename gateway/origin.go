package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// A page that somebody opens in a browser can send requests to every server that this browser
// reaches, one on loopback included. Refused are those that a page of another origin sends
// (origins), and those that ask for a name which is not this server's, because the
// page's own name now leads here (hosts, in this file). With readBody, which takes no type of content that a
// page may send unasked, each of them is enough against simple requests.

// hosts are the names that the header Host of a request may have, besides addresses and those
// of loopback.
type hosts struct {
	names map[string]bool
	// only refuses other names on every connection, and not on those to loopback alone.
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

// allow reports whether a request may ask for its Host. An address may always be asked for, since
// no name leads from it to another one. With TLS the certificate has the names.
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

// hostName returns a host without its port, in the one form that compares equal.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// onLoopback reports whether the connection of a request came in on loopback.
func onLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	address, err := netip.ParseAddrPort(local.String())
	return err == nil && address.Addr().Unmap().IsLoopback()
}

// refuse returns nil for a request that may be answered.
func (h hosts) refuse(r *http.Request) *refusal {
	if h.allow(r) {
		return nil
	}
	return &refusal{code: http.StatusMisdirectedRequest, body: problems{
		"message": "the Host of the request is not a name of this server; --http-hosts lists those that it has",
	}}
}
