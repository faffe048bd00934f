package connect

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

const clientTimeout = 10 * time.Second

// systemCA stands for the system's authorities where the name of a file is asked for.
const systemCA = "system"

// connectFlag marks the flags of addConnection, which --help lists apart.
const connectFlag = "locket_connect"

// addConnection adds the flags that say where the servers are. Each can also be given in the
// environment (--tls-ca as LOCKET_TLS_CA), which comes after the flag. After the environment
// comes a context of the file of contexts.
func addConnection(cmd *cobra.Command) {
	flags := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	flags.String("address", defaultGRPCAddress, "gRPC `addresses` of the servers, separated by commas")
	flags.String("tls-ca", "", "use TLS; the `file` (PEM) has the authorities of the servers' certificates; system: the system's")
	flags.String("tls-cert", "", "use TLS; the `file` (PEM) has the certificate to show to the servers")
	flags.String("tls-key", "", "the `file` (PEM) has the key of that certificate")
	flags.Bool("insecure", false, "talk to servers on other machines without TLS")
	flags.Duration("timeout", clientTimeout, "how long a request may take")
	flags.String("context", "", "the `name` of a context, for what flags and environment leave open")
	flags.String("context-file", "", "the `file` of contexts (default ~/.config/locket/contexts.yaml)")
	flags.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{connectFlag: {"true"}} })
	cmd.Flags().AddFlagSet(flags)
	_ = cmd.RegisterFlagCompletionFunc("context", completeContexts)
}

// connection is a connection to the servers that flags, environment and context name.
type connection struct {
	*locklib.Conn
	models.LocketClient
	settings
}

// dial returns a connection for a command with the flags of addConnection. It is to be
// closed. Servers that cannot be reached are no error yet: the calls say so, and
// connection.explain says it for people.
func dial(cmd *cobra.Command) (*connection, error) {
	s, err := settingsOf(cmd.Flags())
	if err != nil {
		return nil, err
	}
	options, err := s.dialOptions()
	if err != nil {
		return nil, err
	}
	conn, err := locklib.Dial(s.addresses, options...)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return &connection{Conn: conn, LocketClient: models.NewLocketClient(conn), settings: s}, nil
}

// withServers runs fn with a connection, and with a context for one request.
func withServers(cmd *cobra.Command, fn func(ctx context.Context, c *connection) error) error {
	c, err := dial(cmd)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
	defer cancel()
	return c.explain(fn(ctx, c))
}

// settings say how to connect.
type settings struct {
	// addresses are those of the servers in use, whatever named them.
	addresses              []string
	tlsCA, tlsCert, tlsKey string
	insecure               bool
	// timeout bounds each request.
	timeout time.Duration
}

// address returns the addresses as --address and $LOCKET_ADDRESS take them.
func (s settings) address() string { return strings.Join(s.addresses, ",") }

// settingsOf asks the flags, the environment and the context, in this order.
func settingsOf(flags *pflag.FlagSet) (settings, error) {
	sources, err := newSources(flags)
	if err != nil {
		return settings{}, err
	}
	var s settings
	s.addresses = splitList(sources.value("address"))
	s.tlsCA = sources.value("tls-ca")
	s.tlsCert = sources.value("tls-cert")
	s.tlsKey = sources.value("tls-key")
	if s.insecure, err = strconv.ParseBool(sources.value("insecure")); err != nil {
		return settings{}, sources.wrong("insecure", "true or false")
	}
	if s.timeout, err = time.ParseDuration(sources.value("timeout")); err != nil || s.timeout <= 0 {
		return settings{}, sources.wrong("timeout", "a time like 10s")
	}
	return s, nil
}

// splitList splits a list at its commas.
func splitList(text string) []string {
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// secure reports whether TLS is to be used.
func (s settings) secure() bool { return s.tlsCA+s.tlsCert+s.tlsKey != "" }

// dialOptions returns what locklib.Dial is to be told.
func (s settings) dialOptions() ([]locklib.DialOption, error) {
	files := locklib.Files{CA: s.tlsCA, Cert: s.tlsCert, Key: s.tlsKey}
	if files.CA == systemCA {
		files.CA = ""
	}
	switch {
	case s.secure() && s.insecure:
		return nil, usageError("--insecure and --tls-ca, --tls-cert, --tls-key exclude each other, also in the environment and the context")
	case s.secure():
		return []locklib.DialOption{locklib.WithTLS(files)}, nil
	case s.insecure:
		return []locklib.DialOption{locklib.WithInsecure()}, nil
	}
	for _, address := range s.addresses {
		host, _, err := net.SplitHostPort(address)
		if err == nil && host != "" && onLoopback("address", address) != nil {
			return nil, usageError("%s is on another machine: give --tls-ca FILE (or --tls-ca system), or --insecure for plain text", address)
		}
	}
	return nil, nil
}
