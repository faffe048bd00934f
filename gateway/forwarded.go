package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// proxies are the addresses of the proxies whose X-Forwarded headers are used. From others these headers are ignored.
type proxies []netip.Prefix

func (p proxies) trust(remote string) bool {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	for _, prefix := range p {
		if prefix.Contains(address.Addr().Unmap()) {
			return true
		}
	}
	return false
}

// baseOf returns the beginning of the URLs in an answer, as the client sees it: scheme and host, and the path prefix of
// a proxy.
func (p proxies) baseOf(r *http.Request) string {
	scheme, host, prefix := "http", r.Host, ""
	if r.TLS != nil {
		scheme = "https"
	}
	if p.trust(r.RemoteAddr) {
		if forwarded := strings.ToLower(last(r.Header, "X-Forwarded-Proto")); forwarded == "http" || forwarded == "https" {
			scheme = forwarded
		}
		if forwarded := last(r.Header, "X-Forwarded-Host"); forwarded != "" && onlyHas(forwarded, ".-_:[]") {
			host = forwarded
		}
		if forwarded := last(r.Header, "X-Forwarded-Prefix"); strings.HasPrefix(forwarded, "/") && onlyHas(forwarded, "/.-_~%") {
			prefix = "/" + strings.Trim(forwarded, "/")
		}
	}
	if host == "" { // HTTP/1.0
		host = r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
	}
	return scheme + "://" + host + strings.TrimSuffix(prefix, "/")
}

// last returns the last value of a header, which the nearest proxy has set.
func last(header http.Header, name string) string {
	values := header.Values(name)
	if len(values) == 0 {
		return ""
	}
	value := values[len(values)-1]
	return strings.TrimSpace(value[strings.LastIndex(value, ",")+1:])
}

// onlyHas reports whether a text has only ASCII letters, digits, and some other characters.
func onlyHas(text, others string) bool {
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}
