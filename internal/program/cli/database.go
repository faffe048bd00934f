package cli

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/settings"
	"github.com/locket-service/locket/internal/program/server"
)

// passwordVariable holds the password of the database. It has no flag: a command line is seen by everybody on the machine.
const passwordVariable = "LOCKET_DATABASE_PASSWORD"

// addDatabaseFlags adds the flags that say which database a command works on.
func addDatabaseFlags(flags *pflag.FlagSet, c *server.Config) {
	addServerFlags(flags, c, "data", "database", "database-password-file", "database-ca", "database-any-name")
}

// notEmpty is a flag that is refused when it is given without a value, as by a variable of a script that is not set.
type notEmpty struct{ value *string }

func (n notEmpty) String() string {
	if n.value == nil {
		return ""
	}
	return *n.value
}

func (n notEmpty) Set(value string) error {
	if value == "" {
		return errors.New("it must not be empty")
	}
	*n.value = value
	return nil
}

func (n notEmpty) Type() string { return "string" }

// databaseOf completes the configuration of a command from the environment.
func databaseOf(cmd *cobra.Command, c *server.Config) error {
	if err := settings.New(cmd.Flags()).Apply("help", "output"); err != nil {
		return err
	}
	c.DatabasePassword = os.Getenv(passwordVariable)
	if err := c.ValidateDatabase(); err != nil {
		return exit.With(exit.Usage, err)
	}
	return nil
}
