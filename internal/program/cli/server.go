package cli

import (
	"os"

	"github.com/spf13/cobra"

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
	cmd.Flags().String("config", "", "a JSON file of settings")
	return cmd
}
