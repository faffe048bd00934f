package connect

import (
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/bearer"
	"github.com/locket-service/locket/bearer/clientcredentials"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/settings"
)

// AddOIDCFlags adds the flags for credentials from an OIDC provider.
func AddOIDCFlags(flags *pflag.FlagSet) {
	flags.String("oidc-issuer", "", "get a credential for this program from the OIDC provider at this `URL`")
	flags.String("oidc-client-id", "", "this program's client `id` at the provider")
	flags.String("oidc-client-secret-file", "", "a `file` with its client secret")
	flags.String("oidc-scopes", "", "the `scopes` to ask for, separated by commas")
	flags.String("oidc-audience", "", "the `audience` to ask for: the server's --oidc-audience")
	flags.String("oidc-ca", "", "a `file` with CA certificates of the provider (PEM; default the system's)")
}

// OIDCOf returns the values of the flags of AddOIDCFlags.
func OIDCOf(s *settings.Sources) clientcredentials.Config {
	var scopes []string
	if text := s.Value("oidc-scopes"); text != "" {
		scopes = settings.SplitList(text)
	}
	return clientcredentials.Config{
		Issuer: s.Value("oidc-issuer"), ID: s.Value("oidc-client-id"), SecretFile: s.Value("oidc-client-secret-file"),
		Scopes: scopes, Audience: s.Value("oidc-audience"), CA: s.Value("oidc-ca"),
	}
}

// CredentialSource returns a source of credentials from a provider, nil if none is named.
func CredentialSource(c clientcredentials.Config, credentialFile string) (bearer.Source, error) {
	switch {
	case c.Issuer == "" && c.ID == "" && c.SecretFile == "":
		return nil, nil
	case credentialFile != "":
		return nil, exit.Usagef("--credential-file and --oidc-issuer exclude each other, also in the environment and the context")
	}
	source, err := clientcredentials.New(c)
	if err != nil {
		return nil, exit.Usagef("--oidc-issuer, --oidc-client-id and --oidc-client-secret-file go together: %w", err)
	}
	return source, nil
}
