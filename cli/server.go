package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/cli/settings"
	"github.com/locket-service/locket/server"
)

func newServerCommand() *cobra.Command {
	c := server.DefaultConfig()
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Serve locks and claims",
		Long: `Serve locks and claims over gRPC and REST.

Every flag can also be given as an environment variable (--grpc-address as
LOCKET_GRPC_ADDRESS) or in the JSON file of --config, by its name; a flag comes
before the environment, and that before the file. The file may also be one of
Cloud Foundry's Locket.`,
		Example: `  locket server
  locket server --database 'mysql:locket:secret@tcp(127.0.0.1:3306)/locket'
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
			return server.Serve(cmd.Context(), c, cmd.OutOrStdout())
		},
	}
	addServerFlags(cmd.Flags(), &c)
	return cmd
}

// addServerFlags adds a flag for each field of a configuration, whose value is its default.
func addServerFlags(flags *pflag.FlagSet, c *server.Config) {
	flags.StringVar(&c.GRPCAddress, "grpc-address", c.GRPCAddress, "where to serve gRPC")
	flags.StringVar(&c.HTTPAddress, "http-address", c.HTTPAddress, "where to serve HTTP: /v1/claims, /docs, /metrics, /healthz")
	flags.StringVar(&c.Database, "database", c.Database, "sqlite:FILE or mysql:USER:PASSWORD@tcp(HOST:PORT)/NAME")
	flags.DurationVar(&c.DatabaseWait, "database-wait", c.DatabaseWait, "how long to wait at the start for a database that is not up")
	flags.DurationVar(&c.DatabaseTimeout, "database-timeout", c.DatabaseTimeout, "how long a transaction may take")
	flags.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "the server's certificate, PEM")
	flags.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "its key, PEM")
	flags.StringVar(&c.TLSClientCA, "tls-client-ca", c.TLSClientCA, "the authorities of the clients' certificates, PEM")
	flags.BoolVar(&c.Insecure, "insecure", c.Insecure, "serve without TLS on addresses other than loopback")
	flags.DurationVar(&c.HistoryRetention, "history-retention", c.HistoryRetention, "for how long finished claims are kept")
	flags.IntVar(&c.HistoryLimit, "history-limit", c.HistoryLimit, "how many finished claims are kept at most")
	flags.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", c.ShutdownTimeout, "how long requests under way may take at the end")
	flags.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error; debug logs every request")
	flags.StringVar(&c.LogFormat, "log-format", c.LogFormat, "text, json, or auto: text on a terminal")
	flags.String("config", "", "a JSON file of settings")
}
