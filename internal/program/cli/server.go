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
	flags.StringVar(&c.GRPCAddress, "grpc-address", c.GRPCAddress, "the address for gRPC")
	flags.StringVar(&c.HTTPAddress, "http-address", c.HTTPAddress, "the address for HTTP: /v1/claims, /docs, /healthz, /readyz, /metrics")
	flags.BoolVar(&c.HTTPAnonymous, "http-anonymous", c.HTTPAnonymous, "with TLS, also serve HTTP without client certificates, as the identity anonymous")
	flags.StringSliceVar(&c.HTTPHosts, "http-hosts", c.HTTPHosts, "host names to accept over plain HTTP (none: all, except on loopback)")
	flags.StringSliceVar(&c.HTTPOrigins, "http-origins", c.HTTPOrigins, "origins of web pages that may use HTTP (CORS): https://console.example.com")
	flags.StringSliceVar(&c.TrustedProxies, "trusted-proxies", c.TrustedProxies, "proxies whose X-Forwarded headers to trust: 10.0.0.1, 10.0.0.0/8")
	flags.StringVar(&c.OpsAddress, "ops-address", c.OpsAddress, "the address for /healthz, /readyz, /metrics and /debug/pprof/; /metrics is then only there")
	flags.BoolVar(&c.OpsInsecure, "ops-insecure", c.OpsInsecure, "allow an --ops-address other than loopback")
	addDatabaseFlags(flags, c)
	flags.StringVar(&c.DataWitness, "data-witness", c.DataWitness, "a folder in memory where the server notes its progress, so that it detects data of an older state at its start (empty: none)")
	flags.StringSliceVar(&c.Etcd, "etcd", c.Etcd, "URLs of the members of an etcd with the log of a cluster: http://10.0.0.1:2379,http://10.0.0.2:2379")
	flags.StringVar(&c.EtcdPrefix, "etcd-prefix", c.EtcdPrefix, "the prefix of the cluster's keys in etcd")
	flags.StringVar(&c.EtcdCA, "etcd-ca", c.EtcdCA, "CA certificates for etcd, PEM")
	flags.StringVar(&c.EtcdCert, "etcd-cert", c.EtcdCert, "this server's client certificate for etcd, PEM")
	flags.StringVar(&c.EtcdKey, "etcd-key", c.EtcdKey, "the key of --etcd-cert, PEM")
	flags.StringVar(&c.EtcdUser, "etcd-user", c.EtcdUser, "this server's user in etcd")
	flags.StringVar(&c.EtcdPasswordFile, "etcd-password-file", c.EtcdPasswordFile, "a file with the password of --etcd-user")
	flags.StringVar(&c.Node, "node", c.Node, "the name of this server's own node of etcd, for a cluster without another etcd")
	flags.StringSliceVar(&c.Cluster, "cluster", c.Cluster, "with --node, all nodes of a new cluster: a=HOST:PORT,b=HOST:PORT,c=HOST:PORT")
	flags.StringVar(&c.Join, "join", c.Join, "with --node, a node HOST:PORT of the cluster that has added this one")
	flags.StringVar(&c.ClusterCert, "cluster-cert", c.ClusterCert, "the node's certificate for the other nodes, PEM (none: loopback addresses only)")
	flags.StringVar(&c.ClusterKey, "cluster-key", c.ClusterKey, "the key of --cluster-cert, PEM")
	flags.StringVar(&c.ClusterCA, "cluster-ca", c.ClusterCA, "CA certificates of all nodes, PEM")
	flags.StringVar(&c.PeerAddress, "peer-address", c.PeerAddress, "the address for the other servers of the cluster (none: a free port of the host of --grpc-address)")
	flags.StringVar(&c.PeerAdvertise, "peer-advertise", c.PeerAdvertise, "the address that the other servers dial (none: --peer-address)")
	flags.DurationVar(&c.DatabaseWait, "database-wait", c.DatabaseWait, "how long to wait for the database at the start")
	flags.DurationVar(&c.DatabaseTimeout, "database-timeout", c.DatabaseTimeout, "how long a transaction may take")
	flags.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "the server's certificate, PEM")
	flags.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "the key of the server's certificate, PEM")
	flags.StringVar(&c.TLSClientCA, "tls-client-ca", c.TLSClientCA, "CA certificates for client certificates, PEM")
	flags.StringVar(&c.TLSMinVersion, "tls-min-version", c.TLSMinVersion, "the minimum version of TLS: 1.2 or 1.3")
	flags.StringVar(&c.TLSCRL, "tls-crl", c.TLSCRL, "revocation lists of the clients' CAs, PEM or DER")
	flags.StringSliceVar(&c.SPIFFEBundles, "spiffe-bundles", c.SPIFFEBundles, "CA certificates of SPIFFE trust domains, PEM: DOMAIN=FILE; other SPIFFE ids are refused")
	flags.StringVar(&c.AuthCredentials, "auth-credentials", c.AuthCredentials, "a file of clients' bearer credentials, made by locket credential new")
	flags.StringVar(&c.AuditLog, "audit-log", c.AuditLog, "log each change and each refusal to this file: who, from where, what; SIGHUP reopens it")
	flags.BoolVar(&c.AuditRequired, "audit-required", c.AuditRequired, "refuse changes while --audit-log cannot be written")
	flags.StringVar(&c.AuthRules, "auth-rules", c.AuthRules, "a file of access rules; locket rules check tests it (none: every authenticated caller may read and hold every name)")
	flags.StringSliceVar(&c.OIDCIssuers, "oidc-issuers", c.OIDCIssuers, "OIDC providers whose JWTs to accept: URL, or NAME=URL for several")
	flags.StringVar(&c.OIDCAudience, "oidc-audience", c.OIDCAudience, "the required audience of a JWT")
	flags.StringVar(&c.OIDCUserClaim, "oidc-user-claim", c.OIDCUserClaim, "the claim of a JWT with the user's name")
	flags.StringVar(&c.OIDCGroupsClaim, "oidc-groups-claim", c.OIDCGroupsClaim, "the claim of a JWT with the user's groups")
	flags.StringVar(&c.OIDCKeys, "oidc-keys", c.OIDCKeys, "a file with the issuer's keys (JWK set), instead of discovery")
	flags.StringVar(&c.OIDCCA, "oidc-ca", c.OIDCCA, "CA certificates of the issuers, PEM")
	flags.StringVar(&c.OIDCConsoleClientID, "oidc-console-client-id", c.OIDCConsoleClientID, "the console's client id at the issuer, for sign-in with a browser")
	flags.StringVar(&c.OIDCConsoleSecretFile, "oidc-console-secret-file", c.OIDCConsoleSecretFile, "a file with the console's client secret (none: a public client)")
	flags.StringSliceVar(&c.OIDCConsoleScopes, "oidc-console-scopes", c.OIDCConsoleScopes, "scopes to ask for besides openid")
	flags.StringSliceVar(&c.AuthProxies, "auth-proxies", c.AuthProxies, "proxies that authenticate callers: the identities of their certificates, or loopback")
	flags.StringVar(&c.AuthProxyUserHeader, "auth-proxy-user-header", c.AuthProxyUserHeader, "the header with the user's name")
	flags.StringVar(&c.AuthProxyGroupsHeader, "auth-proxy-groups-header", c.AuthProxyGroupsHeader, "the header with the user's groups")
	flags.BoolVar(&c.Insecure, "insecure", c.Insecure, "allow addresses other than loopback without TLS")
	flags.DurationVar(&c.HistoryRetention, "history-retention", c.HistoryRetention, "how long to keep ended claims")
	flags.IntVar(&c.HistoryLimit, "history-limit", c.HistoryLimit, "the maximum number of ended claims to keep")
	flags.DurationVar(&c.HistoryMinimum, "history-minimum", c.HistoryMinimum, "how long to keep ended claims even beyond the limit, so that a late retry finds its claim")
	flags.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", c.ShutdownTimeout, "how long requests may take to finish at a shutdown")
	flags.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error; debug logs every request")
	flags.StringVar(&c.LogFormat, "log-format", c.LogFormat, "text, json, auto (text on a terminal, otherwise json), or Cloud Foundry's lager and lager-rfc3339")
	flags.String("config", "", "a JSON file of settings")
}
