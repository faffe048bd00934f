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

// Config is the configuration of a server. The tag flag names the flag of `locket server` that sets a field, help describes it; the
// errors of Validate name the flag. Files of secrets and certificates are read again when they change. DefaultConfig has the defaults.
type Config struct {
	// Listeners. Without TLS a host must be a loopback address, unless Insecure is set. An empty address turns a listener off; gRPC or HTTP
	// must be on.
	GRPCAddress    string   `flag:"grpc-address" help:"the address for gRPC"`
	HTTPAddress    string   `flag:"http-address" help:"the address for HTTP: /v1/claims, /docs, /healthz, /readyz, /metrics"`
	HTTPAnonymous  bool     `flag:"http-anonymous" help:"with TLS, also serve HTTP without client certificates, as the identity anonymous"`
	HTTPHosts      []string `flag:"http-hosts" help:"host names to accept over plain HTTP (none: all, except on loopback)"`
	HTTPOrigins    []string `flag:"http-origins" help:"origins of web pages that may use HTTP (CORS): https://console.example.com"`
	TrustedProxies []string `flag:"trusted-proxies" help:"proxies whose X-Forwarded headers to trust: 10.0.0.1, 10.0.0.0/8"`
	OpsAddress     string   `flag:"ops-address" help:"the address for /healthz, /readyz, /metrics and /debug/pprof/; /metrics is then only there"`
	OpsInsecure    bool     `flag:"ops-insecure" help:"allow an --ops-address other than loopback"`

	// Where the data is. An empty Data is DefaultData. Database may also be embedded:FOLDER, which is the same as Data. It may hold a password,
	// and is never logged whole.
	Data        string `flag:"data" help:"the folder for the server's data, if --database is not given (default ./locket-data)"`
	DataWitness string `flag:"data-witness" help:"a folder in memory where the server notes its progress, so that it detects data of an older state at its start (empty: none)"`
	Database    string `flag:"database" help:"mysql:USER:PASSWORD@tcp(HOST:PORT)/NAME"`

	// A cluster, whose log is in another etcd (Etcd and EtcdPrefix, the same on all its servers) or in nodes of the servers. Data then has this
	// server's copy, and below it the data of the node. A node that has data ignores Cluster and Join.
	Etcd             []string `flag:"etcd" help:"URLs of the members of an etcd with the log of a cluster: http://10.0.0.1:2379,http://10.0.0.2:2379"`
	EtcdPrefix       string   `flag:"etcd-prefix" help:"the prefix of the cluster's keys in etcd"`
	EtcdCA           string   `flag:"etcd-ca" help:"CA certificates for etcd, PEM"`
	EtcdCert         string   `flag:"etcd-cert" help:"this server's client certificate for etcd, PEM"`
	EtcdKey          string   `flag:"etcd-key" help:"the key of --etcd-cert, PEM"`
	EtcdUser         string   `flag:"etcd-user" help:"this server's user in etcd"`
	EtcdPasswordFile string   `flag:"etcd-password-file" help:"a file with the password of --etcd-user"`
	Node             string   `flag:"node" help:"the name of this server's own node of etcd, for a cluster without another etcd"`
	Cluster          []string `flag:"cluster" help:"with --node, all nodes of a new cluster: a=HOST:PORT,b=HOST:PORT,c=HOST:PORT"`
	Join             string   `flag:"join" help:"with --node, a node HOST:PORT of the cluster that has added this one"`
	ClusterCert      string   `flag:"cluster-cert" help:"the node's certificate for the other nodes, PEM (none: loopback addresses only)"`
	ClusterKey       string   `flag:"cluster-key" help:"the key of --cluster-cert, PEM"`
	ClusterCA        string   `flag:"cluster-ca" help:"CA certificates of all nodes, PEM"`
	// node is the running node, after the start.
	node          *etcdnode.Node
	PeerAddress   string `flag:"peer-address" help:"with --etcd, the address for the other servers of the cluster (none: a free port of the host of --grpc-address)"`
	PeerAdvertise string `flag:"peer-advertise" help:"with --etcd, the address that the other servers dial (none: --peer-address)"`

	// DatabasePassword ($LOCKET_DATABASE_PASSWORD) is the password for a Database that holds none, as is DatabasePasswordFile.
	DatabasePassword     string
	DatabasePasswordFile string `flag:"database-password-file" help:"a file with the password of the database in its first line"`
	DatabaseCA           string `flag:"database-ca" help:"CA certificates of the database, PEM; requires TLS"`
	DatabaseAnyName      bool   `flag:"database-any-name" help:"with --database-ca, do not check the host name in the certificate"`

	// DatabaseWait 0: Serve tries once. DatabaseTimeout and ShutdownTimeout: at least 100 ms.
	DatabaseWait    time.Duration `flag:"database-wait" help:"how long to wait for the database at the start"`
	DatabaseTimeout time.Duration `flag:"database-timeout" help:"how long a transaction may take"`

	// All of TLSCert, TLSKey and TLSClientCA, or none, which means plain text; with another way of authentication TLSClientCA may be left out.
	// With it, client certificates authenticate callers. TLSCRL applies to open connections too.
	TLSCert       string   `flag:"tls-cert" help:"the server's certificate, PEM"`
	TLSKey        string   `flag:"tls-key" help:"the key of the server's certificate, PEM"`
	TLSClientCA   string   `flag:"tls-client-ca" help:"CA certificates for client certificates, PEM"`
	TLSMinVersion string   `flag:"tls-min-version" help:"the minimum version of TLS: 1.2 or 1.3"`
	TLSCRL        string   `flag:"tls-crl" help:"revocation lists of the clients' CAs, PEM or DER"`
	SPIFFEBundles []string `flag:"spiffe-bundles" help:"CA certificates of SPIFFE trust domains, PEM: DOMAIN=FILE; other SPIFFE ids are refused"`

	AuthCredentials string   `flag:"auth-credentials" help:"a file of clients' bearer credentials, made by locket credential new"`
	AuditLog        string   `flag:"audit-log" help:"log each change and each refusal to this file: who, from where, what; SIGHUP reopens it"`
	AuditRequired   bool     `flag:"audit-required" help:"refuse changes while --audit-log cannot be written"`
	AuthRules       string   `flag:"auth-rules" help:"a file of access rules; locket rules check tests it (none: every authenticated caller may read and hold every name)"`
	OIDCIssuers     []string `flag:"oidc-issuers" help:"OIDC providers whose JWTs to accept: URL, or NAME=URL for several"`
	OIDCAudience    string   `flag:"oidc-audience" help:"the required audience of a JWT"`
	OIDCUserClaim   string   `flag:"oidc-user-claim" help:"the claim of a JWT with the user's name"`
	// An empty OIDCGroupsClaim means no groups. Without OIDCConsoleClientID people do not sign in.
	OIDCGroupsClaim       string   `flag:"oidc-groups-claim" help:"the claim of a JWT with the user's groups"`
	OIDCKeys              string   `flag:"oidc-keys" help:"a file with the issuer's keys (JWK set), instead of discovery"`
	OIDCCA                string   `flag:"oidc-ca" help:"CA certificates of the issuers, PEM"`
	OIDCConsoleClientID   string   `flag:"oidc-console-client-id" help:"the console's client id at the issuer, for sign-in with a browser"`
	OIDCConsoleSecretFile string   `flag:"oidc-console-secret-file" help:"a file with the console's client secret (none: a public client)"`
	OIDCConsoleScopes     []string `flag:"oidc-console-scopes" help:"scopes to ask for besides openid"`
	AuthProxies           []string `flag:"auth-proxies" help:"proxies that authenticate callers: the identities of their certificates, or loopback"`
	AuthProxyUserHeader   string   `flag:"auth-proxy-user-header" help:"the header with the user's name"`
	AuthProxyGroupsHeader string   `flag:"auth-proxy-groups-header" help:"the header with the user's groups"`

	Insecure bool `flag:"insecure" help:"allow addresses other than loopback without TLS"`

	// MaxWaiting is how many calls may wait for a claim concurrently; 0 for handlers.DefaultMaxWaiting.
	MaxWaiting int
	// MaxSessions is how many sessions may be attached concurrently; 0 for session.DefaultSessions.
	MaxSessions int

	// HistoryRetention: 1 s or more. HistoryLimit: at least 1. A HistoryRetention shorter than HistoryMinimum overrides it.
	HistoryRetention time.Duration `flag:"history-retention" help:"how long to keep ended claims"`
	HistoryLimit     int           `flag:"history-limit" help:"the maximum number of ended claims to keep"`
	HistoryMinimum   time.Duration `flag:"history-minimum" help:"how long to keep ended claims even beyond the limit, so that a late retry finds its claim"`
	ShutdownTimeout  time.Duration `flag:"shutdown-timeout" help:"how long requests may take to finish at a shutdown"`

	LogLevel  string `flag:"log-level" help:"debug, info, warn or error; debug logs every request"`
	LogFormat string `flag:"log-format" help:"text, json, auto (text on a terminal, otherwise json), or Cloud Foundry's lager and lager-rfc3339"`

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
