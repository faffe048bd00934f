package server

import (
	"time"

	"github.com/locket-service/locket/internal/authn"
)

// Where a server listens by default: on this machine alone.
const (
	DefaultGRPCAddress = "127.0.0.1:8891"
	DefaultHTTPAddress = "127.0.0.1:8892"
)

// DefaultData is the folder in which a server keeps its data that is told neither Data nor Database.
const DefaultData = "./locket-data"

// oldDefault is the file in which versions before the raft engine kept their data without Data and Database.
const oldDefault = "locket.db"

// database returns where the server keeps its data, as Database says it.
func (c Config) database() string {
	switch {
	case c.Database != "":
		return c.Database
	case c.Data != "":
		return engineRaft + ":" + c.Data
	}
	return engineRaft + ":" + DefaultData
}

// Config is the configuration of a server. Each field has the name of the flag of `locket server` that
// sets it, by which Validate names it too. DefaultConfig has the defaults.
type Config struct {
	// GRPCAddress and HTTPAddress (--grpc-address, --http-address) are the HOST:PORT to listen on.
	// Without TLS the host must be a loopback address, unless Insecure is set. An empty address
	// switches the door off; one of the two is open.
	GRPCAddress, HTTPAddress string
	// HTTPAnonymous (--http-anonymous) has HTTP take callers without a client certificate, as
	// access.Anonymous. Else both doors require one if there is TLS.
	HTTPAnonymous bool
	// HTTPHosts (--http-hosts) are the names, without ports, by which clients may ask for HTTP
	// without TLS, beside addresses, localhost and the machine's name. Without any, all names are
	// allowed, but on loopback none.
	HTTPHosts []string
	// HTTPOrigins (--http-origins) are the origins whose pages in a browser may use HTTP (CORS), each like
	// https://console.example.com.
	HTTPOrigins []string
	// TrustedProxies (--trusted-proxies) are the addresses, or the networks in CIDR notation, of
	// proxies whose headers X-Forwarded-Proto, -Host and -Prefix over HTTP are used.
	TrustedProxies []string
	// OpsAddress (--ops-address) is the HOST:PORT of /healthz, /readyz, /metrics and /debug/pprof/,
	// in plain HTTP; empty: no such door, and the first three are served over HTTP.
	OpsAddress string
	// OpsInsecure (--ops-insecure) allows an OpsAddress other than loopback.
	OpsInsecure bool
	// Data (--data) is the folder in which the server keeps its data by itself, without a Database. Empty: DefaultData.
	Data string
	// Database (--database) is mysql:USER:PASSWORD@tcp(HOST:PORT)/NAME, raft:FOLDER, which is Data, or sqlite:FILE of
	// an older version, which is imported into the folder FILE.data. It may hold a password, and is never logged whole.
	Database string
	// DatabasePassword ($LOCKET_DATABASE_PASSWORD) or the first line of DatabasePasswordFile
	// (--database-password-file) is the password for a Database that holds none. The file is read again when it changes.
	DatabasePassword, DatabasePasswordFile string
	// DatabaseCA (--database-ca) is a file in PEM with the authorities of the database's
	// certificate; with it connections to the database need TLS.
	DatabaseCA string
	// DatabaseAnyName (--database-any-name) has the certificate of DatabaseCA's authorities
	// suffice, whatever host it names.
	DatabaseAnyName bool
	// DatabaseWait (--database-wait) is how long Serve waits for a database that is not up; 0: it
	// tries once.
	DatabaseWait time.Duration
	// DatabaseTimeout (--database-timeout) bounds each transaction; 100 ms or more.
	DatabaseTimeout time.Duration
	// TLSCert, TLSKey and TLSClientCA (--tls-cert, --tls-key, --tls-client-ca) are files in PEM: the
	// server's certificate, its key, and the authorities of the clients' certificates. All three
	// are given, or none, which is plain text; with another way of authentication TLSClientCA may
	// be left out. They are read again when they change. With TLSClientCA the clients' certificates
	// say who calls.
	TLSCert, TLSKey, TLSClientCA string
	// TLSMinVersion (--tls-min-version) is the lowest version of TLS: 1.2 or 1.3.
	TLSMinVersion string
	// TLSCRL (--tls-crl) is a file with revocation lists of the clients' authorities, in PEM or DER. It is
	// read again when it changes, and counts for connections that are open too.
	TLSCRL string
	// SPIFFEBundles (--spiffe-bundles) are files with the authorities of SPIFFE trust domains, each as
	// DOMAIN=FILE, in PEM. With them SPIFFE ids are accepted of these trust domains alone.
	SPIFFEBundles []string
	// AuthCredentials (--auth-credentials) is a file of bearer credentials that clients may show, and their names.
	AuthCredentials string
	// AuditLog (--audit-log) is a file that gets a line for each call that changes something, and for
	// each that is refused for who makes it; opened again on SIGHUP. Empty: none.
	AuditLog string
	// AuditRequired (--audit-required) has calls that would change something refused while AuditLog cannot be
	// written, before they change it.
	AuditRequired bool
	// AuthRules (--auth-rules) is a file of rules: who may do what. Without it, everybody who is let
	// in may read and hold every name.
	AuthRules string
	// OIDCIssuers (--oidc-issuers) are the addresses of OIDC providers whose JWTs are accepted,
	// each as URL, or NAME=URL if there are several.
	OIDCIssuers []string
	// OIDCAudience (--oidc-audience) must be among the audiences of each JWT.
	OIDCAudience string
	// OIDCUserClaim and OIDCGroupsClaim (--oidc-user-claim, --oidc-groups-claim) are the claims of a
	// JWT that name the user and the groups; no groups claim: no groups.
	OIDCUserClaim, OIDCGroupsClaim string
	// OIDCKeys (--oidc-keys) is a file with the issuer's keys (JWK set), for places without discovery.
	OIDCKeys string
	// OIDCCA (--oidc-ca) is a file in PEM with the authorities of the issuers' certificates.
	OIDCCA string
	// OIDCConsoleClientID (--oidc-console-client-id) is the name of the console at the issuer, where people then
	// sign in; empty: they do not.
	OIDCConsoleClientID string
	// OIDCConsoleSecretFile (--oidc-console-secret-file) is a file with the secret of that client; empty: it is a public one.
	OIDCConsoleSecretFile string
	// OIDCConsoleScopes (--oidc-console-scopes) are asked for besides openid.
	OIDCConsoleScopes []string
	// AuthProxies (--auth-proxies) are the proxies that authenticate callers: the identities of
	// their client certificates, or "loopback" for all connections from this machine.
	AuthProxies []string
	// AuthProxyUserHeader and AuthProxyGroupsHeader (--auth-proxy-user-header,
	// --auth-proxy-groups-header) are where these proxies name the user and the groups.
	AuthProxyUserHeader, AuthProxyGroupsHeader string
	// Insecure (--insecure) allows plain text on addresses other than loopback.
	Insecure bool
	// MaxWaiting is how many calls may wait for a claim at once; 0 for handlers.DefaultMaxWaiting.
	MaxWaiting int
	// MaxSessions is how many sessions may be attached at once; 0 for session.DefaultSessions.
	MaxSessions int
	// HistoryRetention (--history-retention) is for how long finished claims are kept; 1 s or more.
	HistoryRetention time.Duration
	// HistoryLimit (--history-limit) is how many finished claims are kept at most; at least 1.
	HistoryLimit int
	// HistoryMinimum (--history-minimum) is for how long finished claims are kept even when they
	// are more than HistoryLimit; 0 or more. A HistoryRetention that is shorter comes first.
	HistoryMinimum time.Duration
	// ShutdownTimeout (--shutdown-timeout) is how long requests under way may take after the
	// server got the signal to stop; 100 ms or more.
	ShutdownTimeout time.Duration
	// LogLevel (--log-level) is debug, info, warn or error.
	LogLevel string
	// LogFormat (--log-format) is text, json, or auto: text on a terminal. lager and lager-rfc3339
	// are the two formats of Cloud Foundry's Locket, and go to standard output.
	LogFormat string
	// IgnoredFields are the fields of a configuration file that have no effect here. Serve names
	// them in a warning.
	IgnoredFields []string
}

// DefaultConfig returns the configuration of a server without any settings.
func DefaultConfig() Config {
	return Config{
		GRPCAddress: DefaultGRPCAddress, HTTPAddress: DefaultHTTPAddress,
		DatabaseWait: time.Minute, DatabaseTimeout: 10 * time.Second,
		HistoryRetention: 24 * time.Hour, HistoryLimit: 1_000_000, HistoryMinimum: 10 * time.Minute,
		ShutdownTimeout: 10 * time.Second,
		LogLevel:        "info", LogFormat: "auto", TLSMinVersion: "1.2",
		OIDCUserClaim: authn.DefaultUserClaim, AuthProxyUserHeader: authn.DefaultUserHeader,
	}
}
