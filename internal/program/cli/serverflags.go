package cli

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/settings"
	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/models/jsonview"
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

// restoring has the flags that say how data is restored.
type restoring struct {
	server.RestoreOptions
	quarantine time.Duration
}

func (r *restoring) addFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&r.quarantine, "quarantine", 0, "how long nothing is granted (default the longest known TTL, at least 1m)")
	flags.BoolVar(&r.RevokeAll, "revoke-all", false, "end all claims and sessions instead; only if no client still uses its claims")
	flags.Uint64Var(&r.Floor, "floor", 0, "a number below all future fencing tokens; needed if the clock is behind the backup")
}

// of returns the options after the flags of a command were parsed.
func (r *restoring) of(cmd *cobra.Command) (server.RestoreOptions, error) {
	if cmd.Flag("quarantine").Changed {
		r.Quarantine = &r.quarantine
	}
	switch {
	case r.RevokeAll && r.Quarantine != nil:
		return r.RestoreOptions, exit.Usagef("--revoke-all and --quarantine exclude each other")
	case r.quarantine < 0:
		return r.RestoreOptions, exit.Usagef("--quarantine: must be 0 or more")
	}
	return r.RestoreOptions, nil
}

// grantedAfter says how long a quarantine lasts.
func grantedAfter(quarantine jsonview.Seconds) string {
	if long := quarantine.Duration(); long > 0 {
		return fmt.Sprintf("nothing is granted for %v after the first server has started\n", long)
	}
	return ""
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
