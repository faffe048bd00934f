// Package etcdlog keeps the log of a cluster in etcd, from version 3.4 on. It implements order.Log.
//
// All keys have a prefix:
//
//	cluster            the id of the cluster, hexadecimal
//	epoch              the number of the epoch, 20 digits, a blank, and the decider
//	log/00000000000000000001
//	                   a record: 8 bytes with the number of its epoch, and the data
//	beat               the number of the epoch; each beat writes it again
//	server/ID          what a server announces; the id is its folder's
//
// A record is appended by a transaction that compares the epoch, and that neither overwrites a record nor leaves a gap.
// So the transaction may be sent any number of times, to several members, and one that etcd carries out late does no
// harm. Nothing here depends on leases, or on who leads etcd; requests go to the leader because it answers sooner.
//
// There is one client for each member of etcd. A client with several endpoints would go on sending a share of the
// requests to a member that is paused or hangs.
package etcdlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcd "go.etcd.io/etcd/client/v3"

	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/internal/base/follow"
)

// DefaultPrefix is the prefix of all keys unless Options have another.
const DefaultPrefix = "/locket/"

// Options say where the log is.
type Options struct {
	// Endpoints are the URLs of etcd's members: http://HOST:PORT or https://HOST:PORT, all with the same scheme.
	Endpoints []string
	// Local is a member in this process, instead of Endpoints.
	Local Local
	// Prefix of all keys: DefaultPrefix if empty. Each cluster needs a prefix of its own.
	Prefix string
	// CA has the authorities that sign the members' certificates, in PEM; the system's authorities if empty. Cert and Key are this
	// server's certificate and its key, both or none. They are for https.
	CA, Cert, Key string
	// User and PasswordFile authenticate this server. The first line of the file is the password. Both or none.
	User, PasswordFile string
	// Files follows the files, if there are any. Each new connection uses their current content.
	Files *follow.Set
	// Log gets a message whenever another member is used.
	Log *slog.Logger
}

// Local is a member of etcd in this process. Watch makes its watches.
type Local interface {
	Client() *etcd.Client
	Watch() pb.WatchClient
}

// Log is a log in etcd. Its methods may be called concurrently.
type Log struct {
	keys
	members []*member
	current atomic.Int64 // the member that answered last
	seen    atomic.Int64 // the revision of the last beat that this server knows
	lately  atomic.Int64 // how long requests have taken lately
	log     *slog.Logger
	user    string

	closing context.Context //nolint:containedctx // ended by Close
	close   context.CancelCauseFunc
	shared  atomic.Int64 // until when others' data is assumed to be in etcd, in nanoseconds since 1970
}

var (
	_         order.Log = (*Log)(nil)
	errClosed           = errors.New("the log was closed")
)

// Open returns the log. It reads the files but does not connect: an etcd that is down is no error.
func Open(o Options) (*Log, error) {
	open, err := Opener(o)
	if err != nil {
		return nil, err
	}
	return open()
}

// Opener returns a function that opens the log. It reads the files once, however often the function is called.
func Opener(o Options) (func() (*Log, error), error) {
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	if err := o.Check(); err != nil {
		return nil, err
	}
	secrets, err := o.secrets()
	if err != nil {
		return nil, err
	}
	return func() (*Log, error) { return o.open(secrets) }, nil
}

func (o Options) open(secrets *secrets) (*Log, error) {
	l := &Log{keys: keys(o.Prefix), log: o.Log, user: o.User}
	l.closing, l.close = context.WithCancelCause(context.Background())
	if o.Local != nil {
		l.members = append(l.members, local(o.Local))
	}
	for _, endpoint := range o.Endpoints {
		m, err := dial(endpoint, secrets)
		if err != nil {
			_ = l.Close()
			return nil, fmt.Errorf("etcd at %s: %w", endpoint, err)
		}
		l.members = append(l.members, m)
	}
	return l, nil
}

// Close implements order.Log.
func (l *Log) Close() error {
	if l.closing.Err() != nil {
		return nil
	}
	l.close(errClosed)
	for _, m := range l.members {
		m.close()
	}
	return nil
}

// Check returns an error, which names the flag, if the options contradict each other. It reads no files.
func (o Options) Check() error {
	if (len(o.Endpoints) == 0) == (o.Local == nil) {
		return errors.New("--etcd: no endpoint is given")
	}
	if o.Prefix != "" && !strings.HasSuffix(o.Prefix, "/") {
		return fmt.Errorf("--etcd-prefix: %q: must end with a slash", o.Prefix)
	}
	scheme := ""
	for _, endpoint := range o.Endpoints {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || u.Hostname() == "" || u.Path != "" || u.User != nil:
			return fmt.Errorf("--etcd: %q: must be http://HOST:PORT or https://HOST:PORT", endpoint)
		case scheme != "" && scheme != u.Scheme:
			return errors.New("--etcd: some endpoints have http and others https")
		}
		scheme = u.Scheme
	}
	switch {
	case scheme == "http" && o.CA+o.Cert+o.Key != "":
		return errors.New("--etcd-ca, --etcd-cert, --etcd-key: the endpoints of --etcd must have https")
	case (o.Cert == "") != (o.Key == ""):
		return errors.New("--etcd-cert and --etcd-key: give both, or neither")
	case (o.User == "") != (o.PasswordFile == ""):
		return errors.New("--etcd-user and --etcd-password-file: give both, or neither")
	}
	return nil
}

// within returns a context that also ends with the log.
func (l *Log) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.closing, func() { cancel(errClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// sharedFor is for how long others' data that was seen in etcd is assumed to be there.
const sharedFor = 5 * time.Minute
