package etcdlog

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcd "go.etcd.io/etcd/client/v3"
)

// step is how many records one transaction deletes. etcd carries out nothing else meanwhile.
const step = 500

// Trim implements order.Log. It deletes the records, oldest first, and then compacts etcd if there is no other data in it.
//
// Deleted keys use space until etcd is compacted. A compaction concerns all keys: it ends others' watches that have fallen
// behind, and their reads of older revisions. So on an etcd with other data its operator must configure
// --auto-compaction-retention.
func (l *Log) Trim(ctx context.Context, upTo uint64) error {
	response, err := l.get(ctx, l.records(), etcd.WithRange(l.recordsEnd()), etcd.WithLimit(1), etcd.WithKeysOnly())
	if err != nil || len(response.Kvs) == 0 {
		return err
	}
	first, err := l.index(string(response.Kvs[0].GetKey()))
	if err != nil {
		return err
	}
	end := min(upTo, first+uint64(response.Count)-2) + 1 // the first record that stays
	if end <= first {
		return nil
	}
	revision := int64(0)
	for next := first; next < end; next = min(next+step, end) {
		stays := l.record(min(next+step, end))
		remove := etcd.OpDelete(l.record(next), etcd.WithRange(stays))
		deleted, err := l.commit(ctx, []etcd.Cmp{exists(stays)}, []etcd.Op{remove}, nil)
		if err != nil {
			return err
		}
		revision = deleted.Header.GetRevision()
	}
	return l.compact(ctx, revision)
}

// compact forgets the state of all keys before a revision. Only a compaction at the deletion of a record frees its space.
func (l *Log) compact(ctx context.Context, revision int64) error {
	if alone, err := l.isAlone(ctx); err != nil || !alone {
		return err
	}
	_, err := ask(ctx, l, func(ctx context.Context, m *member) (*etcd.CompactResponse, error) {
		return m.client.Compact(ctx, revision)
	})
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil // by another server, or by etcd itself
	}
	return err
}

// isAlone reports whether all data in etcd is the log's, as far as this server may know.
func (l *Log) isAlone(ctx context.Context) (bool, error) {
	if time.Now().UnixNano() < l.shared.Load() {
		return false, nil
	}
	none := []etcd.OpOption{etcd.WithLimit(1), etcd.WithKeysOnly()}
	response, err := l.commit(ctx, nil, []etcd.Op{
		etcd.OpGet("\x00", append(none, etcd.WithRange(string(l.keys)))...),
		etcd.OpGet(l.end(), append(none, etcd.WithFromKey())...),
	}, nil)
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
	case err != nil:
		return false, err
	case len(rangeOf(response, 0).GetKvs())+len(rangeOf(response, 1).GetKvs()) == 0:
		return true, nil
	}
	l.shared.Store(time.Now().Add(sharedFor).UnixNano())
	return false, nil
}
