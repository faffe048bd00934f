package committer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// pendingOf returns requests of identities, in this order; each resource has a number.
func pendingOf(identities ...string) (pending []*request) {
	for i, identity := range identities {
		pending = append(pending, &request{
			ctx: context.Background(), caller: access.Caller{Identity: access.Identity{Name: identity}}, cmd: claim.Create{Resource: fmt.Sprint(i)},
		})
	}
	return pending
}

func orderOf(pending []*request) (order []string) {
	for _, r := range pending {
		order = append(order, r.caller.Name+r.cmd.(claim.Create).Resource)
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
	if !slices.ContainsFunc(batch, func(r *request) bool { return r.caller.Name == "quiet" }) || len(batch) != DefaultBatch {
		t.Errorf("%d requests, without that of the quiet identity", len(batch))
	}
	for n := len(batch); n < len(noisy)+1; {
		next := q.take(DefaultBatch)
		if len(next) == 0 {
			t.Fatalf("%d of %d requests were lost", len(noisy)+1-n, len(noisy)+1)
		}
		n += len(next)
	}
	if q.all != (load{}) || len(q.of) != 0 || q.len() != 0 {
		t.Errorf("%+v, %v of %d requests are left", q.all, q.of, q.len())
	}
}

// A full queue still has room for new work of identities with less than their share, and for renewals of all.
func TestShareOfAFullQueue(t *testing.T) {
	const limit = 1000
	q := newQueue(limit, func(claim.Acquire) bool { return false })
	fill := func(identity string, bytes int) (accepted int) {
		for range 2 * limit {
			r := pendingOf(identity)[0]
			r.cmd = claim.Create{UserData: make([]byte, bytes)}
			if errors.Is(q.add(r), ErrOverloaded) {
				return accepted
			}
			accepted++
		}
		t.Fatalf("%s is never refused", identity)
		return 0
	}
	want := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d requests were accepted, want %d", what, got, want)
		}
	}
	want("alone", fill("noisy", 0), limit/2)
	want("beside one", fill("quiet", 0), limit/4)
	want("again", fill("noisy", 0), 0)
	q.takeAll()
	want("after all were taken", fill("quiet", 0), limit/2)
	want("beside one", fill("noisy", 0), limit/4)
	want("three", fill("third", 0), 0) // three quarters are reached
	for range limit / 4 {
		r := pendingOf("noisy")[0]
		r.cmd = claim.Renew{ID: "x"}
		if err := q.add(r); err != nil {
			t.Fatal("a renewal:", err)
		}
	}
	q.takeAll()

	const large = 64 << 10
	few := fill("noisy", large)
	if got := fill("quiet", large); few > limit/2 || got < few/2-1 || got > few/2 {
		t.Errorf("in bytes: %d, then %d were accepted", few, got)
	}
	for q.len() > 0 {
		before := q.all.bytes
		if batch := q.take(limit); before-q.all.bytes >= maxBatchBytes+large+commandBytes || len(batch) == 0 {
			t.Fatalf("a batch of %d requests has %d bytes", len(batch), before-q.all.bytes)
		}
	}
	if q.all != (load{}) || len(q.of) != 0 {
		t.Errorf("%+v, %v are left", q.all, q.of)
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
