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

// check collects the errors in a configuration.
type check []error

// that adds an error unless ok.
func (k *check) that(ok bool, format string, args ...any) {
	if !ok {
		*k = append(*k, fmt.Errorf(format, args...))
	}
}

// valid adds an error in some settings unless it is nil.
func (k *check) valid(settings string, err error) { k.that(err == nil, "%s: %w", settings, err) }

// only adds an error for each setting that is given though only something else takes it.
func (k *check) only(what string, settings map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		k.that(settings[name] == "", "%s: only %s takes it", name, what)
	}
}

// Validate returns all errors in a configuration that need no file and no network, each with the name of its flag.
// Serve finds the others.
func (c Config) Validate() error {
	var k check
	c.checkListeners(&k)
	c.checkDatabase(&k)
	c.checkCluster(&k)
	c.checkAuthentication(&k)
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
		k.that(bounded.value >= bounded.least, "--%s: %v: must be at least %v", bounded.flag, bounded.value, bounded.least)
	}
	k.that(c.HistoryLimit >= 1, "--history-limit: %d: must be at least 1", c.HistoryLimit)
	k.that(!c.AuditRequired || c.AuditLog != "", "--audit-required: there is no log to require; give --audit-log")
	_, err := c.newLogHandler(nil)
	return errors.Join(append(k, err)...)
}

func (c Config) checkDatabase(k *check) {
	k.that(c.DatabasePassword == "" || c.DatabasePasswordFile == "", "--database-password-file and $LOCKET_DATABASE_PASSWORD: give one of the two")
	k.that(c.Database == "" || c.Data == "", "--data and --database exclude each other: give one of the two")
	k.valid("--database", wrongStore(c.database()))
	if !strings.HasPrefix(c.database(), engineMySQL+":") {
		k.only("a mysql: database", map[string]string{
			"--database-ca": c.DatabaseCA, "--database-password-file": c.DatabasePasswordFile, "$LOCKET_DATABASE_PASSWORD": c.DatabasePassword,
		})
	}
}

func (c Config) checkListeners(k *check) {
	config, _ := c.authentication()
	secure, none := c.TLSCert != "" && c.TLSKey != "", c.TLSCert+c.TLSKey+c.TLSClientCA == ""
	k.that(none || secure && (c.TLSClientCA != "" || config.OtherThanCertificates()),
		"--tls-cert, --tls-key and --tls-client-ca go together: give all three, or none; with another way of authentication --tls-client-ca may be left out")
	k.that(tlsVersions[c.TLSMinVersion] != 0, "--tls-min-version %q: must be 1.2 or 1.3", c.TLSMinVersion)
	k.valid("--http-hosts", gateway.ValidHosts(c.HTTPHosts))
	k.valid("--http-origins", gateway.ValidOrigins(c.HTTPOrigins))
	k.that(c.GRPCAddress != "" || c.HTTPAddress != "", "--grpc-address and --http-address: both are off, so nothing is served")
	_, err := c.trustedProxies()
	const needsTLS = "without TLS the server listens on loopback only; give it certificates, or --insecure"
	const plain = "it is plain HTTP, on loopback only; to serve it elsewhere too, give --ops-insecure"
	*k = append(*k, err,
		wrongAddress("grpc-address", c.GRPCAddress, !none || c.Insecure, needsTLS),
		wrongAddress("http-address", c.HTTPAddress, !none || c.Insecure, needsTLS),
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
