package gateway_test

import (
	"net/netip"
	"testing"

	"github.com/locket-service/locket/gateway"
)

// TestForwarded: the URLs in answers use the names from a trusted proxy. Its headers are used if they are
// well-formed, and of several values the last.
func TestForwarded(t *testing.T) {
	trusting := startAs(t, func(c *gateway.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32")}
	})
	wary := startAs(t, func(c *gateway.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	c := client(t, nil)
	const claim = "/v1/claims/c/"
	for _, s := range []*server{trusting, wary} {
		do(t, c, "POST", s.url+"/v1/claims", claimOfR).says(t, 201, `"url":"`+s.url+claim+`"`)
	}
	for _, test := range []struct {
		base    string // "" for the server's own
		headers []string
	}{
		{"https://locks.example:1/locket", []string{"X-Forwarded-Proto: https", "X-Forwarded-Host: locks.example:1", "X-Forwarded-Prefix: /locket/"}},
		{"https://b.example", []string{"X-Forwarded-Proto: http, HTTPS", "X-Forwarded-Host: a.example, b.example", "X-Forwarded-Prefix: /"}},
		{"http://locks.example/a/b", []string{"X-Forwarded-Host: locks.example", "X-Forwarded-Prefix: /a/b"}},
		{"", []string{"X-Forwarded-Proto: javascript", "X-Forwarded-Host: a b", "X-Forwarded-Prefix: locket"}},
		{"", []string{"X-Forwarded-Host: locks.example/path", `X-Forwarded-Prefix: /a"b`}},
		{"", []string{"X-Forwarded-Host: ", "X-Forwarded-Proto: "}},
	} {
		base := test.base
		if base == "" {
			base = trusting.url
		}
		do(t, c, "GET", trusting.url+claim, "", test.headers...).says(t, 200, `"url":"`+base+claim+`"`)
		do(t, c, "GET", wary.url+claim, "", test.headers...).says(t, 200, `"url":"`+wary.url+claim+`"`)
	}
}
