package settings

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/program/cli/exit"
)

// Sources are where the settings of one command come from.
type Sources struct {
	// Ignored are the fields of the file that have no effect, in their order.
	Ignored []string

	flags *pflag.FlagSet
	file  values
}

// values are the settings in a file, by the names of their flags.
type values struct {
	settings map[string]string
	// source names, for an error, where a setting stands.
	source func(name string) string
}

// New returns the sources of a command that has no file: flags and environment.
func New(flags *pflag.FlagSet) *Sources { return &Sources{flags: flags} }

// Variable returns the environment variable for a flag.
func Variable(flag string) string {
	return "LOCKET_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Value returns the setting with the name of a flag.
func (s *Sources) Value(name string) string {
	value, _ := s.LookUp(name)
	return value
}

// LookUp returns the setting with the name of a flag and what says so, "" if it is the flag's default.
func (s *Sources) LookUp(name string) (value, source string) {
	flag := s.flags.Lookup(name)
	if flag.Changed { // also to nothing, which hides the others
		return cmp.Or(flag.Value.String(), flag.DefValue), "--" + name
	}
	if value := os.Getenv(Variable(name)); value != "" {
		return value, "$" + Variable(name)
	}
	if value, ok := s.file.settings[name]; ok {
		return value, s.file.source(name)
	}
	return flag.DefValue, ""
}

// Apply sets the flags that were not given, except some, from the environment and the file. The error names everything that is wrong, each
// with its source; it is the user's.
func (s *Sources) Apply(except ...string) error {
	var wrong []error
	s.flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || slices.Contains(except, flag.Name) {
			return
		}
		value, source := s.LookUp(flag.Name)
		if source == "" {
			return
		}
		err := flag.Value.Set(value)
		if err == nil {
			return
		}
		if !strings.HasPrefix(source, "$") {
			source = invalidFile + ": " + source
		}
		wrong = append(wrong, fmt.Errorf("%s: %s: %q: %w", source, flag.Name, value, Refusal(flag, err)))
	})
	if len(wrong) > 0 {
		return exit.With(exit.Usage, errors.Join(wrong...))
	}
	return nil
}

// Refusal returns the error of a flag's Set as a person can use it.
func Refusal(flag *pflag.Flag, err error) error {
	if number := (*strconv.NumError)(nil); !errors.As(err, &number) {
		return err
	}
	switch flag.Value.Type() {
	case "uint32":
		return errors.New("must be a whole number, 0 to 4294967295")
	case "uint64":
		return errors.New("must be a whole number, 0 or more")
	case "bool":
		return errors.New("must be true or false")
	}
	return errors.New("must be a whole number")
}

// Wrong returns the error for a setting that must be something else.
func (s *Sources) Wrong(name, want string) error {
	value, source := s.LookUp(name)
	return exit.Usagef("%s: %q: must be %s", source, value, want)
}
