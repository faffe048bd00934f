package committer

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/locket-service/locket/claim"
)

// pendingOf returns requests of identities, in this order; each resource has a number.
func pendingOf(identities ...string) (pending []*request) {
	for i, identity := range identities {
		pending = append(pending, &request{
			ctx: context.Background(), caller: claim.Caller{Identity: identity}, cmd: claim.Create{Resource: fmt.Sprint(i)},
		})
	}
	return pending
}

func orderOf(pending []*request) (order []string) {
	for _, r := range pending {
		order = append(order, r.caller.Identity+r.cmd.(claim.Create).Resource)
	}
	return order
}

func TestTurns(t *testing.T) {
	for _, c := range []struct{ given, want []string }{
		{nil, nil},
		{[]string{"a", "a", "a"}, []string{"a0", "a1", "a2"}},
		{[]string{"a", "a", "a", "b", "a", "c", "b"}, []string{"a0", "b3", "c5", "a1", "b6", "a2", "a4"}},
		{[]string{"", "", "b"}, []string{"0", "b2", "1"}},
	} {
		pending := pendingOf(c.given...)
		takeTurns(pending)
		if got := orderOf(pending); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.given, got, c.want)
		}
	}
}

// A batch has the request of a quiet identity, however many another one has sent before it.
func TestTurnsOfABacklog(t *testing.T) {
	q := newQueue(DefaultPending, func(claim.Acquire) bool { return false })
	noisy := slices.Repeat([]string{"noisy"}, 10_000)
	for _, r := range append(pendingOf(noisy...), pendingOf("quiet")...) {
		if err := q.add(r); err != nil {
			t.Fatal(err)
		}
	}
	batch := q.take(DefaultBatch)
	if !slices.ContainsFunc(batch, func(r *request) bool { return r.caller.Identity == "quiet" }) || len(batch) != DefaultBatch {
		t.Errorf("%d requests, without that of the quiet identity", len(batch))
	}
	for n := len(batch); n < len(noisy)+1; {
		next := q.take(DefaultBatch)
		if len(next) == 0 {
			t.Fatalf("%d of %d requests were lost", len(noisy)+1-n, len(noisy)+1)
		}
		n += len(next)
	}
	if q.bytes != 0 || q.len() != 0 {
		t.Errorf("%d bytes of %d requests are left", q.bytes, q.len())
	}
}

// BenchmarkTurns is how many batches a quiet identity waits for behind 10,000 requests of a noisy one: 1
// by turns, 20 in the order of arrival, and what a batch costs then.
func BenchmarkTurns(b *testing.B) {
	for name, identity := range map[string]string{"turns": "quiet", "arrival": "noisy"} {
		b.Run(name, func(b *testing.B) {
			noisy, batches := slices.Repeat([]string{"noisy"}, 10_000), 0
			for b.Loop() {
				q := newQueue(DefaultPending, func(claim.Acquire) bool { return false })
				last := pendingOf(identity)[0]
				for _, r := range append(pendingOf(noisy...), last) {
					_ = q.add(r)
				}
				for batches = 1; !slices.Contains(q.take(DefaultBatch), last); batches++ {
				}
			}
			b.ReportMetric(float64(batches), "batches")
		})
	}
}
