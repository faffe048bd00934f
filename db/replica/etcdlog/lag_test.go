package etcdlog_test

import (
	"errors"
	"strings"
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

// Keys that somebody has deleted or changed by hand are errors, whether they are read or watched.
func TestTamperedKeys(t *testing.T) {
	e := cluster(t, single34)
	client, ctx := admin(t, e, "", ""), t.Context()
	record := func(index string) string { return "log/000000000000000" + index }
	for _, test := range []struct{ says, key, value string }{ // "-" deletes the key
		{"changes are missing", record("00007"), "-"},
		{`7x" is not`, record("0007x"), ""},
		{"is too short", record("00009"), "x"},
		{`epoch" is not`, "epoch", "5"},
		{"epoch 7 comes after epoch 1", "epoch", "00000000000000000007 "},
		{"record 20 comes after record 9", record("00020"), "12345678"},
		{`cluster" is not`, "cluster", "xyz"},
		{"there are records, but the key", "epoch", "-"},
		{"there is another record under", record("00009"), "12345678"},
	} {
		o := quietly(e)
		l := open(t, o)
		fill(t, l, 1, 9)
		tamper := func() {
			if test.value == "-" {
				must(t, errOf(client.Delete(ctx, o.Prefix+test.key)))
			} else {
				must(t, errOf(client.Put(ctx, o.Prefix+test.key, test.value)))
			}
			must(t, errOf(client.Put(ctx, o.Prefix+"beat", ""))) // the last change
		}
		enough := errors.New("enough")
		watch := l.Follow(ctx, 0, func(e order.Event) error {
			if e.Index == 9 {
				tamper()
			} else if e.Index == 0 && e.Epoch == nil {
				return enough
			}
			return nil
		})
		read := l.Follow(ctx, 0, func(e order.Event) error {
			if e.Index == 9 {
				return enough
			}
			return nil
		})
		for _, err := range []error{watch, read, l.Append(ctx, 1, 9, content(9)), l.Raise(ctx, 0, 0, nil), errOf(l.Cluster(ctx, 1, 0))} {
			if err != nil && strings.Contains(err.Error(), test.says) {
				test.says = ""
			}
		}
		if test.says != "" {
			t.Errorf("no error says %q; read: %v; watch: %v", test.says, read, watch)
		}
	}
}
