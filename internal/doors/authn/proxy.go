package authn

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"

	"golang.org/x/net/http/httpguts"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/rules/access"
)

// Proxy configures which proxies authenticate callers, and their headers.
type Proxy struct {
	// Identities are the identities of the proxies' client certificates, as auth.OfCertificate names them.
	Identities []string
	// Loopback trusts every connection from a loopback address, so everybody on this machine.
	Loopback bool
	// UserHeader is the header with the name of the user; DefaultUserHeader if it is empty.
	UserHeader string
	// GroupsHeader is the header with the user's groups, separated by commas or semicolons; "" for none. A backslash
	// escapes a separator in a name, as Shibboleth does.
	GroupsHeader string
}

// DefaultUserHeader is the default of Proxy.UserHeader.
const DefaultUserHeader = "X-Remote-User"

func (c Proxy) enabled() bool { return len(c.Identities) > 0 || c.Loopback }

// Validate returns an error if a header is invalid.
func (c Proxy) Validate() error {
	_, err := newProxy(c)
	return err
}

// proxy reads the headers of the trusted proxies.
type proxy struct {
	identities   map[string]bool
	loopback     bool
	user, groups string // in lower case
}

// reserved are headers with another meaning.
var reserved = map[string]bool{authorization: true, "host": true, "connection": true, "uuid": true, "cookie": true, "content-type": true}

func newProxy(c Proxy) (*proxy, error) {
	p := &proxy{identities: make(map[string]bool), loopback: c.Loopback, user: strings.ToLower(c.UserHeader), groups: strings.ToLower(c.GroupsHeader)}
	for _, identity := range c.Identities {
		p.identities[identity] = true
	}
	if p.user == "" {
		p.user = strings.ToLower(DefaultUserHeader)
	}
	for _, name := range []string{p.user, p.groups} {
		if name == "" {
			continue
		}
		if !httpguts.ValidHeaderFieldName(name) || reserved[name] || strings.HasPrefix(name, "grpc-") || strings.HasSuffix(name, "-bin") || strings.Contains(name, "_") {
			return nil, fmt.Errorf("the identity header %q: must be the name of a header of its own, without underscores", name)
		}
	}
	if p.user == p.groups {
		return nil, errors.New("the headers of the user and of the groups are the same")
	}
	return p, nil
}

// headers returns the names of the identity headers, none without a proxy.
func (p *proxy) headers() []string {
	switch {
	case len(p.identities) == 0 && !p.loopback:
		return nil
	case p.groups == "":
		return []string{p.user}
	}
	return []string{p.user, p.groups}
}

// trusts reports whether a connection comes from a trusted proxy: by its certificate, or by the address of the peer,
// never by a header.
func (p *proxy) trusts(client *peer.Peer, cert *x509.Certificate) bool {
	if cert != nil && len(p.identities) > 0 {
		if id, err := auth.OfCertificate(cert); err == nil && p.identities[id.Name] {
			return true
		}
	}
	if !p.loopback || client == nil {
		return false
	}
	address, ok := client.Addr.(*net.TCPAddr)
	return ok && address.IP.IsLoopback()
}

// identity returns the identity that a proxy names. It refuses a repeated header: one of them may be the client's.
// Without the header the proxy names nobody.
func (p *proxy) identity(ctx context.Context) (id access.Identity, found bool, err error) {
	users := metadata.ValueFromIncomingContext(ctx, p.user)
	var groups []string
	if p.groups != "" {
		groups = metadata.ValueFromIncomingContext(ctx, p.groups)
	}
	switch {
	case len(users) == 0:
		return id, false, nil
	case len(users) > 1 || p.groups != "" && len(groups) > 1:
		return id, true, fmt.Errorf("the header %s or the groups' header is there more than once", http.CanonicalHeaderKey(p.user))
	case users[0] == "", users[0] == "(null)": // what Apache writes for a variable that is not set
		return id, false, nil
	}
	var names []string
	if p.groups != "" && len(groups) == 1 {
		names = splitGroups(groups[0])
	}
	id, err = auth.NewIdentity(auth.ProxyPrefix, users[0], names)
	return id, true, err
}

var (
	groupName = regexp.MustCompile(`(\\[,;]|[^,;])+`)
	unescape  = strings.NewReplacer(`\,`, `,`, `\;`, `;`)
)

func splitGroups(header string) (names []string) {
	for _, name := range groupName.FindAllString(header, -1) {
		if name = strings.TrimSpace(unescape.Replace(name)); name != "" {
			names = append(names, name)
		}
	}
	return names
}
