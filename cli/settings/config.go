package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// cloudFoundryNames are the fields of the configuration file of Cloud Foundry's Locket
// that mean the same here, by the names of our flags.
var cloudFoundryNames = map[string]string{
	"listen_address":             "grpc-address",
	"database_connection_string": "database",
	"cert_file":                  "tls-cert",
	"key_file":                   "tls-key",
	"ca_file":                    "tls-client-ca",
	"log_level":                  "log-level",
}

// WithConfig returns the sources of a command whose flag config names a JSON file: an object
// whose members have the names of the flags, with - or _. It may also be a file of Cloud
// Foundry's Locket, of which fields without a meaning here are ignored.
func WithConfig(flags *pflag.FlagSet) (*Sources, error) {
	s := New(flags)
	file := s.Value("config")
	settings, err := readConfig(file, flags)
	s.file = values{settings, func(string) string { return file }}
	return s, err
}

// readConfig returns the values of a JSON file by the names of the flags. A name that it does not
// know is an error, but in a file of Cloud Foundry's Locket.
func readConfig(file string, flags *pflag.FlagSet) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the config file: %w", err)
	}
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		return nil, fmt.Errorf("the config file %s: %w", file, err)
	}
	_, listens := fields["listen_address"]
	_, drives := fields["database_driver"]
	cloudFoundry := listens || drives
	settings := make(map[string]string)
	for name, value := range fields {
		flag := strings.ReplaceAll(name, "_", "-")
		if known, ok := cloudFoundryNames[name]; ok {
			flag = known
		}
		if flags.Lookup(flag) == nil && !cloudFoundry {
			return nil, fmt.Errorf("the config file %s: unknown setting %q", file, name)
		}
		settings[flag] = fmt.Sprint(value)
	}
	if driver, ok := fields["database_driver"].(string); ok {
		if driver != "mysql" {
			return nil, fmt.Errorf("the config file %s: database_driver: unknown driver %q; only mysql is supported", file, driver)
		}
		settings["database"] = "mysql:" + settings["database"]
	}
	return settings, nil
}
