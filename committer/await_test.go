package committer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/committer"
	"github.com/locket-service/locket/db"
)

// TestAwait is about claim b, which waits behind claim a.
func TestAwait(t *testing.T) {
	release := claim.SetStatus{ID: "a", Status: claim.Released}
	otherServer := func(t *testing.T, w *world, cmd claim.Command) {
		t.Helper()
		must(t, w.store.Store.Transact(t.Context(), func(tx db.Tx) error { return change(tx, cmd) }))
	}
	for name, test := range map[string]func(t *testing.T, w *world){
		"granted by this server": func(t *testing.T, w *world) {
			replies := w.await(t.Context(), "b")
			w.do(t, release)
			gets(t, replies, claim.Active)
		},
		"ended by this server": func(t *testing.T, w *world) {
			replies := w.await(t.Context(), "b")
			w.do(t, claim.SetStatus{ID: "b", Status: claim.Revoked})
			gets(t, replies, claim.Revoked)
		},
		"many wait for one claim": func(t *testing.T, w *world) {
			first, second := w.await(t.Context(), "b"), w.await(t.Context(), "b")
			if n := w.metric(t, "locket_waiters"); n != 2 {
				t.Errorf("%v waiters", n)
			}
			w.do(t, release)
			gets(t, first, claim.Active)
			gets(t, second, claim.Active)
			if n := w.metric(t, "locket_waiters"); n != 0 {
				t.Errorf("%v waiters at the end", n)
			}
		},
		"one goes away, the other stays": func(t *testing.T, w *world) {
			ctx, cancel := context.WithCancel(t.Context())
			first, second := w.await(ctx, "b"), w.await(t.Context(), "b")
			cancel()
			if err := (<-first).err; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			w.do(t, release)
			gets(t, second, claim.Active)
		},
		"active already": func(t *testing.T, w *world) { gets(t, w.await(t.Context(), "a"), claim.Active) },
		"no such claim": func(t *testing.T, w *world) {
			if err := (<-w.await(t.Context(), "none")).err; !errors.Is(err, claim.ErrNotFound) {
				t.Errorf("got %v", err)
			}
		},
		"the deadline": func(t *testing.T, w *world) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := (<-w.await(ctx, "b")).err; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		},
		"granted by another server": func(t *testing.T, w *world) {
			feed := w.follow(t)
			replies := w.await(t.Context(), "b")
			otherServer(t, w, release)
			time.Sleep(time.Second)
			pending(t, replies) // nothing has told this server
			feed <- news{ids: []string{"other", "b", "b"}}
			begin := time.Now()
			gets(t, replies, claim.Active)
			if took := time.Since(begin); took > 50*time.Millisecond {
				t.Errorf("it took %s", took)
			}
		},
		"news of a claim that still waits": func(t *testing.T, w *world) {
			feed := w.follow(t)
			replies := w.await(t.Context(), "b")
			feed <- news{ids: []string{"b"}}
			time.Sleep(time.Second)
			pending(t, replies)
			w.do(t, release)
			gets(t, replies, claim.Active)
		},
		"news was missed": func(t *testing.T, w *world) {
			feed := w.follow(t)
			replies := w.await(t.Context(), "b")
			otherServer(t, w, release)
			feed <- news{err: db.ErrUnavailable}
			gets(t, replies, claim.Active)
		},
		"the feed is away, and this server grants": func(t *testing.T, w *world) {
			w.store.set(func(s *store) { s.changes = func() ([]string, error) { return nil, db.ErrUnavailable } })
			run(t, committer.NewFollower(w.store, w.Committer, w.log))
			replies := w.await(t.Context(), "b")
			time.Sleep(time.Second)
			pending(t, replies)
			w.do(t, release)
			gets(t, replies, claim.Active)
		},
		"no more waiting": func(t *testing.T, w *world) {
			replies := w.await(t.Context(), "b")
			w.StopWaiting()
			w.StopWaiting()
			for range 2 {
				if err := receive(t, replies).err; !errors.Is(err, committer.ErrStopping) {
					t.Errorf("got %v", err)
				}
				replies = w.await(t.Context(), "b") // nor later
			}
			w.do(t, release) // other requests go on
			gets(t, w.await(t.Context(), "b"), claim.Active)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.do(t, claim.Create{ID: "a", Resource: "r", TTL: time.Hour})
				w.do(t, claim.Create{ID: "b", Resource: "r", TTL: time.Hour})
				test(t, w)
			})
		})
	}
}

func gets(t *testing.T, replies chan reply, want claim.Status) {
	t.Helper()
	if got := receive(t, replies); got.err != nil || got.Claim.ID == "" || got.Claim.Status != want || got.Now.Wall == 0 {
		t.Errorf("got %v, want %s", got, want)
	}
}

func pending(t *testing.T, replies chan reply) {
	t.Helper()
	select {
	case got := <-replies:
		t.Fatalf("answered already: %v", got)
	default:
	}
}

// news is what one reading of the feed returns.
type news struct {
	ids []string
	err error
}

// follow runs a follower that reads the news that are sent to a channel, once each.
func (w *world) follow(t *testing.T) chan<- news {
	t.Helper()
	feed := make(chan news, 1)
	w.store.set(func(s *store) {
		s.changes = func() ([]string, error) {
			select {
			case n := <-feed:
				return n.ids, n.err
			default:
				return nil, nil
			}
		}
	})
	run(t, committer.NewFollower(w.store, w.Committer, w.log))
	return feed
}

// TestIdleFollower: when nobody waits the feed is read about once a second.
func TestIdleFollower(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		reads := 0
		w.store.set(func(s *store) { s.changes = func() ([]string, error) { reads++; return nil, nil } })
		follower := run(t, committer.NewFollower(w.store, w.Committer, w.log))
		time.Sleep(10*time.Second + 10*time.Millisecond)
		stop(t, follower)
		if reads < 9 || reads > 11 {
			t.Errorf("%d reads in 10 s", reads)
		}
	})
}
