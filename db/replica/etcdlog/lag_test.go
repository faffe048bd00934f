package etcdlog_test

import (
	"errors"
	"testing"

	"github.com/locket-service/locket/db/replica/order"
)

// A follower that is slow when etcd is compacted loses the log, unless it has all changes already. Compaction removes no
// record, so its next Follow continues where it was.
func TestCompactedBehindFollower(t *testing.T) {
	e := cluster(t, single34)
	o := quietly(e)
	l, client := open(t, o), admin(t, e, "", "")
	fill(t, l, 1, 100) // more than a page
	compact := func() {
		must(t, l.Beat(t.Context(), 1))
		response, err := client.Get(t.Context(), "x")
		must(t, err, errOf(client.Compact(t.Context(), response.Header.GetRevision())))
	}
	at, enough := uint64(0), errors.New("enough")
	follow := func(when uint64, do func()) error {
		return l.Follow(t.Context(), at, func(e order.Event) error {
			if e.Index > 0 {
				if e.Index != at+1 || string(e.Data) != string(content(e.Index)) {
					t.Errorf("record %d after %d is %q", e.Index, at, e.Data)
				}
				at = e.Index
			}
			if e.Index == when {
				do()
			}
			if at == 130 {
				return enough
			}
			return nil
		})
	}
	if err := follow(10, compact); !errors.Is(err, order.ErrUnavailable) || at < 10 || at >= 100 {
		t.Errorf("compacted during the first page: at %d: %v", at, err)
	}
	// This time the log grows behind the records that are read, and is compacted before the watch begins.
	err := follow(100, func() { fill(t, l, 101, 130); compact() })
	if !errors.Is(err, order.ErrUnavailable) || at != 100 {
		t.Errorf("compacted before the watch: at %d: %v", at, err)
	}
	if err := follow(0, func() {}); !errors.Is(err, enough) || at != 130 {
		t.Errorf("followed again: at %d: %v", at, err)
	}
}
