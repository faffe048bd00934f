package cli

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/settings"
	"github.com/locket-service/locket/internal/program/server"
)

func newServerCommand() *cobra.Command {
	c := server.DefaultConfig()
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Serve locks and claims",
		Long: `Serve locks and claims over gRPC and REST.

Each flag is also an environment variable (--grpc-address: LOCKET_GRPC_ADDRESS) and a member of the JSON file of
--config. A flag overrides the variable, which overrides the file. The file may also be one of Cloud Foundry's Locket.
An empty address (--http-address '') turns a listener off.

The password of the database may be in $LOCKET_DATABASE_PASSWORD, or in the file of --database-password-file, instead of
on the command line.`,
		Example: `  locket server
  locket server --database 'mysql:locket@tcp(127.0.0.1:3306)/locket' --database-password-file db.password
  locket server --grpc-address 0.0.0.0:8891 --tls-cert s.crt --tls-key s.key --tls-client-ca ca.crt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sources, err := settings.WithConfig(cmd.Flags())
			if err != nil {
				return err
			}
			if err := sources.Apply("help", "config"); err != nil {
				return err
			}
			c.IgnoredFields, c.DatabasePassword = sources.Ignored, os.Getenv(passwordVariable)
			c.UnknownVariables = unknownVariables(cmd.Root(), os.Environ())
			if err := c.Validate(); err != nil {
				return exit.With(exit.Usage, err)
			}
			return server.Serve(cmd.Context(), c, cmd.OutOrStdout())
		},
	}
	addServerFlags(cmd.Flags(), &c)
	return cmd
}

// addServerFlags adds a flag for each field of a configuration, whose value is its default.
func addServerFlags(flags *pflag.FlagSet, c *server.Config) {
	flags.StringVar(&c.GRPCAddress, "grpc-address", c.GRPCAddress, "where to serve gRPC")
	flags.StringVar(&c.HTTPAddress, "http-address", c.HTTPAddress, "where to serve HTTP: /v1/claims, /docs, /healthz, /readyz, /metrics")
	flags.BoolVar(&c.HTTPAnonymous, "http-anonymous", c.HTTPAnonymous, "with TLS, serve HTTP without client certificates too, as far as rules let the identity anonymous")
	flags.StringSliceVar(&c.HTTPHosts, "http-hosts", c.HTTPHosts, "names of this server over plain HTTP; others are refused (none: all but on loopback)")
	flags.StringSliceVar(&c.HTTPOrigins, "http-origins", c.HTTPOrigins, "origins whose pages in a browser may use HTTP (CORS): https://console.example.com")
	flags.StringSliceVar(&c.TrustedProxies, "trusted-proxies", c.TrustedProxies, "proxies whose X-Forwarded headers over HTTP are used: 10.0.0.1, 10.0.0.0/8")
	flags.StringVar(&c.OpsAddress, "ops-address", c.OpsAddress, "where to serve /healthz, /readyz, /metrics and /debug/pprof/; /metrics then only there")
	flags.BoolVar(&c.OpsInsecure, "ops-insecure", c.OpsInsecure, "serve --ops-address on addresses other than loopback")
	addDatabaseFlags(flags, c)
	flags.StringVar(&c.DataWitness, "data-witness", c.DataWitness, "a folder in memory where the server notes how far its data has got, so that a start notices data that was taken back to an older state (empty: nowhere)")
	flags.DurationVar(&c.DatabaseWait, "database-wait", c.DatabaseWait, "how long to wait at the start for a database that is not up")
	flags.DurationVar(&c.DatabaseTimeout, "database-timeout", c.DatabaseTimeout, "how long a transaction may take")
	flags.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "the server's certificate, PEM")
	flags.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "its key, PEM")
	flags.StringVar(&c.TLSClientCA, "tls-client-ca", c.TLSClientCA, "the authorities of the clients' certificates, PEM")
	flags.StringVar(&c.TLSMinVersion, "tls-min-version", c.TLSMinVersion, "the lowest version of TLS: 1.2 or 1.3")
	flags.StringVar(&c.TLSCRL, "tls-crl", c.TLSCRL, "revocation lists of the clients' authorities, PEM or DER")
	flags.StringSliceVar(&c.SPIFFEBundles, "spiffe-bundles", c.SPIFFEBundles, "the authorities of SPIFFE trust domains, PEM: DOMAIN=FILE; SPIFFE ids of others are refused")
	flags.StringVar(&c.AuthCredentials, "auth-credentials", c.AuthCredentials, "a file of bearer credentials that clients may show; locket credential new makes them")
	flags.StringVar(&c.AuditLog, "audit-log", c.AuditLog, "a file that gets a line for each change and each refusal: who, from where, what; SIGHUP opens it again")
	flags.BoolVar(&c.AuditRequired, "audit-required", c.AuditRequired, "refuse what would change something while --audit-log cannot be written")
	flags.StringVar(&c.AuthRules, "auth-rules", c.AuthRules, "a file of access rules; locket rules check tests it (none: every authenticated caller may read and hold every name)")
	flags.StringSliceVar(&c.OIDCIssuers, "oidc-issuers", c.OIDCIssuers, "OIDC providers whose JWTs are accepted: URL, or NAME=URL of several")
	flags.StringVar(&c.OIDCAudience, "oidc-audience", c.OIDCAudience, "the audience that a JWT must have")
	flags.StringVar(&c.OIDCUserClaim, "oidc-user-claim", c.OIDCUserClaim, "the claim of a JWT that names the user")
	flags.StringVar(&c.OIDCGroupsClaim, "oidc-groups-claim", c.OIDCGroupsClaim, "the claim of a JWT that has the user's groups")
	flags.StringVar(&c.OIDCKeys, "oidc-keys", c.OIDCKeys, "a file with the issuer's keys (JWK set), in place of discovery")
	flags.StringVar(&c.OIDCCA, "oidc-ca", c.OIDCCA, "the authorities of the issuers' certificates, PEM")
	flags.StringVar(&c.OIDCConsoleClientID, "oidc-console-client-id", c.OIDCConsoleClientID, "the name of the console at the issuer, so that people sign in there with a browser")
	flags.StringVar(&c.OIDCConsoleSecretFile, "oidc-console-secret-file", c.OIDCConsoleSecretFile, "a file with its secret (none: a public client)")
	flags.StringSliceVar(&c.OIDCConsoleScopes, "oidc-console-scopes", c.OIDCConsoleScopes, "scopes to ask for besides openid")
	flags.StringSliceVar(&c.AuthProxies, "auth-proxies", c.AuthProxies, "proxies that say who calls: identities of their certificates, or loopback")
	flags.StringVar(&c.AuthProxyUserHeader, "auth-proxy-user-header", c.AuthProxyUserHeader, "the header with the user's name")
	flags.StringVar(&c.AuthProxyGroupsHeader, "auth-proxy-groups-header", c.AuthProxyGroupsHeader, "the header with the user's groups")
	flags.BoolVar(&c.Insecure, "insecure", c.Insecure, "serve without TLS on addresses other than loopback")
	flags.DurationVar(&c.HistoryRetention, "history-retention", c.HistoryRetention, "for how long finished claims are kept")
	flags.IntVar(&c.HistoryLimit, "history-limit", c.HistoryLimit, "how many finished claims are kept at most")
	flags.DurationVar(&c.HistoryMinimum, "history-minimum", c.HistoryMinimum, "for how long finished claims are kept even beyond the limit, so that a late retry finds its claim")
	flags.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", c.ShutdownTimeout, "how long requests under way may take at the end")
	flags.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error; debug logs every request")
	flags.StringVar(&c.LogFormat, "log-format", c.LogFormat, "text, json, or auto: text on a terminal; lager or lager-rfc3339: as Cloud Foundry's")
	flags.String("config", "", "a JSON file of settings")
}
