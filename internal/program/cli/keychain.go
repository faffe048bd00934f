package cli

import (
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/pipe"
	"github.com/locket-service/locket/internal/program/cli/settings"
	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/keychain"
)

// keychainOptions are the flags of `locket keychain`.
type keychainOptions struct {
	ttl, timeout   time.Duration
	waitTTL        time.Duration
	margin         time.Duration
	releaseTimeout time.Duration
	notices        bool
	signalParent   string
	killAfter      time.Duration
	logLevel       string

	// The following flags say where the server is.
	urls           []string
	files          keychain.Files
	credentialFile string
	insecure       bool
}

func newKeychainCommand() *cobra.Command {
	var o keychainOptions
	cmd := &cobra.Command{
		Use:   "keychain",
		Short: "Keep claims alive for the program that started it, which talks to it over a pipe",
		Long: `Keep claims alive for the program that started it, which talks to it over a pipe.

It reads requests from standard input and answers on standard output, one JSON object per line. It renews the claims
until they are released, and ends all of them when the program ends, however it ends. It speaks HTTP, to Locket or to
any server with the same /v1/claims. docs/keychain.md describes the requests, and examples/ has clients in Python and
Perl.`,
		Example: `  locket keychain --url https://locket.internal:8892 --tls-ca ca.crt --credential-file me.credential
  locket keychain --ttl 15s --notices
  locket keychain --signal-parent=TERM --kill-after 30s
  # and then, for instance:
  # {"command": "claim", "resource_name": "nightly-report", "serial": 1}`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&o.ttl, "ttl", keychain.DefaultTTL, "how long a claim lasts without renewal, unless the request has a ttl")
	flags.DurationVar(&o.margin, "margin", 0, "how long before the end of its lease a claim that could not be renewed counts as lost: the time to stop; at most half of the TTL (default a twentieth)")
	flags.DurationVar(&o.timeout, "timeout", 0, "how long a claim may wait, unless the request has a timeout; 0: for ever")
	flags.DurationVar(&o.waitTTL, "wait-ttl", keychain.DefaultWaitTTL, "how long a waiting claim stays in the queue while the server does not hear from it; 0: for ever")
	flags.DurationVar(&o.releaseTimeout, "release-timeout", keychain.DefaultReleaseTimeout, "how long ending all claims may take")
	flags.BoolVar(&o.notices, "notices", false, "also send a notice when a claim is lost")
	flags.StringVar(&o.signalParent, "signal-parent", "", "when a claim is lost, first send this `signal` to the program")
	flags.Lookup("signal-parent").NoOptDefVal = "TERM"
	flags.DurationVar(&o.killAfter, "kill-after", 10*time.Second, "how long after --signal-parent to kill the program; 0: never")
	flags.StringVar(&o.logLevel, "log-level", "warn", "debug, info, warn or error")
	o.addConnection(flags)
	return cmd
}

// addConnection adds the flags that say where the server is, which each can also be given in the environment (package settings).
func (o *keychainOptions) addConnection(flags *pflag.FlagSet) {
	own := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	own.StringSliceVar(&o.urls, "url", []string{"http://" + server.DefaultHTTPAddress}, "the `addresses` of servers of one database, separated by commas or repeated; if one fails, the next is used")
	own.StringVar(&o.files.CA, "tls-ca", "", "a `file` with CA certificates of the servers (PEM; default the system's)")
	own.StringVar(&o.files.Cert, "tls-cert", "", "a `file` with the client certificate (PEM)")
	own.StringVar(&o.files.Key, "tls-key", "", "a `file` with the key of the client certificate (PEM)")
	own.StringVar(&o.credentialFile, "credential-file", "", "a `file` with a bearer credential; it is read again for every request")
	connect.AddOIDCFlags(own)
	own.BoolVar(&o.insecure, "insecure", false, "allow sending the bearer credential to another machine without TLS")
	own.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{connect.FlagMark: {"true"}} })
	flags.AddFlagSet(own)
}

// run serves the client until it is done, or gone.
func (o *keychainOptions) run(cmd *cobra.Command) error {
	sig, err := pipe.ParseSignal(o.signalParent)
	if err != nil {
		return exit.Usagef("--signal-parent: %w", err)
	}
	if o.killAfter < 0 {
		return exit.Usagef("--kill-after %s: must not be negative", o.killAfter)
	}
	parent, err := pipe.NewParent(sig, o.killAfter)
	if err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return exit.Usagef("--log-level %q: must be debug, info, warn or error", o.logLevel)
	}
	log, flush := pipe.NewLogger(os.Stderr, level)
	defer flush()
	options, err := o.arguments(cmd, log)
	if err != nil {
		return err
	}
	kc, err := keychain.New(o.urls[0], append(options, keychain.WithFailover(o.urls[1:]...))...)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	return pipe.Serve(cmd.Context(), kc, pipe.Options{
		Log: log, Notices: o.notices, Parent: parent, ReleaseTimeout: o.releaseTimeout,
	}, cmd.InOrStdin(), cmd.OutOrStdout())
}

// arguments completes and checks the flags, and returns the options of the keychain.
func (o *keychainOptions) arguments(cmd *cobra.Command, log *slog.Logger) ([]keychain.Option, error) {
	sources := settings.New(connectFlags(cmd))
	if err := sources.Apply(); err != nil {
		return nil, err
	}
	for i := range o.urls {
		o.urls[i] = strings.TrimSpace(o.urls[i])
	}
	switch {
	case len(o.urls) == 0:
		return nil, exit.Usagef("--url: there is no address")
	case o.ttl < time.Second || o.timeout < 0 || o.margin < 0:
		return nil, exit.Usagef("--ttl must be 1s at least, --timeout and --margin not negative")
	case o.waitTTL != 0 && o.waitTTL < 15*time.Second:
		return nil, exit.Usagef("--wait-ttl %s: must be 15s at least, or 0 for ever", o.waitTTL)
	}
	options := []keychain.Option{
		keychain.WithLogger(log), keychain.WithReleaseTimeout(o.releaseTimeout),
		keychain.WithDefaults(
			keychain.WithTTL(o.ttl), keychain.WithMargin(o.margin), keychain.WithTimeout(o.timeout), keychain.WithWaitTTL(o.waitTTL),
		),
	}
	if o.files.CA == settings.SystemCA {
		o.files.CA = ""
	}
	if o.files != (keychain.Files{}) {
		options = append(options, keychain.WithTLSFiles(o.files))
	}
	if o.insecure {
		options = append(options, keychain.WithInsecure())
	}
	source, err := connect.CredentialSource(connect.OIDCOf(sources), o.credentialFile)
	switch {
	case err != nil:
		return nil, err
	case source != nil:
		options = append(options, keychain.WithCredentialSource(source))
	case o.credentialFile != "":
		options = append(options, keychain.WithCredentialFile(o.credentialFile))
	}
	return options, nil
}
