package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcd "go.etcd.io/etcd/client/v3"

	"github.com/locket-service/locket/db/replica/order"
)

// Cluster implements order.Log.
func (l *Log) Cluster(ctx context.Context, proposed, last uint64) (uint64, error) {
	key, text := l.cluster(), strconv.FormatUint(proposed, 16)
	begin := []etcd.Op{etcd.OpPut(key, text)}
	if last > 0 {
		begin = append(begin, etcd.OpPut(l.record(last), encodeRecord(0, nil)))
	}
	compare := append(l.endsAt(0), isFree(key))
	if proposed == 0 {
		compare, begin = []etcd.Cmp{isFree(key)}, nil
	}
	response, err := l.commit(ctx, compare, begin, []etcd.Op{etcd.OpGet(key)})
	if err != nil {
		return 0, err
	}
	if !response.Succeeded {
		text = string(valueOf(response))
	}
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: the value of the key %q is not Locket's", order.ErrUnavailable, key)
	}
	return id, nil
}

// Append implements order.Log.
func (l *Log) Append(ctx context.Context, epoch, index uint64, data []byte) error {
	if len(data) > order.MaxRecord {
		return fmt.Errorf("%w: %d bytes, at most %d", order.ErrTooLarge, len(data), order.MaxRecord)
	}
	key, value := l.record(index), encodeRecord(epoch, data)
	compare := append(l.inEpoch(epoch), l.endsAt(index-1)...)
	reads := []etcd.Op{etcd.OpGet(l.epoch()), etcd.OpGet(key, etcd.WithRange(l.recordsEnd()), etcd.WithLimit(1))}
	response, err := l.commit(ctx, compare, []etcd.Op{etcd.OpPut(key, value)}, reads)
	if full := err; errors.Is(full, rpctypes.ErrNoSpace) { // an earlier attempt may have appended it
		if response, err = l.commit(ctx, compare, nil, reads); err == nil && response.Succeeded {
			err = full
		}
	}
	if err != nil || response.Succeeded {
		return err
	}
	return l.refused(response, epoch, key, value)
}

// refused returns nil if an earlier attempt has appended the record, and otherwise why etcd refused it.
func (l *Log) refused(response *etcd.TxnResponse, epoch uint64, key, value string) error {
	now, err := l.decodeEpoch(valueOf(response))
	if err != nil {
		return err
	}
	there := rangeOf(response, 1).GetKvs()
	switch {
	case len(there) > 0 && string(there[0].GetKey()) != key:
		return order.ErrTrimmed
	case len(there) > 0 && string(there[0].GetValue()) == value:
		return nil
	case now.Number != epoch:
		return order.ErrDeposed
	case len(there) > 0:
		return fmt.Errorf("%w: there is another record under %q", order.ErrUnavailable, key)
	default:
		return order.ErrBehind
	}
}

// Beat implements order.Log.
func (l *Log) Beat(ctx context.Context, epoch uint64) error {
	response, err := l.commit(ctx, l.inEpoch(epoch), []etcd.Op{etcd.OpPut(l.beat(), strconv.FormatUint(epoch, 10))}, nil)
	if err == nil && !response.Succeeded {
		err = order.ErrDeposed
	}
	return err
}

// Raise implements order.Log.
func (l *Log) Raise(ctx context.Context, after, last uint64, decider []byte) error {
	value := encodeEpoch(order.Epoch{Number: after + 1, Decider: decider})
	compare := append(l.inEpoch(after), l.endsAt(last)...)
	if after == 0 {
		compare = append([]etcd.Cmp{isFree(l.epoch())}, l.endsAt(last)...)
	}
	if decider != nil {
		compare = append(compare, etcd.Compare(etcd.ModRevision(l.beat()), "<", l.seen.Load()+1))
	}
	reads := []etcd.Op{
		etcd.OpGet(l.epoch()), etcd.OpGet(l.record(last), etcd.WithRange(l.recordsEnd()), etcd.WithLimit(1), etcd.WithKeysOnly()),
		etcd.OpGet(l.beat(), etcd.WithKeysOnly()),
	}
	response, err := l.commit(ctx, compare, []etcd.Op{etcd.OpPut(l.epoch(), value)}, reads)
	if err != nil || response.Succeeded {
		return err
	}
	l.sees(rangeOf(response, 2).GetKvs())
	now := valueOf(response)
	switch epoch, err := l.decodeEpoch(now); {
	case err != nil:
		return err
	case string(now) == value: // by an earlier attempt
		return nil
	case epoch.Number != after:
		return order.ErrDeposed
	case last > 0 && len(rangeOf(response, 1).GetKvs()) == 0:
		return order.ErrBehind
	case now == nil:
		return fmt.Errorf("%w: there are records, but the key %q is missing", order.ErrUnavailable, l.epoch())
	default: // there are later records, or beats
		return order.ErrDeposed
	}
}

// sees notes the beat that was read, and reports whether it is a new one.
func (l *Log) sees(beats []*mvccpb.KeyValue) (isNew bool) {
	for _, beat := range beats {
		for seen := l.seen.Load(); beat.GetModRevision() > seen; seen = l.seen.Load() {
			if l.seen.CompareAndSwap(seen, beat.GetModRevision()) {
				return true
			}
		}
	}
	return false
}

// Last implements order.Log.
func (l *Log) Last(ctx context.Context, applied uint64) (uint64, error) {
	response, err := l.get(ctx, l.record(applied), etcd.WithRange(l.recordsEnd()), etcd.WithLimit(1), etcd.WithKeysOnly())
	if err != nil {
		return 0, err
	}
	first, err := l.continues(response.Kvs, applied)
	if err != nil {
		return 0, err
	}
	return first + uint64(response.Count) - 1, nil // there are no gaps
}

func rangeOf(response *etcd.TxnResponse, i int) *pb.RangeResponse {
	return response.Responses[i].GetResponseRange()
}

// valueOf returns the value of the key that a transaction has read first, nil if it does not exist.
func valueOf(response *etcd.TxnResponse) []byte {
	for _, pair := range rangeOf(response, 0).GetKvs() {
		return append([]byte{}, pair.GetValue()...)
	}
	return nil
}
