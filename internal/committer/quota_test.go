package committer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/access"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/committer/committertest"
)

// limited returns a context for commands of an identity that may hold so many claims.
func limited(t *testing.T, identity string, most int) context.Context {
	t.Helper()
	caller := access.Caller{Identity: access.Identity{Name: identity}, Quota: &access.Quota{Held: most}}
	return access.WithCaller(t.Context(), func() access.Caller { return caller })
}

// beyond reports whether an error is that of a claim beyond a quota.
func beyond(err error) bool {
	var quota *claim.QuotaError
	return errors.As(err, &quota)
}

// counting notes which identities the transactions of a store count.
type counting struct {
	db.Tx
	counts *atomic.Int64
}

func (c counting) Load(wanted db.Wanted) (*claim.Queues, error) {
	c.counts.Add(int64(len(wanted.Identities)))
	return c.Tx.Load(wanted)
}

// noteCounts returns how many identities have been counted.
func noteCounts(w *committertest.World) *atomic.Int64 {
	var counts atomic.Int64
	w.Store.Set(func(s *committertest.Store) {
		s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
			return s.Update(ctx, func(tx db.Tx) error { return fn(counting{tx, &counts}) })
		}
	})
	return &counts
}

// TestQuotaOfClaims: however many requests come at once, in one batch or in several, exactly as many claims
// are made as may be, and the claims are counted once in two seconds. Others cost no count.
func TestQuotaOfClaims(t *testing.T) {
	const most = 10
	for _, batch := range []int{0, 7} {
		bounded(t, batch, 0, func(t *testing.T, w *committertest.World) {
			counts := noteCounts(w)
			ann := limited(t, "cert:ann", most)
			made := 0
			for range 3 {
				for _, r := range w.Send(ann, creates(fmt.Sprint("c", made), 50, 0)...) {
					switch err := committertest.Receive(t, r).Err; {
					case err == nil:
						made++
					case !beyond(err):
						t.Fatal(err)
					}
				}
			}
			if made != most || counts.Load() != 1 {
				t.Errorf("%d claims were made, %d counts", made, counts.Load())
			}
			w.Must(t, claim.Create{ID: "x", Resource: "x", TTL: time.Hour}) // nobody's
			if _, err := w.Do(limited(t, "cert:ben", 1), claim.Create{ID: "ben", Resource: "ben", TTL: time.Hour}); err != nil || counts.Load() != 2 {
				t.Errorf("another identity: %v, %d counts", err, counts.Load())
			}
			w.Must(t, claim.End{ID: "ben"}) // by whom does not matter
			if _, err := w.Do(limited(t, "cert:ben", 1), claim.Create{ID: "again", Resource: "ben", TTL: time.Hour}); err != nil || counts.Load() != 2 {
				t.Errorf("another identity: %v, %d counts", err, counts.Load())
			}
		})
	}
}

// TestQuotaOfOtherServers: claims that another server makes and ends count after two seconds at the latest.
func TestQuotaOfOtherServers(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		ann := limited(t, "cert:ann", 2)
		create := func(id string) error {
			_, err := w.Do(ann, claim.Create{ID: id, Resource: id, TTL: time.Hour})
			return err
		}
		committertest.Check(t, create("1"))
		for _, cmd := range []claim.Command{claim.End{ID: "1"}, claim.Create{ID: "x", Resource: "x", TTL: time.Hour}} {
			committertest.Transact(t, w.Store, cmd)
		}
		committertest.Check(t, create("2"))
		if err := create("3"); !beyond(err) { // 1 is counted still
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		committertest.Check(t, create("3"))
		if err := create("4"); !beyond(err) {
			t.Error(err)
		}
	})
}

// TestQuotaAfterFailures: a transaction that failed, or whose outcome is not known, does not make the counts wrong.
func TestQuotaAfterFailures(t *testing.T) {
	for _, done := range []bool{false, true} {
		committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
			ann := limited(t, "cert:ann", 3)
			create := func(id string) error {
				_, err := w.Do(ann, claim.Create{ID: id, Resource: id, TTL: time.Hour})
				return err
			}
			committertest.Check(t, create("1"))
			for _, fails := range []error{db.ErrUnavailable, db.ErrOutcomeUnknown} {
				w.Store.Set(func(s *committertest.Store) {
					s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
						_ = s.Update(ctx, func(tx db.Tx) error {
							if err := fn(tx); err != nil || !done || errors.Is(fails, db.ErrUnavailable) {
								return errors.Join(err, fails)
							}
							return nil
						})
						return fails
					}
				})
				if err := create("2"); !errors.Is(err, fails) {
					t.Fatal(err)
				}
			}
			w.Store.Set(func(s *committertest.Store) { s.OnTransact = nil })
			synctest.Wait()
			committertest.Check(t, create("2")) // a retry, or not
			committertest.Check(t, create("3"))
			if err := create("4"); !beyond(err) {
				t.Error(err)
			}
		})
	}
}
