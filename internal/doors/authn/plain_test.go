package authn

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// pages are the pages of a network, by their URLs; a page that begins with "http" is a redirect.
type pages map[string]string

func (p pages) RoundTrip(r *http.Request) (*http.Response, error) {
	text, found := p[r.URL.String()]
	response := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: io.NopCloser(strings.NewReader(text)), Request: r}
	response.Header.Set("Content-Type", "application/json")
	switch {
	case !found:
		response.StatusCode = http.StatusNotFound
	case strings.HasPrefix(text, "http"):
		response.StatusCode = http.StatusFound
		response.Header.Set("Location", text)
	}
	return response, nil
}

// The keys of an issuer with an HTTPS URL are fetched over HTTPS only, wherever discovery or a redirect points.
func TestKeysOverPlainHTTP(t *testing.T) {
	const issuer = "https://issuer.example"
	const keys = `{"keys": [{"kty": "EC", "crv": "P-256", "kid": "one", "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}`
	found := func(at string) string { return fmt.Sprintf(`{"issuer": %q, "jwks_uri": %q}`, issuer, at) }
	const discovery = issuer + "/.well-known/openid-configuration"
	for name, c := range map[string]struct {
		network pages
		good    bool
	}{
		"over HTTPS":      {pages{discovery: found("https://keys.example/"), "https://keys.example/": keys}, true},
		"led on":          {pages{discovery: found("https://keys.example/"), "https://keys.example/": "https://b.example/", "https://b.example/": keys}, true},
		"in plain text":   {pages{discovery: found("http://keys.example/"), "http://keys.example/": keys}, false},
		"led astray":      {pages{discovery: found("https://keys.example/"), "https://keys.example/": "http://b.example/", "http://b.example/": keys}, false},
		"discovery, too":  {pages{discovery: "http://b.example/", "http://b.example/": found("https://keys.example/"), "https://keys.example/": keys}, false},
		"round and round": {pages{discovery: discovery}, false},
	} {
		_, err := (&remoteKeys{issuer: issuer, client: clientOver(c.network), log: slog.New(slog.DiscardHandler)}).ask()
		if (err == nil) != c.good || !c.good && name != "round and round" && !errors.Is(err, errPlainKeys) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
