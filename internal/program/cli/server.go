package cli

import (
	"os"
	"reflect"
	"slices"
	"time"

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
	cmd.Flags().String("config", "", "a JSON file of settings")
	return cmd
}

// addServerFlags adds a flag for each field of a configuration with the tag flag, or only for the named ones. Its default is the
// field's value.
func addServerFlags(flags *pflag.FlagSet, c *server.Config, only ...string) {
	fields := reflect.ValueOf(c).Elem()
	for i := range fields.NumField() {
		tag := fields.Type().Field(i).Tag
		name, help := tag.Get("flag"), tag.Get("help")
		if name == "" || len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		switch value := fields.Field(i).Addr().Interface().(type) {
		case *string:
			if name == "data" || name == "database" {
				flags.Var(notEmpty{value}, name, help)
			} else {
				flags.StringVar(value, name, *value, help)
			}
		case *[]string:
			flags.StringSliceVar(value, name, *value, help)
		case *bool:
			flags.BoolVar(value, name, *value, help)
		case *int:
			flags.IntVar(value, name, *value, help)
		case *time.Duration:
			flags.DurationVar(value, name, *value, help)
		default:
			panic("no flag for a field of this type: --" + name)
		}
	}
}
