package watch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/watch"
)

// TestAwait: claim b waits behind claim a.
func TestAwait(t *testing.T) {
	release := claim.SetStatus{ID: "a", Status: claim.Released}
	for name, test := range map[string]func(t *testing.T, w *committertest.World){
		"granted by this server": func(t *testing.T, w *committertest.World) {
			replies := w.Await(t.Context(), "b")
			w.Must(t, release)
			gets(t, replies, claim.Active)
		},
		"ended by this server": func(t *testing.T, w *committertest.World) {
			replies := w.Await(t.Context(), "b")
			w.Must(t, claim.SetStatus{ID: "b", Status: claim.Revoked})
			gets(t, replies, claim.Revoked)
		},
		"granted right after it was read": func(t *testing.T, w *committertest.World) {
			w.Store.Set(func(s *committertest.Store) {
				s.OnGet = sync.OnceFunc(func() { w.Must(t, release) })
			})
			begin := time.Now()
			gets(t, w.Await(t.Context(), "b"), claim.Active)
			if took := time.Since(begin); took > 50*time.Millisecond {
				t.Errorf("it took %s", took)
			}
		},
		"many wait for one claim": func(t *testing.T, w *committertest.World) {
			first, second := w.Await(t.Context(), "b"), w.Await(t.Context(), "b")
			if n := w.Metric(t, "locket_waiters"); n != 2 {
				t.Errorf("%v waiters", n)
			}
			w.Must(t, release)
			gets(t, first, claim.Active)
			gets(t, second, claim.Active)
			if n := w.Metric(t, "locket_waiters"); n != 0 {
				t.Errorf("%v waiters at the end", n)
			}
		},
		"one goes away, the other stays": func(t *testing.T, w *committertest.World) {
			ctx, cancel := context.WithCancel(t.Context())
			first, second := w.Await(ctx, "b"), w.Await(t.Context(), "b")
			cancel()
			if err := (<-first).Err; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			w.Must(t, release)
			gets(t, second, claim.Active)
		},
		"active already": func(t *testing.T, w *committertest.World) { gets(t, w.Await(t.Context(), "a"), claim.Active) },
		"no such claim": func(t *testing.T, w *committertest.World) {
			if err := (<-w.Await(t.Context(), "none")).Err; !errors.Is(err, claim.ErrNotFound) {
				t.Errorf("got %v", err)
			}
		},
		"the deadline": func(t *testing.T, w *committertest.World) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := (<-w.Await(ctx, "b")).Err; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		},
		"granted by another server": func(t *testing.T, w *committertest.World) {
			feed := follow(t, w)
			replies := w.Await(t.Context(), "b")
			committertest.Transact(t, w.Store.Store, release)
			time.Sleep(time.Second)
			pending(t, replies) // this server has not learned of it
			feed <- feedRead{ids: []string{"other", "b", "b"}}
			begin := time.Now()
			gets(t, replies, claim.Active)
			if took := time.Since(begin); took > 50*time.Millisecond {
				t.Errorf("it took %s", took)
			}
		},
		"the feed names a claim that still waits": func(t *testing.T, w *committertest.World) {
			feed := follow(t, w)
			replies := w.Await(t.Context(), "b")
			feed <- feedRead{ids: []string{"b"}}
			time.Sleep(time.Second)
			pending(t, replies)
			w.Must(t, release)
			gets(t, replies, claim.Active)
		},
		"a gap in the feed": func(t *testing.T, w *committertest.World) {
			feed := follow(t, w)
			replies := w.Await(t.Context(), "b")
			committertest.Transact(t, w.Store.Store, release)
			feed <- feedRead{err: db.ErrUnavailable}
			gets(t, replies, claim.Active)
		},
		"a commit whose outcome is not known": func(t *testing.T, w *committertest.World) {
			replies := w.Await(t.Context(), "b")
			w.Store.Set(func(s *committertest.Store) {
				s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
					committertest.Check(t, s.Update(ctx, fn)) // it is committed
					return db.ErrOutcomeUnknown
				}
			})
			if _, err := w.Do(t.Context(), release); !errors.Is(err, db.ErrOutcomeUnknown) {
				t.Errorf("got %v", err)
			}
			begin := time.Now()
			gets(t, replies, claim.Active)
			if took := time.Since(begin); took > 50*time.Millisecond {
				t.Errorf("it took %s", took)
			}
		},
		"an end that the feed does not bring": func(t *testing.T, w *committertest.World) {
			replies := w.Await(t.Context(), "b")
			committertest.Transact(t, w.Store.Store, release)
			begin := time.Now()
			gets(t, replies, claim.Active)
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		},
		"changes that cannot be read": func(t *testing.T, w *committertest.World) {
			feed := follow(t, w)
			replies := w.Await(t.Context(), "b")
			committertest.Transact(t, w.Store.Store, release)
			feed <- feedRead{err: db.ErrFeedGap}
			gets(t, replies, claim.Active)
		},
		"the follower was stopped for longer than the feed is kept": func(t *testing.T, w *committertest.World) {
			stopped := make(chan struct{})
			w.Store.Set(func(s *committertest.Store) {
				s.OnChanges = func(after db.Position) ([]db.Commit, error) {
					<-stopped
					return []db.Commit{{Server: "other", N: after["other"] + 2}}, nil // a commit is missing
				}
			})
			committertest.Run(t, watch.NewFollower(w.Store, w.Hub, w.Log))
			time.Sleep(time.Minute)
			replies := w.Await(t.Context(), "b")
			committertest.Transact(t, w.Store.Store, release)
			begin := time.Now()
			close(stopped) // the read that runs, and the next one
			gets(t, replies, claim.Active)
			if took := time.Since(begin); took > 100*time.Millisecond {
				t.Errorf("it took %s", took)
			}
		},
		"the feed is away, and this server grants": func(t *testing.T, w *committertest.World) {
			w.Store.Set(func(s *committertest.Store) {
				s.OnChanges = func(db.Position) ([]db.Commit, error) { return nil, db.ErrUnavailable }
			})
			committertest.Run(t, watch.NewFollower(w.Store, w.Hub, w.Log))
			replies := w.Await(t.Context(), "b")
			time.Sleep(time.Second)
			pending(t, replies)
			w.Must(t, release)
			gets(t, replies, claim.Active)
		},
		"no more waiting": func(t *testing.T, w *committertest.World) {
			replies := w.Await(t.Context(), "b")
			w.Hub.Stop()
			w.Hub.Stop()
			for range 2 {
				if err := committertest.Receive(t, replies).Err; !errors.Is(err, watch.ErrStopped) {
					t.Errorf("got %v", err)
				}
				replies = w.Await(t.Context(), "b") // nor later
			}
			w.Must(t, release) // other requests are still served
			gets(t, w.Await(t.Context(), "b"), claim.Active)
		},
	} {
		t.Run(name, func(t *testing.T) {
			committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
				w.Must(t, claim.Create{ID: "a", Resource: "r", TTL: time.Hour})
				w.Must(t, claim.Create{ID: "b", Resource: "r", TTL: time.Hour})
				test(t, w)
			})
		})
	}
}

func gets(t *testing.T, replies chan committertest.Reply, want claim.Status) {
	t.Helper()
	if got := committertest.Receive(t, replies); got.Err != nil || got.Claim.ID == "" || got.Claim.Status != want || got.Now.Wall == 0 {
		t.Errorf("got %v, want %s", got, want)
	}
}

func pending(t *testing.T, replies chan committertest.Reply) {
	t.Helper()
	select {
	case got := <-replies:
		t.Fatalf("answered already: %v", got)
	default:
	}
}

// feedRead is the result of one read of the feed.
type feedRead struct {
	ids []string // claims that have stopped waiting
	err error
}

// commits returns a commit of another server, the next one after a position.
func (r feedRead) commits(after db.Position) []db.Commit {
	c := db.Commit{Server: "other", N: after["other"] + 1}
	for _, id := range r.ids {
		c.Others = append(c.Others, claim.Transition{
			Before: &claim.Claim{ID: id, Status: claim.Waiting}, After: &claim.Claim{ID: id, Status: claim.Active},
		})
	}
	return []db.Commit{c}
}

// follow runs a follower of a feed that returns each value sent to a channel once.
func follow(t *testing.T, w *committertest.World) chan<- feedRead {
	t.Helper()
	feed := make(chan feedRead, 1)
	w.Store.Set(func(s *committertest.Store) {
		s.OnChanges = func(after db.Position) ([]db.Commit, error) {
			select {
			case r := <-feed:
				return r.commits(after), r.err
			default:
				return nil, nil
			}
		}
	})
	committertest.Run(t, watch.NewFollower(w.Store, w.Hub, w.Log))
	return feed
}

// TestIdleFollower: while nothing waits, the feed is read about once in two seconds.
func TestIdleFollower(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		reads := 0
		w.Store.Set(func(s *committertest.Store) {
			s.OnChanges = func(db.Position) ([]db.Commit, error) { reads++; return nil, nil }
		})
		follower := committertest.Run(t, watch.NewFollower(w.Store, w.Hub, w.Log))
		time.Sleep(10*time.Second + 10*time.Millisecond)
		committertest.Stop(t, follower)
		if reads < 4 || reads > 6 {
			t.Errorf("%d reads in 10 s", reads)
		}
	})
}
