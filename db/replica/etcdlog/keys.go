package etcdlog

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	etcd "go.etcd.io/etcd/client/v3"

	"github.com/locket-service/locket/db/replica/order"
)

// keys is the prefix of all keys.
type keys string

const (
	recordFolder = "log/"
	serverFolder = "server/"
	digits       = 20 // of the largest number
	epochBytes   = 8  // at the begin of each record
)

func (k keys) cluster() string            { return string(k) + "cluster" }
func (k keys) epoch() string              { return string(k) + "epoch" }
func (k keys) beat() string               { return string(k) + "beat" }
func (k keys) server(name string) string  { return string(k) + serverFolder + name }
func (k keys) records() string            { return string(k) + recordFolder }
func (k keys) record(index uint64) string { return fmt.Sprintf("%s%020d", k.records(), index) }

// recordsEnd is the end of the range of all records.
func (k keys) recordsEnd() string { return k.records() + ":" } // which follows the digits

// end is the end of the range of all keys.
func (k keys) end() string { return etcd.GetPrefixRangeEnd(string(k)) }

// index returns the index of the record under a key.
func (k keys) index(key string) (uint64, error) {
	number := strings.TrimPrefix(key, k.records())
	index, err := strconv.ParseUint(number, 10, 64)
	if err != nil || len(number) != digits {
		return 0, fmt.Errorf("%w: the key %q is not Locket's", order.ErrUnavailable, key)
	}
	return index, nil
}

func encodeRecord(epoch uint64, data []byte) string {
	return string(append(binary.BigEndian.AppendUint64(make([]byte, 0, epochBytes+len(data)), epoch), data...))
}

func decodeRecord(key string, value []byte) ([]byte, error) {
	if len(value) < epochBytes {
		return nil, fmt.Errorf("%w: the value of %q is too short", order.ErrUnavailable, key)
	}
	return value[epochBytes:], nil
}

func encodeEpoch(e order.Epoch) string { return fmt.Sprintf("%020d %s", e.Number, e.Decider) }

// decodeEpoch reads the value of the key epoch; nil if there is none.
func (k keys) decodeEpoch(value []byte) (e order.Epoch, err error) {
	if value == nil {
		return e, nil
	}
	number, decider, found := strings.Cut(string(value), " ")
	e.Number, err = strconv.ParseUint(number, 10, 64)
	if err != nil || !found || len(number) != digits {
		return e, fmt.Errorf("%w: the value of the key %q is not Locket's", order.ErrUnavailable, k.epoch())
	}
	e.Decider = []byte(decider)
	return e, nil
}

// inEpoch is true in an epoch: its number and a blank are the prefix of the value.
func (k keys) inEpoch(number uint64) []etcd.Cmp {
	text := fmt.Sprintf("%020d", number)
	return []etcd.Cmp{
		etcd.Compare(etcd.Value(k.epoch()), ">", text),
		etcd.Compare(etcd.Value(k.epoch()), "<", text+"!"), // which follows the blank
	}
}

func exists(key string) etcd.Cmp { return etcd.Compare(etcd.CreateRevision(key), ">", 0) }
func isFree(key string) etcd.Cmp { return etcd.Compare(etcd.CreateRevision(key), "=", 0) }

// endsAt is true if a record is the last one. The last record is never trimmed, so it exists; before the first one there is none.
func (k keys) endsAt(index uint64) []etcd.Cmp {
	if index == 0 {
		return []etcd.Cmp{isFree(k.records()).WithRange(k.recordsEnd())}
	}
	return []etcd.Cmp{exists(k.record(index)), isFree(k.record(index + 1))}
}
