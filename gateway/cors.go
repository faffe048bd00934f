package gateway

import (
	"fmt"
	"net/http"
	"strings"
)

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
