package settings

import (
	"cmp"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// sources are those of a connection's settings: a flag comes before the environment, that
// before the context, and that before the flag's default.
type sources struct {
	flags *pflag.FlagSet
	named contextValues
}

func newSources(flags *pflag.FlagSet) (*sources, error) {
	s := &sources{flags: flags}
	file, given := s.lookUp("context-file")
	name, chosen := s.lookUp("context")
	contexts, err := readContexts(cmp.Or(file, defaultContextFile()), given != "")
	if err != nil {
		return nil, err
	}
	if chosen == "" {
		name = contexts.Current
	}
	if name == "" {
		return s, nil
	}
	s.named, err = contexts.values(name)
	return s, err
}

// value returns a setting.
func (s *sources) value(name string) string {
	value, _ := s.lookUp(name)
	return value
}

// lookUp returns a setting and what says so, "" if it is the flag's default.
func (s *sources) lookUp(name string) (value, source string) {
	flag := s.flags.Lookup(name)
	if flag.Changed { // also to nothing, which hides the others
		return cmp.Or(flag.Value.String(), flag.DefValue), "--" + name
	}
	variable := "LOCKET_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if value := os.Getenv(variable); value != "" {
		return value, "$" + variable
	}
	if value := s.named.settings[name]; value != "" {
		return value, name + " of " + s.named.source
	}
	return flag.DefValue, ""
}

// wrong returns the error for a setting that must be something else.
func (s *sources) wrong(name, want string) error {
	value, source := s.lookUp(name)
	return usageError("%s: %q: must be %s", source, value, want)
}
