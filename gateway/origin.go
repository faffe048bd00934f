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

const (
	// Pages of allowed origins may send corsMethods and corsHeaders, and may read the headers in corsExposed.
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Prefer, X-Request-Id"
	corsExposed = "ETag, Link, Locket-Api, Location, Preference-Applied, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id"
	// corsAge is for how many seconds a browser may cache the answer to a preflight.
	corsAge = "600"
)

// origins are the origins, other than the server's own, whose pages may use the server.
type origins struct {
	protection *http.CrossOriginProtection
	allowed    map[string]bool
}

func newOrigins(configured []string) (*origins, error) {
	o := &origins{protection: http.NewCrossOriginProtection(), allowed: make(map[string]bool)}
	for _, origin := range configured {
		if err := o.protection.AddTrustedOrigin(origin); err != nil || strings.ToLower(origin) != origin {
			return nil, fmt.Errorf("the origin %q: must be as browsers send it, like https://console.example.com", origin)
		}
		o.allowed[origin] = true
	}
	return o, nil
}

// ValidOrigins returns an error if an origin is invalid.
func ValidOrigins(origins []string) error {
	_, err := newOrigins(origins)
	return err
}

// refuse refuses a request from a page of an origin that is not allowed; otherwise it returns nil. It refuses requests
// that change nothing too: the page could not see the answer, but a watch uses resources. Following a link to a page of
// this server is allowed.
func (o *origins) refuse(r *http.Request) *refusal {
	unsafe := *r
	unsafe.Method = http.MethodPost
	if followsLink(r) || o.protection.Check(&unsafe) == nil {
		return nil
	}
	return &refusal{code: http.StatusForbidden, body: problems{"message": "pages of other origins may not use this server; --http-origins lists the allowed origins"}}
}

// followsLink reports whether a person follows a link. Frames and prefetches need nobody's action.
func followsLink(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Sec-Purpose") == "" &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// allow lets pages of an allowed origin read the answer.
func (o *origins) allow(w http.ResponseWriter, r *http.Request) {
	if len(o.allowed) == 0 {
		return
	}
	header := w.Header()
	header.Add("Vary", "Origin")
	if origin := r.Header.Get("Origin"); o.allowed[origin] {
		header.Set("Access-Control-Allow-Origin", origin)
		header.Set("Access-Control-Expose-Headers", corsExposed)
	}
}

// answer answers a CORS preflight of an allowed origin, and reports whether the request was one.
func (o *origins) answer(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodOptions || !o.allowed[r.Header.Get("Origin")] || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", corsMethods)
	w.Header().Set("Access-Control-Allow-Headers", corsHeaders)
	w.Header().Set("Access-Control-Max-Age", corsAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}
