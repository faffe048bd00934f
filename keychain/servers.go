package keychain

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/locket-service/locket/internal/base/loopback"
)

// servers are the addresses of one service. One of them is asked until it fails, then the
// next one, in their order and round again.
//
// A claim is known by its address at the first server. canonical translates an address of
// another server to it, and route translates it to the current server. An address of no
// server stays unchanged.
type servers struct {
	roots   []*url.URL
	current atomic.Int64  // index of the current server
	plain   []atomic.Bool // by index: whether the server refuses wait TTLs
}

// newServers returns the servers at addresses; the first address is asked first.
func newServers(addresses []string, s *settings) (*servers, error) {
	list := &servers{}
	for _, address := range addresses {
		root, err := parseServer(address, s)
		if err != nil {
			return nil, fmt.Errorf("the server %q: %w", address, err)
		}
		list.roots = append(list.roots, root)
	}
	list.plain = make([]atomic.Bool, len(list.roots))
	return list, nil
}

func parseServer(address string, s *settings) (*url.URL, error) {
	root, err := url.Parse(address)
	if err != nil {
		return nil, errors.Unwrap(err) // without the address, which may have a password
	}
	switch {
	case root.Scheme != "http" && root.Scheme != "https" || root.Host == "" || root.Opaque != "":
		return nil, errors.New("not an address like http://127.0.0.1:8892")
	case root.User != nil || root.RawQuery != "" || root.Fragment != "":
		return nil, errors.New("more than a scheme, a host and a path")
	case root.Scheme == "http" && (s.tls != nil || s.files != nil):
		return nil, errors.New("TLS is for https")
	case s.credential != nil && root.Scheme == "http" && !s.insecure && !loopback.Is(root.Hostname()):
		return nil, errors.New("a bearer credential needs https to another machine, or WithInsecure")
	}
	return root.JoinPath("/"), nil
}

// claims returns the address of POST, at the first server.
func (s *servers) claims() string { return s.roots[0].JoinPath("v1/claims/").String() }

func (s *servers) asked() int { return int(s.current.Load()) }

// refuseWaitTTL notes that a server refuses wait TTLs, and refusesWaitTTL reports it.
func (s *servers) refuseWaitTTL(server int)       { s.plain[server].Store(true) }
func (s *servers) refusesWaitTTL(server int) bool { return s.plain[server].Load() }

// fail moves on to the next server, unless another request has done so already.
// It reports whether there is another.
func (s *servers) fail(failed int) bool {
	next := (failed + 1) % len(s.roots)
	s.current.CompareAndSwap(int64(failed), int64(next))
	return next != failed
}

// find returns the server that an address is below, and the path from there. If two servers match, it returns the
// longer one.
func (s *servers) find(address *url.URL) (server int, path string, found bool) {
	longest := 0
	for i, root := range s.roots {
		rest, below := strings.CutPrefix(address.EscapedPath(), root.EscapedPath())
		if below && isSameHost(address, root) && len(root.Path) > longest {
			server, path, found, longest = i, rest, true, len(root.Path)
		}
	}
	return server, path, found
}

func isSameHost(a, b *url.URL) bool { return a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host) }

// isOurs reports whether an address is on the host of a server, which may see the credential.
func (s *servers) isOurs(address *url.URL) bool {
	for _, root := range s.roots {
		if isSameHost(address, root) {
			return true
		}
	}
	return false
}

// isSecure reports whether every server is asked over TLS.
func (s *servers) isSecure() bool {
	for _, root := range s.roots {
		if root.Scheme != "https" {
			return false
		}
	}
	return true
}

// canonical returns an address at the first server.
func (s *servers) canonical(address *url.URL) string { return s.at(0, address) }

// route returns an address at the current server, and that server's index.
func (s *servers) route(address string) (target string, server int, err error) {
	server = s.asked()
	parsed, err := url.Parse(address)
	if err != nil {
		return "", server, err
	}
	return s.at(server, parsed), server, nil
}

func (s *servers) at(server int, address *url.URL) string {
	from, path, found := s.find(address)
	if !found || from == server {
		return address.String()
	}
	moved := *address
	moved.Scheme, moved.Host = s.roots[server].Scheme, s.roots[server].Host
	escaped := s.roots[server].EscapedPath() + path
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return address.String()
	}
	moved.Path, moved.RawPath = plain, escaped
	return moved.String()
}
