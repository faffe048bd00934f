package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
)

var (
	// errDeposed means that another writer has raised the epoch: no record of the old epoch can be appended any more.
	errDeposed = errors.New("the epoch has been raised")
	// errLater means that a raise was refused because the log has a record that the caller has not seen.
	errLater = errors.New("the log goes on")
	// errThere means that an attempt before, whose outcome was unknown, has appended the record.
	errThere = errors.New("the record is there")
	// errGap means that the record before is not in the log yet.
	errGap = errors.New("the record before is missing")
)

// record is an entry of the log. Its bytes are the same in each attempt to append it.
type record struct {
	index, epoch uint64
	body         []byte
}

func (r record) encode() string {
	return string(append(binary.BigEndian.AppendUint64(nil, r.epoch), r.body...))
}

func decode(key string, value []byte) (r record, err error) {
	if len(key) < 20 || len(value) < 8 {
		return r, fmt.Errorf("the record %q is too short", key)
	}
	r.index, err = strconv.ParseUint(key[len(key)-20:], 10, 64)
	r.epoch, r.body = binary.BigEndian.Uint64(value), value[8:]
	return r, err
}

// log is the interface under test: records in order, from one writer at a time.
type log interface {
	// append adds a record behind the one with the index before. It returns nil or errThere if the record is in the log, errDeposed if it never will
	// be, and errGap if the record before is missing. After any other error the outcome is unknown: call it again with the same record.
	append(ctx context.Context, r record) error
	// barrier returns the index of the last record, at some moment after it was called. The caller has applied the records up to applied.
	barrier(ctx context.Context, applied uint64) (uint64, error)
}

// etcdLog keeps each record under a key in etcd. Each client is connected to one member only: a client with several
// endpoints goes on sending each third request to a member that is paused.
type etcdLog struct {
	clients []*etcd.Client
	prefix  string
	try     time.Duration // the limit of an attempt at one member
	hedge   time.Duration // how long to wait for one member before the next one is asked, too
	// epochOnly makes raises compare the epoch alone, to show what that does.
	epochOnly bool
	// doubles makes each attempt at a member take twice as long as the one before, to show what that does.
	doubles bool
	current atomic.Int64  // the member that answered last
	nudge   chan struct{} // tells the follower to use another member
}

func newEtcdLog(clients []*etcd.Client, prefix string, try time.Duration) *etcdLog {
	return &etcdLog{clients: clients, prefix: prefix, try: try, hedge: try / 3, nudge: make(chan struct{}, 1)}
}

func (l *etcdLog) epochKey() string { return l.prefix + "epoch" }

func (l *etcdLog) key(index uint64) string { return fmt.Sprintf("%slog/%020d", l.prefix, index) }

// ask sends the same request to one member after the other until one of them answers. An answer of any attempt settles the request, since each
// request may be repeated.
func ask[T any](ctx context.Context, l *etcdLog, request func(context.Context, *etcd.Client) (T, error)) (answer T, err error) {
	type outcome struct {
		answer T
		err    error
		at     int64
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan outcome, len(l.clients))
	first, pending := l.current.Load(), 0
	for started := 0; started < len(l.clients) || pending > 0; {
		var next <-chan time.Time
		if started < len(l.clients) {
			at := (first + int64(started)) % int64(len(l.clients))
			started, pending = started+1, pending+1
			go func() {
				ctx, cancel := context.WithTimeout(ctx, l.limit(ctx))
				defer cancel()
				answer, err := request(ctx, l.clients[at])
				outcomes <- outcome{answer, err, at}
			}()
			next = time.After(l.hedge)
		}
		select {
		case one := <-outcomes:
			pending--
			if answer, err = one.answer, one.err; err == nil {
				l.current.Store(one.at)
				return answer, nil
			}
		case <-next:
		}
	}
	return answer, err
}

type attemptKey struct{}

// withAttempt notes how many attempts were made before.
func withAttempt(ctx context.Context, attempt int) context.Context {
	return context.WithValue(ctx, attemptKey{}, attempt)
}

// limit returns how long an attempt may take.
func (l *etcdLog) limit(ctx context.Context) time.Duration {
	attempt, _ := ctx.Value(attemptKey{}).(int)
	if !l.doubles {
		attempt = 0
	}
	return l.try << attempt
}

// once carries out a transaction.
func (l *etcdLog) once(ctx context.Context, compare []etcd.Cmp, then, otherwise []etcd.Op) (*etcd.TxnResponse, error) {
	return ask(ctx, l, func(ctx context.Context, client *etcd.Client) (*etcd.TxnResponse, error) {
		return client.Txn(ctx).If(compare...).Then(then...).Else(otherwise...).Commit()
	})
}

// append implements log. The same transaction appends a record and, in a later attempt, finds out that it was appended.
func (l *etcdLog) append(ctx context.Context, r record) error {
	key, value := l.key(r.index), r.encode()
	compare := []etcd.Cmp{
		etcd.Compare(etcd.Value(l.epochKey()), "=", strconv.FormatUint(r.epoch, 10)),
		etcd.Compare(etcd.CreateRevision(key), "=", 0),
	}
	if r.index > 1 {
		compare = append(compare, etcd.Compare(etcd.CreateRevision(l.key(r.index-1)), ">", 0))
	}
	response, err := l.once(ctx, compare, []etcd.Op{etcd.OpPut(key, value)}, []etcd.Op{etcd.OpGet(key), etcd.OpGet(l.epochKey())})
	if err != nil || response.Succeeded {
		return err
	}
	there, epoch := response.Responses[0].GetResponseRange().GetKvs(), response.Responses[1].GetResponseRange().GetKvs()
	switch {
	case len(there) > 0 && string(there[0].GetValue()) == value:
		return errThere
	case len(there) > 0 || len(epoch) == 0 || string(epoch[0].GetValue()) != strconv.FormatUint(r.epoch, 10):
		return errDeposed
	default:
		return errGap
	}
}

// raise begins a new epoch with the record r, if neither the epoch nor the log have changed since the caller saw them.
// So a delayed raise, or one of a server whose watch lags, deposes nobody.
func (l *etcdLog) raise(ctx context.Context, seen uint64, r record) error {
	is := etcd.Compare(etcd.Value(l.epochKey()), "=", strconv.FormatUint(seen, 10))
	if seen == 0 {
		is = etcd.Compare(etcd.CreateRevision(l.epochKey()), "=", 0)
	}
	key, value := l.key(r.index), r.encode()
	compare := []etcd.Cmp{is, etcd.Compare(etcd.CreateRevision(key), "=", 0)}
	then := []etcd.Op{etcd.OpPut(l.epochKey(), strconv.FormatUint(r.epoch, 10)), etcd.OpPut(key, value)}
	if l.epochOnly {
		compare, then = compare[:1], then[:1]
	}
	response, err := l.once(ctx, compare, then, []etcd.Op{etcd.OpGet(key)})
	if err != nil || response.Succeeded {
		return err
	}
	if there := response.Responses[0].GetResponseRange().GetKvs(); len(there) > 0 && string(there[0].GetValue()) == value {
		return nil // by an attempt before, whose answer was lost
	}
	return errLater
}

// barrier implements log by counting the records that the caller lacks. A shared etcd's revision would not do: others' keys raise it.
func (l *etcdLog) barrier(ctx context.Context, applied uint64) (uint64, error) {
	response, err := ask(ctx, l, func(ctx context.Context, client *etcd.Client) (*etcd.GetResponse, error) {
		return client.Get(ctx, l.key(applied+1), etcd.WithRange(l.prefix+"log0"), etcd.WithCountOnly())
	})
	if err != nil {
		return 0, err
	}
	return applied + uint64(response.Count), nil
}

// elsewhere tells the follower to use another member.
func (l *etcdLog) elsewhere() {
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

// follow gives all records, in order, until the context ends. Errors go to report; then it tries again.
func (l *etcdLog) follow(ctx context.Context, give func(record), report func(error)) {
	applied := uint64(0)
	for at := l.current.Load(); ctx.Err() == nil; at++ {
		if err := l.followOnce(ctx, l.clients[at%int64(len(l.clients))], &applied, give); err != nil && ctx.Err() == nil {
			report(err)
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// followOnce reads the records that are there, and watches for more until something fails or it is told to use another member. Compaction removes no
// key, so a watch that has fallen behind it begins again here.
func (l *etcdLog) followOnce(ctx context.Context, client *etcd.Client, applied *uint64, give func(record)) error {
	next := func(key string, value []byte) error {
		r, err := decode(key, value)
		if err != nil || r.index <= *applied {
			return err
		}
		if r.index != *applied+1 {
			return fmt.Errorf("the log has record %d behind %d", r.index, *applied)
		}
		*applied = r.index
		give(r)
		return nil
	}
	revision := int64(0)
	for {
		read, cancel := context.WithTimeout(ctx, time.Second)
		response, err := client.Get(read, l.key(*applied+1), etcd.WithRange(l.prefix+"log0"), etcd.WithLimit(1000))
		cancel()
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		for _, pair := range response.Kvs {
			if err := next(string(pair.GetKey()), pair.GetValue()); err != nil {
				return err
			}
		}
		if revision = response.Header.GetRevision(); !response.More {
			break
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := client.Watch(etcd.WithRequireLeader(ctx), l.prefix+"log/", etcd.WithPrefix(), etcd.WithRev(revision+1), etcd.WithFragment())
	for {
		select {
		case <-l.nudge:
			return nil
		case response, open := <-events:
			if !open {
				return errors.New("the watch ended")
			}
			if err := response.Err(); err != nil {
				return fmt.Errorf("watch: %w", err)
			}
			for _, event := range response.Events {
				if event.GetType() != etcd.EventTypePut {
					continue
				}
				if err := next(string(event.GetKv().GetKey()), event.GetKv().GetValue()); err != nil {
					return err
				}
			}
		}
	}
}
