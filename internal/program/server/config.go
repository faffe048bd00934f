package server

import (
	"os"
	"time"

	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/etcdnode"
	"github.com/locket-service/locket/internal/doors/authn"
)

// Where a server listens by default: on this machine alone.
const (
	DefaultGRPCAddress = "127.0.0.1:8891"
	DefaultHTTPAddress = "127.0.0.1:8892"
)

// DefaultData is the folder of a server's data if neither Data nor Database is set.
const DefaultData = "./locket-data"

// database returns where the server keeps its data, in the form of Database.
func (c Config) database() string {
	switch {
	case c.Database != "":
		return c.Database
	case c.Data != "":
		return engineEmbedded + ":" + c.Data
	}
	return engineEmbedded + ":" + DefaultData
}

// Config is the configuration of a server. Each field has the name of the flag of `locket server` that sets it; the
// errors of Validate use this name too. DefaultConfig has the defaults.
type Config struct {
	// GRPCAddress and HTTPAddress (--grpc-address, --http-address) are the addresses HOST:PORT to listen on. Without
	// TLS the host must be a loopback address, unless Insecure is set. An empty address turns the listener off; at
	// least one of the two must be set.
	GRPCAddress, HTTPAddress string
	// HTTPAnonymous (--http-anonymous) lets HTTP accept callers without a client certificate, as access.Anonymous.
	// Otherwise, with TLS, both listeners require one.
	HTTPAnonymous bool
	// HTTPHosts (--http-hosts) are the host names, without ports, that HTTP without TLS accepts in requests, beside IP
	// addresses, localhost and the machine's name. If there are none, all names are accepted, except on loopback.
	HTTPHosts []string
	// HTTPOrigins (--http-origins) are the origins whose pages in a browser may use HTTP (CORS), each like
	// https://console.example.com.
	HTTPOrigins []string
	// TrustedProxies (--trusted-proxies) are the addresses, or the networks in CIDR notation, of
	// proxies whose headers X-Forwarded-Proto, -Host and -Prefix over HTTP are used.
	TrustedProxies []string
	// OpsAddress (--ops-address) is the HOST:PORT of /healthz, /readyz, /metrics and /debug/pprof/,
	// in plain HTTP. Empty: there is no such listener, and the first three are served over HTTP.
	OpsAddress string
	// OpsInsecure (--ops-insecure) allows an OpsAddress other than loopback.
	OpsInsecure bool
	// Data (--data) is the folder of the server's own database, which is used without a Database. Empty: DefaultData.
	Data string
	// DataWitness (--data-witness) is a folder outside the data, in memory, where the server notes how far its data has got: so the next start
	// on this machine notices when the data was taken back to an older state. Empty: nowhere.
	DataWitness string
	// Database (--database) is mysql:USER:PASSWORD@tcp(HOST:PORT)/NAME, or embedded:FOLDER, which is the same as Data. It may
	// hold a password, and is never logged whole.
	Database string
	// Etcd (--etcd) are the URLs of the members of an etcd that has the log of a cluster. Data then has this server's copy. The
	// server is one of any number with the same Etcd and EtcdPrefix.
	Etcd []string
	// EtcdPrefix (--etcd-prefix) is the prefix of the cluster's keys in etcd, which no other cluster uses.
	EtcdPrefix string
	// EtcdCA, EtcdCert and EtcdKey (--etcd-ca, --etcd-cert, --etcd-key) are PEM files: the authorities of etcd's certificates, and this
	// server's certificate for etcd and its key. The files are read again when they change.
	EtcdCA, EtcdCert, EtcdKey string
	// EtcdUser (--etcd-user) and the first line of EtcdPasswordFile (--etcd-password-file) authenticate this server to etcd.
	EtcdUser, EtcdPasswordFile string
	// Node (--node) is the name of this server's own node of etcd, which keeps the log of a cluster without another etcd. Its data is
	// below Data.
	Node string
	// Cluster (--cluster) are all nodes of a new cluster with this one, each as NAME=HOST:PORT. Join (--join) is the HOST:PORT of a node
	// of the cluster that has added this one. A node that has data ignores both.
	Cluster []string
	Join    string
	// ClusterCert, ClusterKey and ClusterCA (--cluster-cert, --cluster-key, --cluster-ca) are PEM files: the node's certificate, its key, and
	// the authority of all nodes' certificates. Without them the nodes must be on loopback addresses.
	ClusterCert, ClusterKey, ClusterCA string
	// node is the running node, after the start.
	node *etcdnode.Node
	// PeerAddress (--peer-address) is the HOST:PORT where this server listens for the other servers of its cluster, with TLS. Empty: a
	// free port of the host of GRPCAddress, or of the node's address.
	PeerAddress string
	// PeerAdvertise (--peer-advertise) is the HOST:PORT that the other servers dial. Empty: PeerAddress.
	PeerAdvertise string
	// DatabasePassword ($LOCKET_DATABASE_PASSWORD) or the first line of DatabasePasswordFile
	// (--database-password-file) is the password for a Database that holds none. The file is read again when it changes.
	DatabasePassword, DatabasePasswordFile string
	// DatabaseCA (--database-ca) is a PEM file with the authorities of the database's certificate. With it, connections
	// to the database must use TLS.
	DatabaseCA string
	// DatabaseAnyName (--database-any-name) accepts a certificate of DatabaseCA's authorities for any host name.
	DatabaseAnyName bool
	// DatabaseWait (--database-wait) is how long Serve waits for an unavailable database; 0: it tries once.
	DatabaseWait time.Duration
	// DatabaseTimeout (--database-timeout) is the timeout of each transaction; at least 100 ms.
	DatabaseTimeout time.Duration
	// TLSCert, TLSKey and TLSClientCA (--tls-cert, --tls-key, --tls-client-ca) are PEM files: the server's certificate,
	// its key, and the authorities of the clients' certificates. All three or none must be set; none means plain text.
	// With another way of authentication TLSClientCA may be left out; with it, client certificates authenticate
	// callers. The files are read again when they change.
	TLSCert, TLSKey, TLSClientCA string
	// TLSMinVersion (--tls-min-version) is the minimum version of TLS: 1.2 or 1.3.
	TLSMinVersion string
	// TLSCRL (--tls-crl) is a file with revocation lists of the clients' authorities, in PEM or DER. It is read again
	// when it changes, and applies to open connections too.
	TLSCRL string
	// SPIFFEBundles (--spiffe-bundles) are PEM files with the authorities of SPIFFE trust domains, each as DOMAIN=FILE.
	// If there are any, only SPIFFE ids of these trust domains are accepted.
	SPIFFEBundles []string
	// AuthCredentials (--auth-credentials) is a file with the names and the hashes of bearer credentials.
	AuthCredentials string
	// AuditLog (--audit-log) is a file that gets a line for each call that changes something, and for each call that is
	// refused because of its caller. It is opened again on SIGHUP. Empty: none.
	AuditLog string
	// AuditRequired (--audit-required) refuses calls that would change something while AuditLog cannot be written.
	AuditRequired bool
	// AuthRules (--auth-rules) is a file of access rules. Without it, every authenticated caller may read and
	// hold every name.
	AuthRules string
	// OIDCIssuers (--oidc-issuers) are the URLs of OIDC providers whose JWTs are accepted, each as URL, or NAME=URL if
	// there are several.
	OIDCIssuers []string
	// OIDCAudience (--oidc-audience) must be among the audiences of each JWT.
	OIDCAudience string
	// OIDCUserClaim and OIDCGroupsClaim (--oidc-user-claim, --oidc-groups-claim) are the claims of a JWT that name the
	// user and the groups. An empty groups claim means no groups.
	OIDCUserClaim, OIDCGroupsClaim string
	// OIDCKeys (--oidc-keys) is a file with the issuer's keys (JWK set), to be used instead of discovery.
	OIDCKeys string
	// OIDCCA (--oidc-ca) is a PEM file with the authorities of the issuers' certificates.
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
	// AuthProxyUserHeader and AuthProxyGroupsHeader (--auth-proxy-user-header, --auth-proxy-groups-header) are the
	// headers where these proxies name the user and the groups.
	AuthProxyUserHeader, AuthProxyGroupsHeader string
	// Insecure (--insecure) allows plain text on addresses other than loopback.
	Insecure bool
	// MaxWaiting is how many calls may wait for a claim concurrently; 0 for handlers.DefaultMaxWaiting.
	MaxWaiting int
	// MaxSessions is how many sessions may be attached concurrently; 0 for session.DefaultSessions.
	MaxSessions int
	// HistoryRetention (--history-retention) is for how long finished claims are kept; 1 s or more.
	HistoryRetention time.Duration
	// HistoryLimit (--history-limit) is how many finished claims are kept; at least 1.
	HistoryLimit int
	// HistoryMinimum (--history-minimum) is for how long finished claims are kept even if they are more than
	// HistoryLimit; 0 or more. A shorter HistoryRetention overrides it.
	HistoryMinimum time.Duration
	// ShutdownTimeout (--shutdown-timeout) is how long running requests may take after the server got the signal to
	// stop; at least 100 ms.
	ShutdownTimeout time.Duration
	// LogLevel (--log-level) is debug, info, warn or error.
	LogLevel string
	// LogFormat (--log-format) is text, json, or auto, which is text on a terminal and json elsewhere. lager and
	// lager-rfc3339 are the two formats of Cloud Foundry's Locket, and go to standard output.
	LogFormat string
	// IgnoredFields are the fields of a configuration file that have no effect. Serve logs a warning that names them.
	IgnoredFields []string
	// UnknownVariables are variables of the environment that look like Locket's and have no effect. Serve logs a warning that names them.
	UnknownVariables []string
}

// defaultWitness returns the folder of files in memory, "" if the system has none.
func defaultWitness() string {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		return ""
	}
	return memory
}

// DefaultConfig returns the configuration of a server without any settings.
func DefaultConfig() Config {
	return Config{
		GRPCAddress: DefaultGRPCAddress, HTTPAddress: DefaultHTTPAddress, DataWitness: defaultWitness(), EtcdPrefix: etcdlog.DefaultPrefix,
		DatabaseWait: time.Minute, DatabaseTimeout: 10 * time.Second,
		HistoryRetention: 24 * time.Hour, HistoryLimit: 1_000_000, HistoryMinimum: 10 * time.Minute,
		ShutdownTimeout: 10 * time.Second,
		LogLevel:        "info", LogFormat: "auto", TLSMinVersion: "1.2",
		OIDCUserClaim: authn.DefaultUserClaim, AuthProxyUserHeader: authn.DefaultUserHeader,
	}
}
