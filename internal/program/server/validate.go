package server

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/internal/base/loopback"
)

// Validate returns all errors in a configuration that need no file and no network, each with the name of its flag.
// Serve finds the others.
func (c Config) Validate() error {
	wrong := append(c.wrongListeners(), c.wrongDatabase()...)
	wrong = append(wrong, c.wrongCluster()...)
	wrong = append(wrong, c.wrongAuthentication()...)
	for _, bounded := range []struct {
		flag         string
		value, least time.Duration
	}{
		{"database-wait", c.DatabaseWait, 0},
		{"database-timeout", c.DatabaseTimeout, 100 * time.Millisecond},
		{"shutdown-timeout", c.ShutdownTimeout, 100 * time.Millisecond},
		{"history-retention", c.HistoryRetention, time.Second},
		{"history-minimum", c.HistoryMinimum, 0},
	} {
		if bounded.value < bounded.least {
			wrong = append(wrong, fmt.Errorf("--%s: %v: must be at least %v", bounded.flag, bounded.value, bounded.least))
		}
	}
	if c.HistoryLimit < 1 {
		wrong = append(wrong, fmt.Errorf("--history-limit: %d: must be at least 1", c.HistoryLimit))
	}
	if c.AuditRequired && c.AuditLog == "" {
		wrong = append(wrong, errors.New("--audit-required: there is no log to require; give --audit-log"))
	}
	if _, err := c.newLogHandler(nil); err != nil {
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

func (c Config) wrongDatabase() (wrong []error) {
	if c.DatabasePassword != "" && c.DatabasePasswordFile != "" {
		wrong = append(wrong, errors.New("--database-password-file and $LOCKET_DATABASE_PASSWORD: give one of the two"))
	}
	if c.Database != "" && c.Data != "" {
		wrong = append(wrong, errors.New("--data and --database exclude each other: give one of the two"))
	}
	if err := wrongStore(c.database()); err != nil {
		wrong = append(wrong, fmt.Errorf("--database: %w", err))
	}
	if strings.HasPrefix(c.database(), engineMySQL+":") {
		return wrong
	}
	return append(wrong, onlyFor("a mysql: database", map[string]string{
		"--database-ca": c.DatabaseCA, "--database-password-file": c.DatabasePasswordFile, "$LOCKET_DATABASE_PASSWORD": c.DatabasePassword,
	})...)
}

// onlyFor returns an error for each setting that is given, and that only something else takes.
func onlyFor(what string, settings map[string]string) (wrong []error) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if settings[name] != "" {
			wrong = append(wrong, fmt.Errorf("%s: only %s takes it", name, what))
		}
	}
	return wrong
}

func (c Config) wrongListeners() (wrong []error) {
	config, _ := c.authentication()
	secure := c.TLSCert != "" && c.TLSKey != ""
	switch all := secure && c.TLSClientCA != ""; {
	case all, c.TLSCert+c.TLSKey+c.TLSClientCA == "":
	case !secure || !config.OtherThanCertificates():
		wrong = append(wrong, errors.New("--tls-cert, --tls-key and --tls-client-ca go together: give all three, or none; with another way of authentication --tls-client-ca may be left out"))
	}
	if tlsVersions[c.TLSMinVersion] == 0 {
		wrong = append(wrong, fmt.Errorf("--tls-min-version %q: must be 1.2 or 1.3", c.TLSMinVersion))
	}
	if err := gateway.ValidHosts(c.HTTPHosts); err != nil {
		wrong = append(wrong, fmt.Errorf("--http-hosts: %w", err))
	}
	if err := gateway.ValidOrigins(c.HTTPOrigins); err != nil {
		wrong = append(wrong, fmt.Errorf("--http-origins: %w", err))
	}
	if c.GRPCAddress == "" && c.HTTPAddress == "" {
		wrong = append(wrong, errors.New("--grpc-address and --http-address: both are off, so nothing is served"))
	}
	if _, err := c.trustedProxies(); err != nil {
		wrong = append(wrong, err)
	}
	anywhere := c.TLSCert+c.TLSKey+c.TLSClientCA != "" || c.Insecure
	const needsTLS = "without TLS the server listens on loopback only; give it certificates, or --insecure"
	const plain = "it is plain HTTP, on loopback only; to serve it elsewhere too, give --ops-insecure"
	return append(wrong,
		wrongAddress("grpc-address", c.GRPCAddress, anywhere, needsTLS),
		wrongAddress("http-address", c.HTTPAddress, anywhere, needsTLS),
		wrongAddress("ops-address", c.OpsAddress, c.OpsInsecure, plain))
}

// wrongAddress returns an error in the address of a listener; an empty address turns the listener off.
func wrongAddress(flag, address string, anywhere bool, otherwise string) error {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err == nil && port == "" {
		err = errors.New("no port")
	}
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	switch {
	case err != nil:
		return fmt.Errorf("--%s %q: must be HOST:PORT, or empty for none: %w", flag, address, err)
	case !anywhere && !loopback.Is(host):
		return fmt.Errorf("--%s %s: %s", flag, address, otherwise)
	}
	return nil
}

func (c Config) trustedProxies() (networks []netip.Prefix, err error) {
	for _, text := range c.TrustedProxies {
		text = strings.TrimSpace(text)
		network, err := netip.ParsePrefix(text)
		if err != nil {
			address, err := netip.ParseAddr(text)
			if err != nil || address.Zone() != "" {
				return nil, fmt.Errorf("--trusted-proxies: %q: must be an address, or a network as in 10.0.0.0/8", text)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}
