// Package connect reaches the servers for the commands: it has the flags that say where they are,
// the connection, and what its errors mean to a person.
//
// Callers may rely on this: a connection is lazy, so that a server that is down is the error of the first call; Explain turns the error of
// a call into one line with a hint and an exit status.
package connect

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/bearer/clientcredentials"
	"github.com/locket-service/locket/internal/base/loopback"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/settings"
	"github.com/locket-service/locket/internal/program/server"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
)

// DefaultTimeout bounds a request unless --timeout says otherwise.
const DefaultTimeout = 10 * time.Second

// FlagMark marks the flags of AddFlags, which --help lists apart.
const FlagMark = "locket_connect"

// AddFlags adds the flags that say where the servers are. Each can also be given in the environment and in a context (package settings).
func AddFlags(cmd *cobra.Command) {
	flags := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	flags.String("address", server.DefaultGRPCAddress, "gRPC `addresses` of the servers, separated by commas")
	flags.String("tls-ca", "", "use TLS with the CA certificates in this `file` (PEM); system: the system's")
	flags.String("tls-cert", "", "use TLS with the client certificate in this `file` (PEM)")
	flags.String("tls-key", "", "a `file` with the key of the client certificate (PEM)")
	flags.String("credential-file", "", "a `file` with a bearer credential; it is read again for every request")
	AddOIDCFlags(flags)
	flags.Bool("insecure", false, "allow servers on other machines without TLS")
	flags.Duration("timeout", DefaultTimeout, "the timeout of a request")
	flags.String("context", "", "use this context for settings that neither flags nor variables give: its `name`")
	AddContextFile(flags)
	flags.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{FlagMark: {"true"}} })
	cmd.Flags().AddFlagSet(flags)
	_ = cmd.RegisterFlagCompletionFunc("context", CompleteContexts)
}

// AddContextFile adds the flag that names the file of contexts.
func AddContextFile(flags *pflag.FlagSet) {
	flags.String("context-file", "", "the `file` of contexts (default ~/.config/locket/contexts.yaml)")
}

// Connection is a connection to the servers that flags, environment and context name.
type Connection struct {
	*conn.Conn
	models.LocketClient
	Settings
}

// Dial returns a connection for a command with the flags of AddFlags. The caller closes it. Servers that cannot be reached are no error
// yet: the calls say so, and Explain says it for people.
func Dial(cmd *cobra.Command) (*Connection, error) {
	s, err := settingsOf(cmd.Flags())
	if err != nil {
		return nil, err
	}
	options, err := s.dialOptions()
	if err != nil {
		return nil, err
	}
	return s.dial(options)
}

func (s Settings) dial(options []conn.Option) (*Connection, error) {
	opened, err := conn.Dial(s.addresses, options...)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return &Connection{Conn: opened, LocketClient: models.NewLocketClient(opened), Settings: s}, nil
}

// Each returns a connection to each of the servers alone, in their order. The caller closes them.
func (c *Connection) Each() (all []*Connection, err error) {
	options, err := c.dialOptions()
	if err != nil {
		return nil, err
	}
	for _, address := range c.addresses {
		one := c.Settings
		one.addresses = []string{address}
		opened, err := one.dial(options)
		if err != nil {
			return all, err
		}
		all = append(all, opened)
	}
	return all, nil
}

// Client returns a client of package lock for the same servers. The caller closes it.
func (c *Connection) Client(options ...locklib.ClientOption) (*locklib.Client, error) {
	dial, err := c.dialOptions()
	if err != nil {
		return nil, err
	}
	return locklib.NewClient(c.addresses, append(options, locklib.WithDial(dial...))...)
}

// With runs fn with a connection, and with a context for one request.
func With(cmd *cobra.Command, fn func(ctx context.Context, c *Connection) error) error {
	c, err := Dial(cmd)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := c.Request(cmd.Context())
	defer cancel()
	return c.Explain(fn(ctx, c))
}

// Request returns a context for one request.
func (c *Connection) Request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.Timeout)
}

// Settings say how to connect.
type Settings struct {
	// addresses are the servers' addresses.
	addresses              []string
	tlsCA, tlsCert, tlsKey string
	insecure               bool
	credentialFile         string
	oidc                   clientcredentials.Config
	// Timeout bounds each request.
	Timeout time.Duration
}

// Address returns the addresses as --address and $LOCKET_ADDRESS take them.
func (s Settings) Address() string { return strings.Join(s.addresses, ",") }

// Environment returns the variables that lead another locket to the same servers. One whose value is empty must not be set. They are
// complete, so that no context adds anything.
func (s Settings) Environment() map[string]string {
	env := map[string]string{
		"LOCKET_ADDRESS": s.Address(), "LOCKET_INSECURE": strconv.FormatBool(s.insecure), "LOCKET_TIMEOUT": s.Timeout.String(),
		"LOCKET_CONTEXT": "", "LOCKET_CONTEXT_FILE": os.DevNull,
	}
	for flag, file := range map[string]string{
		"tls-ca": s.tlsCA, "tls-cert": s.tlsCert, "tls-key": s.tlsKey, "credential-file": s.credentialFile,
		"oidc-client-secret-file": s.oidc.SecretFile, "oidc-ca": s.oidc.CA,
	} {
		if path, err := filepath.Abs(file); err == nil && file != "" && file != settings.SystemCA {
			file = path // that process may have another working directory
		}
		env[settings.Variable(flag)] = file
	}
	for flag, value := range map[string]string{
		"oidc-issuer": s.oidc.Issuer, "oidc-client-id": s.oidc.ID, "oidc-scopes": strings.Join(s.oidc.Scopes, ","), "oidc-audience": s.oidc.Audience,
	} {
		env[settings.Variable(flag)] = value
	}
	return env
}

// settingsOf asks the flags, the environment and the context, in this order.
func settingsOf(flags *pflag.FlagSet) (Settings, error) {
	sources, err := settings.WithContexts(flags)
	if err != nil {
		return Settings{}, err
	}
	var s Settings
	s.addresses = settings.SplitList(sources.Value("address"))
	s.tlsCA = sources.Value("tls-ca")
	s.tlsCert = sources.Value("tls-cert")
	s.tlsKey = sources.Value("tls-key")
	s.credentialFile = sources.Value("credential-file")
	s.oidc = OIDCOf(sources)
	if s.insecure, err = strconv.ParseBool(sources.Value("insecure")); err != nil {
		return Settings{}, sources.Wrong("insecure", "true or false")
	}
	if s.Timeout, err = settings.ParseDuration(sources.Value("timeout")); err != nil || s.Timeout <= 0 {
		return Settings{}, sources.Wrong("timeout", "more than 0: "+settings.DurationHelp)
	}
	return s, nil
}

func (s Settings) secure() bool { return s.tlsCA+s.tlsCert+s.tlsKey != "" }

func (s Settings) dialOptions() ([]conn.Option, error) {
	security, err := s.securityOptions()
	if err != nil {
		return nil, err
	}
	source, err := CredentialSource(s.oidc, s.credentialFile)
	switch {
	case err != nil:
		return nil, err
	case source != nil:
		security = append(security, conn.WithCredentialSource(source))
	case s.credentialFile != "":
		security = append(security, conn.WithCredentialFile(s.credentialFile))
	}
	return security, nil
}

// securityOptions returns the options that say how to connect.
func (s Settings) securityOptions() ([]conn.Option, error) {
	files := conn.Files{CA: s.tlsCA, Cert: s.tlsCert, Key: s.tlsKey}
	if files.CA == settings.SystemCA {
		files.CA = ""
	}
	switch {
	case s.secure() && s.insecure:
		return nil, exit.Usagef("--insecure and --tls-ca, --tls-cert, --tls-key exclude each other, also in the environment and the context")
	case s.secure():
		return []conn.Option{conn.WithTLSFiles(files)}, nil
	case s.insecure:
		return []conn.Option{conn.WithInsecure()}, nil
	}
	for _, address := range s.addresses {
		host, _, err := net.SplitHostPort(address)
		if err == nil && host != "" && !loopback.Is(host) {
			return nil, exit.Usagef("%s is on another machine: give --tls-ca FILE (or --tls-ca system), or --insecure for plain text", address)
		}
	}
	return nil, nil
}

// CompleteContexts completes the names of contexts.
func CompleteContexts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	contexts, err := settings.Contexts(cmd.Flags())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names := make([]string, len(contexts))
	for i, c := range contexts {
		names[i] = c.Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
