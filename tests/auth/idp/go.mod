// By itself, because only one test uses it: the SAML library and what it needs stay out of
// Locket's own go.mod.
module github.com/locket-service/locket/tests/auth/idp

go 1.26.0

require (
	github.com/crewjam/saml v0.5.1
	github.com/russellhaering/goxmldsig v1.6.1
)

require (
	github.com/beevik/etree v1.7.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/mattermost/xml-roundtrip-validator v0.1.0 // indirect
	golang.org/x/crypto v0.33.0 // indirect
)
