package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// cloudFoundryMarks are fields that only files of Cloud Foundry's Locket have.
var cloudFoundryMarks = []string{"listen_address", "database_driver", "database_connection_string"}

// cloudFoundryNames are the fields of that file that mean the same here, by the names of our flags.
var cloudFoundryNames = map[string]string{
	"listen_address":       "grpc-address",
	"cert_file":            "tls-cert",
	"key_file":             "tls-key",
	"ca_file":              "tls-client-ca",
	"debug_address":        "ops-address",
	"log_level":            "log-level",
	"sql_ca_cert_file":     "database-ca",
	"db_operation_timeout": "database-timeout",
}

// cloudFoundryDSN are the fields that become parameters of the DSN.
var cloudFoundryDSN = map[string]string{
	"db_connection_timeout": "timeout",
	"db_read_timeout":       "readTimeout",
	"db_write_timeout":      "writeTimeout",
}

// cloudFoundryOwn are the fields that need more than another name, with the flags that say the same.
var cloudFoundryOwn = map[string]string{
	"database_driver": "", "database_connection_string": "database", "time_format": "log-format", "sql_enable_identity_verification": "database-any-name",
}

// isCloudFoundry reports whether a file is one of Cloud Foundry's Locket.
func isCloudFoundry(members map[string]string) bool {
	return slices.ContainsFunc(cloudFoundryMarks, func(mark string) bool { _, ok := members[mark]; return ok })
}

// fromCloudFoundry returns the settings of a file of Cloud Foundry's Locket, and the fields that have no effect here. Where that file says
// nothing, its own defaults hold where they show: no HTTP, its log format, a certificate of the database may name any host. known has the
// names of our flags, which such a file may use too.
func fromCloudFoundry(members map[string]string, known func(flag string) bool) (settings map[string]string, ignored []string, err error) {
	settings = map[string]string{"http-address": "", "log-format": "lager", "database-any-name": "true"}
	if err := givenOnce(members); err != nil {
		return nil, nil, err
	}
	var parameters []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := members[name]
		flag := strings.ReplaceAll(name, "_", "-")
		same, parameter := cloudFoundryNames[name], cloudFoundryDSN[name]
		_, own := cloudFoundryOwn[name]
		if value == structured && (same != "" || parameter != "" || own || known(flag)) {
			return nil, nil, notScalar(name)
		}
		switch {
		case same != "" && value == "" && settings[same] != "": // our own name says it
		case same != "":
			settings[same] = value
		case parameter != "":
			parameters = append(parameters, parameter+"="+value)
		case own: // below
		case known(flag):
			settings[flag] = value
		default:
			ignored = append(ignored, name)
		}
	}
	if err := translateValues(members, settings, parameters); err != nil {
		return nil, nil, err
	}
	return settings, ignored, nil
}

// translateValues changes the settings whose values mean something else here.
func translateValues(members, settings map[string]string, parameters []string) error {
	if driver, given := members["database_driver"]; given && driver != "mysql" {
		return fmt.Errorf("database_driver: unknown driver %q; only mysql is supported", driver)
	}
	if members["database_connection_string"] != "" {
		settings["database"] = "mysql:" + withParameters(members["database_connection_string"], parameters)
	} else if settings["database"] == "" {
		return errors.New("database_connection_string is missing")
	}
	if members["sql_enable_identity_verification"] == "true" {
		settings["database-any-name"] = "false"
	}
	switch format := members["time_format"]; format {
	case "rfc3339", "1":
		settings["log-format"] = "lager-rfc3339"
	case "", "unix-epoch", "0":
	default:
		return fmt.Errorf(`time_format: %q: must be "unix-epoch" or "rfc3339"`, format)
	}
	if settings["log-level"] == "fatal" {
		settings["log-level"] = "error+4" // above all that is logged
	}
	if settings["ops-address"] != "" {
		settings["ops-insecure"] = "true" // whoever wrote the address meant it
	}
	return nil
}

// givenOnce returns an error for a setting that is given by a name of theirs and by ours too: which one is meant?
func givenOnce(members map[string]string) error {
	names := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		flag := cmp.Or(cloudFoundryNames[name], cloudFoundryOwn[name], strings.ReplaceAll(name, "_", "-"))
		switch before, again := names[flag]; {
		case members[name] == "":
		case again:
			return fmt.Errorf("%q and %q are the same setting: give one of the two", before, name)
		default:
			names[flag] = name
		}
	}
	return nil
}

func withParameters(dsn string, parameters []string) string {
	if len(parameters) == 0 {
		return dsn
	}
	separator := "?"
	if strings.Contains(dsn[strings.LastIndex(dsn, "/")+1:], "?") {
		separator = "&"
	}
	return dsn + separator + strings.Join(parameters, "&")
}
