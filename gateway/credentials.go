package gateway

import (
	"net/url"
	"strings"
)

// inQuery are query parameters that clients of other services use for credentials (RFC 6750, section 2.3).
var inQuery = []string{"access_token", "api_key", "apikey", "auth_token", "authorization", "id_token", "password", "token"}

// refuseCredentials refuses a credential in a query, valid or not, because proxies, browsers and logs keep URLs.
func refuseCredentials(query url.Values) *refusal {
	wrong := make(problems)
	for name := range query {
		for _, known := range inQuery {
			if strings.EqualFold(name, known) {
				wrong[name] = "credentials do not belong into an address, which logs keep; send the header Authorization, and replace this credential"
			}
		}
	}
	return badRequest(wrong)
}
