package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tedsuo/ifrit/grouper"
)

// Validate reports all errors at once, each with its flag.
func TestValidate(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
	for name, test := range map[string]struct {
		change func(*Config)
		words  []string
	}{
		"one file of TLS":                   {func(c *Config) { c.TLSKey = "k" }, []string{"--tls-cert", "--tls-key", "--tls-client-ca"}},
		"two files of TLS":                  {func(c *Config) { c.TLSKey, c.TLSCert = "k", "c" }, []string{"--tls-client-ca"}},
		"no time for transactions":          {func(c *Config) { c.DatabaseTimeout = 0 }, []string{"--database-timeout"}},
		"less than no time to stop":         {func(c *Config) { c.ShutdownTimeout = -time.Second }, []string{"--shutdown-timeout"}},
		"no history":                        {func(c *Config) { c.HistoryRetention, c.HistoryLimit = 0, 0 }, []string{"--history-retention", "--history-limit"}},
		"history of the future":             {func(c *Config) { c.HistoryMinimum = -time.Second }, []string{"--history-minimum"}},
		"gRPC for everybody":                {func(c *Config) { c.GRPCAddress = "0.0.0.0:1" }, []string{"--grpc-address 0.0.0.0:1", "loopback"}},
		"HTTP for everybody":                {func(c *Config) { c.HTTPAddress = ":1" }, []string{"--http-address :1", "loopback"}},
		"no port":                           {func(c *Config) { c.GRPCAddress = "localhost" }, []string{"--grpc-address", "port"}},
		"an empty port":                     {func(c *Config) { c.HTTPAddress = "localhost:" }, []string{"--http-address", "port"}},
		"a word for a port":                 {func(c *Config) { c.OpsAddress = "localhost:nonsense" }, []string{"--ops-address", "nonsense"}},
		"no listener":                       {func(c *Config) { c.GRPCAddress, c.HTTPAddress, c.OpsAddress = "", "", "localhost:1" }, []string{"--grpc-address", "--http-address", "nothing"}},
		"operations for everybody":          {func(c *Config) { c.OpsAddress, c.Insecure = ":1", true }, []string{"--ops-address :1", "--ops-insecure"}},
		"TLS, and operations for everybody": {func(c *Config) { c.TLSCert, c.TLSKey, c.TLSClientCA, c.OpsAddress = "c", "k", "a", "0.0.0.0:1" }, []string{"--ops-insecure"}},
		"a proxy by its name":               {func(c *Config) { c.TrustedProxies = []string{"10.0.0.1", "proxy"} }, []string{"--trusted-proxies", "proxy"}},
		"a proxy with a zone":               {func(c *Config) { c.TrustedProxies = []string{"fe80::1%eth0"} }, []string{"--trusted-proxies", "eth0"}},
		"an impossible network":             {func(c *Config) { c.TrustedProxies = []string{"10.0.0.0/33"} }, []string{"--trusted-proxies", "/33"}},
		"etcd without a scheme":             {func(c *Config) { c.Etcd = []string{"10.0.0.1:2379"} }, []string{`--etcd: "10.0.0.1:2379": must be http://`}},
		"a user of etcd without a password": {func(c *Config) { c.Etcd, c.EtcdUser = []string{"http://a:1"}, "u" }, []string{"--etcd-user and --etcd-password-file"}},
		"a folder and a database":           {func(c *Config) { c.Data, c.Database = "data", "embedded:x" }, []string{"--data", "--database"}},
		"two passwords":                     {func(c *Config) { c.Database, c.DatabasePassword, c.DatabasePasswordFile = "mysql:x", "a", "b" }, []string{"--database-password-file", "$LOCKET_DATABASE_PASSWORD"}},
		"a password for a folder":           {func(c *Config) { c.DatabasePassword = "s3cret" }, []string{"$LOCKET_DATABASE_PASSWORD", "mysql:"}},
		"a password's file for a folder":    {func(c *Config) { c.DatabasePasswordFile = "f" }, []string{"--database-password-file", "mysql:"}},
		"authorities for a folder":          {func(c *Config) { c.DatabaseCA = "f" }, []string{"--database-ca", "mysql:"}},
		"a revocation list of nobody":       {func(c *Config) { c.TLSCRL = "f" }, []string{"--tls-crl", "--tls-client-ca"}},
		"bundles without certificates":      {func(c *Config) { c.SPIFFEBundles = []string{"a.example=f"} }, []string{"--spiffe-bundles", "--tls-client-ca"}},
		"a bundle without a file":           {func(c *Config) { c.SPIFFEBundles = []string{"a.example"} }, []string{"--spiffe-bundles", "a.example"}},
		"a bundle of a SPIFFE id":           {func(c *Config) { c.SPIFFEBundles = []string{"spiffe://a.example=f"} }, []string{"--spiffe-bundles"}},
		"two bundles of one trust domain":   {func(c *Config) { c.SPIFFEBundles = []string{"a.example=f", "a.example=g"} }, []string{"--spiffe-bundles", "twice"}},
		"an origin with a path":             {func(c *Config) { c.HTTPOrigins = []string{"https://a.example/x"} }, []string{"--http-origins", "https://a.example/x"}},
		"every origin":                      {func(c *Config) { c.HTTPOrigins = []string{"*"} }, []string{"--http-origins"}},
		"no origin":                         {func(c *Config) { c.HTTPOrigins = []string{"null"} }, []string{"--http-origins"}},
		"an origin in capitals":             {func(c *Config) { c.HTTPOrigins = []string{"https://A.example"} }, []string{"--http-origins"}},
		"a host with a scheme":              {func(c *Config) { c.HTTPHosts = []string{"a.example", "https://b.example"} }, []string{"--http-hosts", "https://b.example"}},
		"a host of two words":               {func(c *Config) { c.HTTPHosts = []string{"a b"} }, []string{"--http-hosts", "a b"}},
		"an empty host":                     {func(c *Config) { c.HTTPHosts = []string{""} }, []string{"--http-hosts"}},
		"a pattern of hosts":                {func(c *Config) { c.HTTPHosts = []string{"*.example"} }, []string{"--http-hosts", "*.example"}},
		"signing in at no issuer":           {func(c *Config) { c.OIDCConsoleClientID = "console" }, []string{"--oidc-console-client-id", "--oidc-issuers"}},
		"signing in at two issuers": {func(c *Config) {
			c.OIDCIssuers, c.OIDCAudience, c.OIDCConsoleClientID = []string{"a=https://a.example", "b=https://b.example"}, "locket", "console"
		}, []string{"--oidc-console-client-id", "one issuer"}},
		"the secret of no client":         {func(c *Config) { c.OIDCConsoleSecretFile = "f" }, []string{"--oidc-console-secret-file", "--oidc-console-client-id"}},
		"the scopes of no client":         {func(c *Config) { c.OIDCConsoleScopes = []string{"groups"} }, []string{"--oidc-console-scopes", "--oidc-console-client-id"}},
		"an audit log that is not there":  {func(c *Config) { c.AuditRequired = true }, []string{"--audit-required", "--audit-log"}},
		"a header of another meaning":     {func(c *Config) { c.AuthProxyUserHeader = "Authorization" }, []string{"--auth-proxy-user-header", "authorization"}},
		"a header with a blank":           {func(c *Config) { c.AuthProxyGroupsHeader = "Remote Groups" }, []string{"--auth-proxy-groups-header", "remote groups"}},
		"one header for users and groups": {func(c *Config) { c.AuthProxyGroupsHeader = "x-remote-user" }, []string{"--auth-proxy-groups-header", "the same"}},
		"an old TLS":                      {func(c *Config) { c.TLSMinVersion = "1.1" }, []string{"--tls-min-version", "1.2 or 1.3"}},
		"an unknown level":                {func(c *Config) { c.LogLevel = "loud" }, []string{"--log-level", "loud"}},
		"an unknown format":               {func(c *Config) { c.LogFormat = "xml" }, []string{"--log-format", "xml", "lager"}},
	} {
		c := DefaultConfig()
		test.change(&c)
		err := c.Validate()
		for _, word := range test.words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not mention %q", name, err, word)
			}
		}
	}
	for name, change := range map[string]func(*Config){
		"all files of TLS": func(c *Config) { c.TLSCert, c.TLSKey, c.TLSClientCA, c.GRPCAddress = "c", "k", "a", "0.0.0.0:1" },
		"insecure":         func(c *Config) { c.Insecure, c.HTTPAddress = true, ":1" },
		"hosts": func(c *Config) {
			c.HTTPHosts = []string{"a_b-1.Example:8892", "b.example.", "10.0.0.1", "[::1]:80", "::1"}
		},
		"IPv6":                     func(c *Config) { c.HTTPAddress = "[::1]:1" },
		"a name":                   func(c *Config) { c.HTTPAddress = "localhost:1" },
		"one try":                  func(c *Config) { c.DatabaseWait = 0 },
		"proxies":                  func(c *Config) { c.TrustedProxies = []string{"10.0.0.1", " ::1", "10.1.2.3/8"} },
		"gRPC alone":               func(c *Config) { c.HTTPAddress = "" },
		"HTTP alone":               func(c *Config) { c.GRPCAddress = "" },
		"operations":               func(c *Config) { c.OpsAddress = "127.0.0.1:1" },
		"operations for everybody": func(c *Config) { c.OpsAddress, c.OpsInsecure = ":1", true },
		"the name of a port":       func(c *Config) { c.HTTPAddress = "localhost:http" },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := DefaultConfig()
	c.DatabasePassword = "s3cret"
	if err := c.Validate(); strings.Contains(err.Error(), "s3cret") {
		t.Errorf("an error contains the password: %v", err)
	}
}

// TestErrorsInOrder: the same configuration gets the same text, however often it is validated.
func TestErrorsInOrder(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.DatabaseCA, c.DatabasePasswordFile, c.DatabasePassword = "a", "f", "s"
	first := c.Validate()
	for range 100 {
		if err := c.Validate(); err.Error() != first.Error() {
			t.Fatalf("%v; then %v", first, err)
		}
	}
}

// The text for people contains no secret.
func TestGreeting(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.Database, c.GRPCAddress = "mysql:me:s3cret@tcp(127.0.0.1:1)/locket", "127.0.0.1:7"
	if text := greeting(c); strings.Contains(text, "s3cret") || !strings.Contains(text, "from mysql.") || !strings.Contains(text, "--ttl 5m --address 127.0.0.1:7") || !strings.Contains(text, "\nConsole: http://"+c.HTTPAddress+"/console/\n") {
		t.Error(text)
	}
}

// The error of a server names the runners that failed, in one line each, and not the runners that ended because of them.
func TestCauses(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	trace := grouper.ErrorTrace{
		{Member: grouper.Member{Name: "grpc"}, Err: boom}, {Member: grouper.Member{Name: "http"}}, {Member: grouper.Member{Name: "committer"}, Err: errors.New("late")},
	}
	if err := causes(trace); err.Error() != "grpc: boom\ncommitter: late" || !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if err := causes(grouper.ErrorTrace{{Member: grouper.Member{Name: "grpc"}}}); err != nil {
		t.Errorf("a good end: %v", err)
	}
	if err := causes(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
	if err := causes(boom); !errors.Is(err, boom) {
		t.Errorf("another error: %v", err)
	}
}
