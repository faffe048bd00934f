package authn

import (
	"encoding/base64"
	"errors"
	"strings"
)

// maxCredential is the maximum length of a credential, in bytes.
const maxCredential = 16 << 10

// credentialOf returns the credential in the values of the header Authorization: the credential of the scheme Bearer
// (RFC 6750), or the password of the scheme Basic (RFC 7617), whose user is ignored.
func credentialOf(values []string) (credential string, found bool, err error) {
	switch {
	case len(values) == 0:
		return "", false, nil
	case len(values) > 1:
		return "", false, errors.New("there is more than one header Authorization")
	}
	scheme, rest, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	credential = strings.TrimSpace(rest)
	switch strings.ToLower(scheme) {
	case "bearer":
	case "basic":
		decoded, err := base64.StdEncoding.DecodeString(credential)
		_, password, separated := strings.Cut(string(decoded), ":")
		if err != nil || !separated {
			return "", false, errors.New("the basic authentication cannot be decoded")
		}
		credential = password
	default:
		return "", false, errors.New("the scheme of the header Authorization is neither Bearer nor Basic")
	}
	if credential == "" || len(credential) > maxCredential {
		return "", false, errors.New("the credential is empty, or too long")
	}
	return credential, true, nil
}
