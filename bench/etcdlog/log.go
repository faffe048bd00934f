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

// log is the interface under test: a log that one writer at a time appends to.
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
	current atomic.Uint64
	rotated chan struct{} // tells the follower that another client is current
}

func newEtcdLog(clients []*etcd.Client, prefix string, try time.Duration) *etcdLog {
	return &etcdLog{clients: clients, prefix: prefix, try: try, rotated: make(chan struct{}, 1)}
}

func (l *etcdLog) epochKey() string { return l.prefix + "epoch" }

func (l *etcdLog) key(index uint64) string { return fmt.Sprintf("%slog/%020d", l.prefix, index) }

func (l *etcdLog) client() *etcd.Client {
	return l.clients[l.current.Load()%uint64(len(l.clients))]
}

// rotate makes the next client the current one, unless somebody has done so since the caller saw which one it was.
func (l *etcdLog) rotate(was uint64) {
	if len(l.clients) > 1 && l.current.CompareAndSwap(was, was+1) {
		select {
		case l.rotated <- struct{}{}:
		default:
		}
	}
}

// once carries out a transaction at the current member, and makes another one current if it fails.
func (l *etcdLog) once(ctx context.Context, compare []etcd.Cmp, then, otherwise []etcd.Op) (*etcd.TxnResponse, error) {
	was := l.current.Load()
	ctx, cancel := context.WithTimeout(ctx, l.try)
	defer cancel()
	response, err := l.clients[was%uint64(len(l.clients))].Txn(ctx).If(compare...).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		l.rotate(was)
	}
	return response, err
}

// append implements log. The same transaction appends a record and, in a later attempt, finds out that it was appended.
func (l *etcdLog) append(ctx context.Context, r record) error {
	key, value := l.key(r.index), r.encode()
	compare := []etcd.Cmp{
		etcd.Compare(etcd.Value(l.epochKey()), "=", strconv.FormatUint(r.epoch, 10)),
		etcd.Compare(etcd.CreateRevision(key), "=", 0),
		etcd.Compare(etcd.CreateRevision(l.key(r.index-1)), ">", 0),
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
	response, err := l.once(ctx, []etcd.Cmp{is, etcd.Compare(etcd.CreateRevision(key), "=", 0)},
		[]etcd.Op{etcd.OpPut(l.epochKey(), strconv.FormatUint(r.epoch, 10)), etcd.OpPut(key, value)}, []etcd.Op{etcd.OpGet(key)})
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
	was := l.current.Load()
	ctx, cancel := context.WithTimeout(ctx, l.try)
	defer cancel()
	response, err := l.client().Get(ctx, l.key(applied+1), etcd.WithRange(l.prefix+"log0"), etcd.WithCountOnly())
	if err != nil {
		l.rotate(was)
		return 0, err
	}
	return applied + uint64(response.Count), nil
}

// follow gives the records behind an index, in order, until the context ends. Errors go to report; then it tries again.
func (l *etcdLog) follow(ctx context.Context, applied uint64, give func(record), report func(error)) {
	for ctx.Err() == nil {
		if err := l.followOnce(ctx, &applied, give); err != nil && ctx.Err() == nil {
			report(err)
			l.rotate(l.current.Load())
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// followOnce reads the records that are there, and watches for more until something fails or another client is current. Compaction removes no
// key, so a watch that has fallen behind it begins again here.
func (l *etcdLog) followOnce(ctx context.Context, applied *uint64, give func(record)) error {
	client := l.client()
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
		case <-l.rotated:
			return nil
		case response, open := <-events:
			if !open {
				return errors.New("the watch ended")
			}
			if err := response.Err(); err != nil {
				return fmt.Errorf("watch: %w", err)
			}
			for _, event := range response.Events {
				if event.Type != etcd.EventTypePut {
					continue
				}
				if err := next(string(event.Kv.GetKey()), event.Kv.GetValue()); err != nil {
					return err
				}
			}
		}
	}
}
