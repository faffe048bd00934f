package etcdlog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/locket-service/locket/db/dbtest/golden"
	"github.com/locket-service/locket/db/replica/order"
)

// TestGolden: the values in etcd that this version has written are read, and written in the same way.
func TestGolden(t *testing.T) {
	k := keys("/locket/")
	names := []byte(k.cluster() + "\n" + k.epoch() + "\n" + k.beat() + "\n" + k.server("a") + "\n" + k.record(7))
	golden.Check(
		t,
		golden.Format{Name: "keys-1", Written: names, Again: func(data []byte) ([]byte, error) {
			lines := bytes.Split(data, []byte("\n"))
			if index, err := k.index(string(lines[len(lines)-1])); index != 7 || err != nil {
				return nil, errors.Join(errors.New("the key of a record is not read"), err)
			}
			return names, nil
		}},
		golden.Format{Name: "epoch-1", Written: []byte(encodeEpoch(order.Epoch{Number: 7, Decider: []byte("a decider")})), Again: func(data []byte) ([]byte, error) {
			e, err := k.decodeEpoch(data)
			return []byte(encodeEpoch(e)), err
		}},
		golden.Format{Name: "entry-1", Written: []byte(encodeRecord(7, []byte("record"))), Again: func(data []byte) ([]byte, error) {
			record, err := decodeRecord("log/7", data)
			return []byte(encodeRecord(7, record)), err
		}},
	)
}
