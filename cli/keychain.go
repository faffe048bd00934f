package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/keychain"
)

// keychainOptions are what `locket keychain` is told.
type keychainOptions struct {
	ttl, timeout   time.Duration
	releaseTimeout time.Duration
	notices        bool
	signalParent   string
	killAfter      time.Duration
	logLevel       string
}

func newKeychainCommand() *cobra.Command {
	var o keychainOptions
	cmd := &cobra.Command{
		Use:   "keychain",
		Short: "Keep claims alive for the program that started it, which talks to it over a pipe",
		Long: `Keep claims alive for the program that started it, which talks to it over a pipe.

It takes requests from its standard input and answers on its standard output,
in JSON, an object a line. It renews the claims until they are released, and
gives back all of them when the program ends, however it ends. It speaks HTTP, to
Locket or to any server with the same /v1/claims. docs/keychain.md has the
requests, and examples/ has clients in Python and Perl.`,
		Example: `  locket keychain --url https://locket.internal:8892 --tls-ca ca.crt --token-file token
  locket keychain --ttl 15s --notices
  locket keychain --signal-parent=TERM --kill-after 30s
  # and then, for instance:
  # {"command": "claim", "resource_name": "nightly-report", "serial": 1}`,
		Args:              takes(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&o.ttl, "ttl", keychain.DefaultTTL, "for how long a server keeps a claim that is not renewed, unless the claim says")
	flags.DurationVar(&o.timeout, "timeout", 0, "how long a claim may wait, unless it says; 0: as long as it takes")
	flags.DurationVar(&o.releaseTimeout, "release-timeout", keychain.DefaultReleaseTimeout, "how long giving back may take")
	flags.BoolVar(&o.notices, "notices", false, "also say when a claim is lost, which no request has asked for")
	flags.StringVar(&o.signalParent, "signal-parent", "", "when a claim is lost, first send this `signal` to the program")
	flags.Lookup("signal-parent").NoOptDefVal = "TERM"
	flags.DurationVar(&o.killAfter, "kill-after", 10*time.Second, "how long after --signal-parent to kill the program; 0: never")
	flags.StringVar(&o.logLevel, "log-level", "warn", "debug, info, warn or error")
	addKeychainConnection(flags)
	return cmd
}

// addKeychainConnection adds the flags that say where the server is, which each can also be
// given in the environment, as those of addConnection.
func addKeychainConnection(flags *pflag.FlagSet) {
	own := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	own.String("url", "http://"+defaultHTTPAddress, "the `address` of the server, or of the servers behind one")
	own.String("tls-ca", "", "the `file` (PEM) has the authorities of the server's certificate (default the system's)")
	own.String("tls-cert", "", "the `file` (PEM) has the certificate to show to the server")
	own.String("tls-key", "", "the `file` (PEM) has the key of that certificate")
	own.String("token-file", "", "the `file` has a bearer token to send along")
	own.Bool("insecure", false, "send the bearer token to another machine without TLS")
	own.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{connectFlag: {"true"}} })
	flags.AddFlagSet(own)
}

// run serves the client until it is done, or gone.
func (o *keychainOptions) run(cmd *cobra.Command) error {
	sig, err := parseSignal(o.signalParent)
	if err != nil {
		return usageError("--signal-parent: %w", err)
	}
	if o.killAfter < 0 {
		return usageError("--kill-after %s: must not be negative", o.killAfter)
	}
	parent, err := newParent(sig, o.killAfter)
	if err != nil {
		return err
	}
	// A program that does not read what is logged must not hold up the claims.
	stderr := newOutbox(os.Stderr, func(error) {})
	defer stderr.close(100 * time.Millisecond)
	log, err := o.logger(stderr)
	if err != nil {
		return err
	}
	options, url, err := o.connect(cmd.Flags(), log)
	if err != nil {
		return err
	}
	kc, err := keychain.New(url, options...)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	s := newKeychainServer(kc, parent, log, o)
	return s.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
}

func (o *keychainOptions) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, usageError("--log-level: %w", err)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})).With("keychain", os.Getpid()), nil
}

// connect returns what keychain.New is to be told.
func (o *keychainOptions) connect(flags *pflag.FlagSet, log *slog.Logger) (options []keychain.Option, url string, err error) {
	if o.ttl < time.Second || o.timeout < 0 {
		return nil, "", usageError("--ttl must be 1s at least, --timeout not negative")
	}
	options = []keychain.Option{
		keychain.WithLogger(log), keychain.WithReleaseTimeout(o.releaseTimeout),
		keychain.WithDefaults(keychain.WithTTL(o.ttl), keychain.WithTimeout(o.timeout)),
	}
	s := &sources{flags: flags}
	files := keychain.Files{CA: s.value("tls-ca"), Cert: s.value("tls-cert"), Key: s.value("tls-key")}
	if files.CA == systemCA {
		files.CA = ""
	}
	if files != (keychain.Files{}) {
		options = append(options, keychain.WithTLSFiles(files))
	}
	switch insecure, err := strconv.ParseBool(s.value("insecure")); {
	case err != nil:
		return nil, "", s.wrong("insecure", "true or false")
	case insecure:
		options = append(options, keychain.WithInsecure())
	}
	if file := s.value("token-file"); file != "" {
		token, err := readToken(file)
		if err != nil {
			return nil, "", usageError("the bearer token: %w", err)
		}
		options = append(options, keychain.WithBearerToken(token))
	}
	return options, s.value("url"), nil
}

func readToken(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := bytes.TrimSpace(content)
	if len(token) == 0 || bytes.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", fmt.Errorf("%s must have one, in a line of its own", file)
	}
	return string(token), nil
}

// keychainServer is a desk with all that can end it.
type keychainServer struct {
	keychainOptions
	desk    *desk
	ends    chan keychainEnd // gets what happens first; the others find it full
	signals chan os.Signal
}

// keychainEnd is why a keychain ends.
type keychainEnd struct {
	request *request       // to shut down
	signal  syscall.Signal // that it got
	// loses is what the client loses its claims for, nil if it has given them up.
	loses error
	// failed is set when the claims end as aborted rather than as released.
	failed bool
}

func (e keychainEnd) String() string {
	switch {
	case e.request != nil:
		return "the client has asked for it"
	case e.loses != nil:
		return e.loses.Error()
	default:
		return "the client is gone"
	}
}

func newKeychainServer(kc *keychain.Keychain, parent *parent, log *slog.Logger, o *keychainOptions) *keychainServer {
	s := &keychainServer{keychainOptions: *o, ends: make(chan keychainEnd, 1), signals: make(chan os.Signal, 4)}
	s.desk = &desk{
		keychain: kc, log: log, notices: o.notices, parent: parent, claims: make(map[string]*entry),
		shutdown: func(r *request) { s.end(keychainEnd{request: r}) },
	}
	return s
}

// end ends the keychain, unless something else has done so before.
func (s *keychainServer) end(why keychainEnd) {
	select {
	case s.ends <- why:
	default:
	}
}

// run serves a client, and gives everything back when it is over.
func (s *keychainServer) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listen := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		listen = append(listen, syscall.SIGHUP)
	}
	signal.Notify(s.signals, listen...)
	defer signal.Stop(s.signals)

	d := s.desk
	d.out = newOutbox(stdout, func(err error) {
		s.end(keychainEnd{failed: true, loses: fmt.Errorf("the keychain cannot answer any more: %w", err)})
	})
	go func() {
		if err := d.serve(newInput(stdin)); !errors.Is(err, io.EOF) {
			d.log.Warn("the requests end", "error", err)
		}
		s.end(keychainEnd{})
	}()
	go func() {
		if d.parent.await(ctx) == nil {
			s.end(keychainEnd{failed: true})
		}
	}()
	why := s.await()
	level := slog.LevelInfo
	if why.loses != nil {
		level = slog.LevelWarn
	}
	d.log.Log(ctx, level, "ending", "because", why.String())
	return s.finish(why)
}

// await returns what ends the keychain.
func (s *keychainServer) await() keychainEnd {
	for {
		select {
		case why := <-s.ends:
			return why
		case got := <-s.signals:
			if sig := got.(syscall.Signal); sig != syscall.SIGPIPE { // which the writer is told of
				return keychainEnd{signal: sig, failed: true, loses: fmt.Errorf("the keychain was told to stop (%s)", sig)}
			}
		}
	}
}

// finish gives everything back, within its time.
func (s *keychainServer) finish(why keychainEnd) error {
	d := s.desk
	giveBack := d.keychain.Close
	if why.failed {
		giveBack = d.keychain.Abort
	}
	done := make(chan error, 1)
	go func() { done <- d.close(why.loses, giveBack) }()
	err := s.awaitClose(done)
	if why.request != nil {
		d.answer(why.request, err, nil)
	}
	d.out.close(500 * time.Millisecond)
	switch {
	case err != nil:
		return &exitError{exitFailure, err}
	case why.signal != 0:
		return &exitError{status: 128 + int(why.signal)}
	}
	return nil
}

// awaitClose waits until everything is given back. A second signal ends it at once, and leaves
// the rest to its TTL.
func (s *keychainServer) awaitClose(done <-chan error) error {
	timeout := time.After(s.releaseTimeout + 500*time.Millisecond) // the keychain is as fast as it was told
	for {
		select {
		case err := <-done:
			return err
		case <-timeout:
			return errors.New("giving back takes too long; claims are left to their TTL")
		case got := <-s.signals:
			if got != syscall.SIGPIPE {
				go func() { _ = s.desk.keychain.Abort() }()
			}
		}
	}
}
