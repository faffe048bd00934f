package dbtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Benchmark shows that the cost of an operation is flat: the same on an empty store, in a
// queue of 10,000 waiters, and beside 1,000,000 live claims. Each operation is a
// transaction of its own.
func Benchmark(b *testing.B, open func(testing.TB) db.Store) {
	store := open(b)
	b.Run("empty", func(b *testing.B) { operations(b, store, "quiet") })
	fill(b, store, 10_000, func(int) string { return "busy" })
	b.Run("10000-waiters", func(b *testing.B) { operations(b, store, "busy") })
	fill(b, store, 1_000_000, func(i int) string { return fmt.Sprint("other/", i) })
	b.Run("1000000-claims", func(b *testing.B) { operations(b, store, "quiet2") })
	b.Run("1000000-claims-10000-waiters", func(b *testing.B) { operations(b, store, "busy") })
}

// fill makes n claims that live long.
func fill(b *testing.B, store db.Store, n int, resource func(int) string) {
	b.Helper()
	const batch = 500
	for from := 0; from < n; from += batch {
		commands := make([]claim.Command, batch)
		for i := range commands {
			commands[i] = claim.Create{
				ID: fmt.Sprintf("%s/%09d", resource(0), from+i), Resource: resource(from + i), Owner: "filler", TTL: time.Hour,
			}
		}
		Do(b, store, commands...)
	}
}

// operations measures operations on a resource. After each the queue has the same length again.
func operations(b *testing.B, store db.Store, resource string) {
	ctx := context.Background()
	n := 0
	create := func() string {
		n++
		id := fmt.Sprintf("%s/%s/%d/%d", b.Name(), resource, b.N, time.Now().UnixNano())
		Do(b, store, claim.Create{ID: id, Resource: resource, Owner: "o", TTL: time.Hour})
		return id
	}
	b.Run("create-and-withdraw", func(b *testing.B) {
		for b.Loop() {
			Do(b, store, claim.SetStatus{ID: create(), Status: claim.Withdrawn})
		}
	})
	b.Run("256-locks-and-releases", func(b *testing.B) { locks(b, store, resource) })
	b.Run("hand-over", func(b *testing.B) {
		create()
		for b.Loop() {
			create()
			holder, err := store.Holder(ctx, resource)
			if err != nil {
				b.Fatal(err)
			}
			Do(b, store, claim.SetStatus{ID: holder.ID, Status: claim.Released})
		}
	})
	b.Run("collision", func(b *testing.B) {
		for b.Loop() {
			_ = Update(ctx, store, func(tx db.Tx) error {
				queues, err := tx.Load(db.Wanted{Resources: []string{resource}})
				if err != nil {
					return err
				}
				_, err = queues.Do(claim.Acquire{ID: "never", Resource: resource, Owner: "another", TTL: time.Hour})
				return err
			})
		}
	})
	b.Run("sweep", func(b *testing.B) {
		for b.Loop() {
			if _, err := store.Due(ctx, db.DueQuery{Resources: 256}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// locks takes many locks in one transaction, and releases them in another, as a busy server does.
func locks(b *testing.B, store db.Store, resource string) {
	const each = 256
	var acquire, release []claim.Command
	for i := range each {
		name := fmt.Sprint(resource, "/", i)
		acquire = append(acquire, claim.Acquire{Resource: name, Owner: "o", TTL: time.Hour})
		release = append(release, claim.Release{Resource: name, Owner: "o"})
	}
	for b.Loop() {
		for i, cmd := range acquire {
			lock := cmd.(claim.Acquire)
			lock.ID = fmt.Sprintf("%s/%d/%d", b.Name(), i, time.Now().UnixNano())
			acquire[i] = lock
		}
		Do(b, store, acquire...)
		Do(b, store, release...)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*2*each), "ns/operation")
}
