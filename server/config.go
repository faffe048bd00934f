package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	defaultGRPCAddress = "127.0.0.1:8891"
	defaultHTTPAddress = "127.0.0.1:8892"
)

// config is what a server is told. A flag comes before an environment variable, and that
// before the file.
type config struct {
	grpcAddress, httpAddress string
	database                 string
	databaseWait             time.Duration
	databaseTimeout          time.Duration
	tlsCert, tlsKey, tlsCA   string
	insecure                 bool
	historyRetention         time.Duration
	historyLimit             int
	shutdownTimeout          time.Duration
	logLevel, logFormat      string
}

func (c *config) add(flags *pflag.FlagSet) {
	flags.StringVar(&c.grpcAddress, "grpc-address", defaultGRPCAddress, "where to serve gRPC")
	flags.StringVar(&c.httpAddress, "http-address", defaultHTTPAddress, "where to serve HTTP: /v1/claims, /docs, /metrics, /healthz")
	flags.StringVar(&c.database, "database", "sqlite:locket.db", "sqlite:FILE or mysql:USER:PASSWORD@tcp(HOST:PORT)/NAME")
	flags.DurationVar(&c.databaseWait, "database-wait", time.Minute, "how long to wait at the start for a database that is not up")
	flags.DurationVar(&c.databaseTimeout, "database-timeout", 10*time.Second, "how long a transaction may take")
	flags.StringVar(&c.tlsCert, "tls-cert", "", "the server's certificate, PEM")
	flags.StringVar(&c.tlsKey, "tls-key", "", "its key, PEM")
	flags.StringVar(&c.tlsCA, "tls-client-ca", "", "the authorities of the clients' certificates, PEM")
	flags.BoolVar(&c.insecure, "insecure", false, "serve without TLS on addresses other than loopback")
	flags.DurationVar(&c.historyRetention, "history-retention", 24*time.Hour, "for how long finished claims are kept")
	flags.IntVar(&c.historyLimit, "history-limit", 1_000_000, "how many finished claims are kept at most")
	flags.DurationVar(&c.shutdownTimeout, "shutdown-timeout", 10*time.Second, "how long requests under way may take at the end")
	flags.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error; debug logs every request")
	flags.StringVar(&c.logFormat, "log-format", "auto", "text, json, or auto: text on a terminal")
}

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

// load fills in what no flag says from the environment, and then from the file.
func (c *config) load(cmd *cobra.Command, file string) error {
	fromFile, err := readConfig(cmp.Or(file, os.Getenv("LOCKET_CONFIG")), cmd.Flags())
	if err != nil {
		return err
	}
	var wrong []error
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || flag.Name == "help" || flag.Name == "config" {
			return
		}
		variable := "LOCKET_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		value, source := os.Getenv(variable), variable
		if value == "" {
			value, source = fromFile[flag.Name], file
		}
		if value == "" {
			return
		}
		if err := flag.Value.Set(value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %s: %w", source, flag.Name, err))
		}
	})
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	return c.validate()
}

// readConfig returns the values of a JSON file by the names of the flags: our own names, with
// - or _, and those of Cloud Foundry's Locket. Of that one's files it leaves out what means
// nothing here; in others a name that it does not know is an error.
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
	values := make(map[string]string)
	for name, value := range fields {
		flag := strings.ReplaceAll(name, "_", "-")
		if known, ok := cloudFoundryNames[name]; ok {
			flag = known
		}
		if flags.Lookup(flag) == nil && !cloudFoundry {
			return nil, fmt.Errorf("the config file %s: %q is no setting", file, name)
		}
		values[flag] = fmt.Sprint(value)
	}
	if driver, ok := fields["database_driver"].(string); ok {
		if driver != "mysql" {
			return nil, fmt.Errorf("the config file %s: database_driver: %q is not served, only mysql", file, driver)
		}
		values["database"] = "mysql:" + values["database"]
	}
	return values, nil
}

func (c *config) validate() error {
	tlsFiles := 0
	for _, file := range []string{c.tlsCert, c.tlsKey, c.tlsCA} {
		if file != "" {
			tlsFiles++
		}
	}
	var wrong []error
	if tlsFiles != 0 && tlsFiles != 3 {
		wrong = append(wrong, errors.New("--tls-cert, --tls-key and --tls-client-ca go together: give all three, or none"))
	}
	for name, d := range map[string]time.Duration{
		"database-timeout": c.databaseTimeout, "shutdown-timeout": c.shutdownTimeout, "history-retention": c.historyRetention,
	} {
		if d <= 0 {
			wrong = append(wrong, fmt.Errorf("--%s: must be more than 0", name))
		}
	}
	if c.historyLimit < 1 {
		wrong = append(wrong, errors.New("--history-limit: must be at least 1"))
	}
	if tlsFiles == 0 && !c.insecure {
		wrong = append(wrong, onLoopback("grpc-address", c.grpcAddress), onLoopback("http-address", c.httpAddress))
	}
	return errors.Join(wrong...)
}

func onLoopback(flag, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	if ip := net.ParseIP(host); host == "localhost" || (ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("--%s %s: without TLS the server listens on loopback only; give it certificates, or --insecure", flag, address)
}
