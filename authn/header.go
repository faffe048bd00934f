package authn

import (
	"encoding/base64"
	"errors"
	"strings"
)

// maxToken is the length of the longest token that is looked at.
const maxToken = 16 << 10

// tokenOf returns the token in the values of the header Authorization: that of the scheme Bearer (RFC 6750), or the
// password of the scheme Basic (RFC 7617), whose user is not used.
func tokenOf(values []string) (token string, found bool, err error) {
	switch {
	case len(values) == 0:
		return "", false, nil
	case len(values) > 1:
		return "", false, errors.New("there is more than one header Authorization")
	}
	scheme, rest, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	token = strings.TrimSpace(rest)
	switch strings.ToLower(scheme) {
	case "bearer":
	case "basic":
		decoded, err := base64.StdEncoding.DecodeString(token)
		_, password, separated := strings.Cut(string(decoded), ":")
		if err != nil || !separated {
			return "", false, errors.New("the basic authentication cannot be decoded")
		}
		token = password
	default:
		return "", false, errors.New("the scheme of the header Authorization is neither Bearer nor Basic")
	}
	if token == "" || len(token) > maxToken {
		return "", false, errors.New("the token is empty, or too long")
	}
	return token, true, nil
}
