package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/watch"
)

// feed is the feed of a database with many servers, in memory.
type feed struct {
	db.Getter
	mu      sync.Mutex
	commits []db.Commit // in commit order
	gone    int         // number of the first ones that are no longer kept
	err     error
	reads   int
	step    time.Duration // step of the database's clock
}

func (f *feed) End(context.Context, bool) (db.Position, claim.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	end := db.Position{}
	for _, c := range f.commits {
		end[c.Server] = c.N
	}
	return end, f.now(), f.err
}

func (f *feed) Changes(_ context.Context, after db.Position, own bool) (commits []db.Commit, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	for _, c := range f.commits[f.gone:] {
		if c.N <= after[c.Server] || !own && c.Server == "own" {
			continue
		}
		if c.Record == nil { // it cannot be read
			return nil, db.ErrFeedGap
		}
		commits = append(commits, c)
	}
	slices.SortStableFunc(commits, func(a, b db.Commit) int { return strings.Compare(a.Server, b.Server) })
	return commits, f.err
}

func now() claim.Time { return claim.Time(time.Now().UnixMicro()) }

func (f *feed) now() claim.Time { return now().Add(f.step) }

// commit adds a commit of a server that changes some resources.
func (f *feed) commit(server string, resources ...string) {
	time.Sleep(time.Microsecond) // no two at the same time
	f.mu.Lock()
	defer f.mu.Unlock()
	c := db.Commit{Server: server, N: 1, At: f.now()}
	for _, other := range f.commits {
		if other.Server == server {
			c.N++
		}
	}
	for _, r := range resources {
		c.Changes = append(c.Changes, claim.Transition{After: &claim.Claim{
			ID: fmt.Sprint(r, len(f.commits)), Resource: r, Status: claim.Active, Version: uint64(len(f.commits)) + 1,
		}})
	}
	c.Record = db.AppendRecord(nil, c.At, c.Changes)
	f.commits = append(f.commits, c)
}

func (f *feed) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// serve starts a server on a feed.
func (f *feed) serve(t *testing.T) *watch.Hub {
	t.Helper()
	hub := watch.NewHub(f, prometheus.NewRegistry())
	committertest.Run(t, watch.NewFollower(f, hub, slog.New(slog.DiscardHandler)))
	return hub
}

func join(t *testing.T, hub *watch.Hub, after *watch.Cursor) *watch.Watcher {
	t.Helper()
	w, err := hub.Watch(t.Context(), after)
	committertest.Check(t, err)
	t.Cleanup(w.Close)
	return w
}

// next returns the resources that changed until the feed has been quiet for a second.
func next(t *testing.T, w *watch.Watcher) string {
	t.Helper()
	var seen []string
	for {
		commits, err := w.Next(t.Context(), time.After(time.Second))
		committertest.Check(t, err)
		if len(commits) == 0 {
			return strings.Join(seen, " ")
		}
		for _, c := range commits {
			for _, change := range c.Changes {
				seen = append(seen, change.After.Resource)
			}
		}
	}
}

func wants(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func fails(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// TestNextBefore: a watcher that asks for the commits before a moment causes a read of the feed at once, for each new
// moment, and gets them.
func TestNextBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{}
		w := join(t, f.serve(t), nil)
		time.Sleep(time.Minute)
		for i := range 10 {
			f.commit("other", fmt.Sprint(i))
			began := time.Now()
			commits, err := w.NextBefore(t.Context(), began)
			committertest.Check(t, err)
			if len(commits) != 1 || commits[0].Changes[0].After.Resource != fmt.Sprint(i) {
				t.Errorf("it got %v", commits)
			}
			if commits, err = w.NextBefore(t.Context(), began); len(commits) > 0 || err != nil {
				t.Errorf("then it got %v, %v", commits, err)
			}
			if took := time.Since(began); took > 5*time.Millisecond { // between two reads
				t.Errorf("the feed was read after %v", took)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.NextBefore(ctx, time.Now()); !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// waits counts how often somebody begins to wait for the end of a context.
type waits struct {
	context.Context
	count atomic.Int32
}

func (w *waits) Done() <-chan struct{} {
	w.count.Add(1)
	return w.Context.Done()
}

// TestNextBeforeWakesNobody: a watcher that asks for a read of the feed does not wake the others, unless the read finds something.
func TestNextBeforeWakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{}
		hub := f.serve(t)
		asking, other := join(t, hub, nil), join(t, hub, nil)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := &waits{Context: ctx}
		ended := make(chan error)
		go func() {
			commits, err := other.Next(waiting, nil)
			for err == nil && len(commits) > 0 {
				commits, err = other.Next(waiting, nil)
			}
			ended <- err
		}()
		ask := func() int32 {
			synctest.Wait()
			before := waiting.count.Load()
			_, err := asking.NextBefore(t.Context(), time.Now())
			committertest.Check(t, err)
			synctest.Wait()
			return waiting.count.Load() - before
		}
		if woken := ask(); woken != 0 {
			t.Errorf("the other watcher was woken %d times", woken)
		}
		f.commit("own", "a")
		if woken := ask(); woken != 1 {
			t.Errorf("after a commit the other watcher was woken %d times", woken)
		}
		cancel()
		fails(t, <-ended, context.Canceled)
	})
}

func TestWatcher(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, f *feed, hub *watch.Hub){
		"all servers, in order": func(t *testing.T, f *feed, hub *watch.Hub) {
			f.commit("other", "before")
			w := join(t, hub, nil)
			f.commit("own", "a")
			f.commit("other", "b", "c")
			f.commit("own", "d")
			wants(t, next(t, w), "a b c d")
			f.commit("new", "e")
			wants(t, next(t, w), "e")
		},
		"on the same server": func(t *testing.T, f *feed, hub *watch.Hub) {
			w := join(t, hub, nil)
			f.commit("own", "a")
			wants(t, next(t, w), "a")
			cursor := w.Cursor()
			f.commit("other", "b")
			wants(t, next(t, w), "b")
			wants(t, next(t, join(t, hub, &cursor)), "b")
		},
		"on another server": func(t *testing.T, f *feed, hub *watch.Hub) {
			w := join(t, hub, nil)
			f.commit("own", "a")
			f.commit("other", "b")
			f.commit("own", "c")
			wants(t, next(t, w), "a b c")
			cursor := w.Cursor()
			f.commit("new", "d")
			f.commit("own", "e")
			second := f.serve(t)
			wants(t, next(t, join(t, second, &cursor)), "d e")
			fresh := join(t, second, nil)
			wants(t, next(t, join(t, second, &cursor)), "d e")
			f.commit("other", "f")
			wants(t, next(t, fresh), "f")
			wants(t, next(t, join(t, second, &cursor)), "d e f")
		},
		"in the middle of what was read": func(t *testing.T, f *feed, hub *watch.Hub) {
			w := join(t, hub, nil)
			for i := range 600 {
				f.commit([]string{"own", "other"}[i%2], fmt.Sprint(i))
			}
			commits, err := w.Next(t.Context(), nil)
			committertest.Check(t, err)
			cursor := w.Cursor()
			second := f.serve(t)
			join(t, second, nil)
			rest := strings.Fields(next(t, join(t, second, &cursor)))
			if len(commits)+len(rest) != 600 || rest[0] != fmt.Sprint(len(commits)) {
				t.Errorf("%d commits and %d, from %q", len(commits), len(rest), rest[:1])
			}
		},
		"what is not kept": func(t *testing.T, f *feed, hub *watch.Hub) {
			w := join(t, hub, nil)
			f.commit("other", "a")
			wants(t, next(t, w), "a")
			cursor := w.Cursor()
			f.commit("other", "b")
			f.commit("other", "c")
			f.set(func() { f.gone = 2 })
			second := f.serve(t)
			join(t, second, nil)
			_, err := second.Watch(t.Context(), &cursor)
			fails(t, err, watch.ErrCursorTooOld)
		},
		"the first commits of a server are not kept": func(t *testing.T, f *feed, hub *watch.Hub) {
			cursor := join(t, hub, nil).Cursor()
			f.commit("other", "a")
			f.commit("other", "b")
			f.set(func() { f.gone = 1 })
			second := f.serve(t)
			_, err := second.Watch(t.Context(), &cursor)
			fails(t, err, watch.ErrCursorTooOld)
		},
		"a server is gone": func(t *testing.T, f *feed, hub *watch.Hub) {
			f.commit("old", "x")
			w := join(t, hub, nil)
			cursor := w.Cursor()
			f.set(func() { f.commits = nil })
			f.commit("other", "a")
			wants(t, next(t, join(t, f.serve(t), &cursor)), "a")
			time.Sleep(2 * time.Minute)
			f.commit("other", "b")
			next(t, w)
			if p := w.Cursor().Position; !maps.Equal(p, db.Position{"other": 2}) {
				t.Errorf("the cursor is %v", p)
			}
			cursor = w.Cursor() // which this server must still know, though its log began before
			f.commit("other", "c")
			wants(t, next(t, join(t, hub, &cursor)), "c")
		},
		"an old cursor": func(t *testing.T, f *feed, hub *watch.Hub) {
			cursor := join(t, hub, nil).Cursor()
			time.Sleep(db.FeedAge - time.Minute)
			wants(t, next(t, join(t, f.serve(t), &cursor)), "")
			time.Sleep(2 * time.Minute)
			_, err := f.serve(t).Watch(t.Context(), &cursor)
			fails(t, err, watch.ErrCursorTooOld)
		},
		"a step of the clock": func(t *testing.T, f *feed, hub *watch.Hub) {
			slow := join(t, hub, nil)
			f.commit("other", "a")
			time.Sleep(time.Minute)
			cursor := join(t, hub, nil).Cursor()
			f.commit("other", "b")
			time.Sleep(time.Minute)
			for range 3 {
				f.set(func() { f.step += 2 * db.FeedAge })
				time.Sleep(2 * time.Minute)
				f.commit("other", "c")
			}
			wants(t, next(t, join(t, hub, &cursor)), "b c c c")
			wants(t, next(t, slow), "a b c c c")
			time.Sleep(db.FeedAge)
			_, err := hub.Watch(t.Context(), &cursor)
			fails(t, err, watch.ErrCursorTooOld)
		},
		"an old cursor, of which nothing is known": func(t *testing.T, f *feed, hub *watch.Hub) {
			cursor := join(t, hub, nil).Cursor()
			f.set(func() { f.err = db.ErrUnavailable })
			time.Sleep(time.Hour)
			f.set(func() { f.err = nil })
			time.Sleep(2 * time.Minute)
			_, err := hub.Watch(t.Context(), &cursor)
			fails(t, err, watch.ErrCursorTooOld)
		},
		"changes that cannot be read": func(t *testing.T, f *feed, hub *watch.Hub) {
			w := join(t, hub, nil)
			f.commit("own", "a")
			wants(t, next(t, w), "a")
			f.commit("other", "b")
			f.set(func() { f.commits[len(f.commits)-1].Record = nil })
			_, err := w.Next(t.Context(), nil)
			fails(t, err, watch.ErrCursorTooOld)
			again := join(t, hub, nil)
			f.commit("own", "c")
			wants(t, next(t, again), "c")
		},
		"a gap": func(t *testing.T, f *feed, hub *watch.Hub) {
			w := join(t, hub, nil)
			f.commit("other", "a")
			wants(t, next(t, w), "a")
			f.commit("other", "b")
			f.commit("other", "c")
			f.set(func() { f.commits = slices.Delete(f.commits, 1, 2) })
			_, err := w.Next(t.Context(), nil)
			fails(t, err, watch.ErrCursorTooOld)
		},
		"the database is away": func(t *testing.T, f *feed, hub *watch.Hub) {
			w := join(t, hub, nil)
			f.set(func() { f.err = db.ErrUnavailable })
			f.commit("other", "a")
			wants(t, next(t, w), "")
			f.set(func() { f.err = nil })
			wants(t, next(t, w), "a")
		},
		"the end": func(t *testing.T, f *feed, hub *watch.Hub) {
			w := join(t, hub, nil)
			go hub.Stop()
			_, err := w.Next(t.Context(), nil)
			fails(t, err, watch.ErrStopped)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = join(t, f.serve(t), nil).Next(ctx, nil)
			fails(t, err, context.Canceled)
		},
		"none left, and one again": func(t *testing.T, f *feed, hub *watch.Hub) {
			w, err := hub.Watch(t.Context(), nil)
			committertest.Check(t, err)
			f.commit("own", "a")
			wants(t, next(t, w), "a")
			cursor := w.Cursor()
			w.Close()
			f.commit("own", "b")
			time.Sleep(10 * time.Second)
			f.commit("other", "c")
			wants(t, next(t, join(t, hub, &cursor)), "b c")
		},
		"own commits are told at once": func(t *testing.T, f *feed, hub *watch.Hub) {
			w := join(t, hub, nil)
			time.Sleep(time.Second)
			f.commit("own", "a")
			hub.Committed(claim.Instant{}, nil)
			begin := time.Now()
			_, err := w.Next(t.Context(), nil)
			committertest.Check(t, err)
			if took := time.Since(begin); took > 5*time.Millisecond {
				t.Errorf("it took %s", took)
			}
		},
		"nobody watches": func(t *testing.T, f *feed, hub *watch.Hub) {
			w, err := hub.Watch(t.Context(), nil)
			committertest.Check(t, err)
			w.Close()
			time.Sleep(3 * time.Second)
			f.set(func() { f.reads = 0 })
			for range 1000 {
				hub.Committed(claim.Instant{}, nil)
				time.Sleep(10 * time.Millisecond)
			}
			if f.reads > 6 {
				t.Errorf("the feed was read %d times in 10 s", f.reads)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &feed{}
				test(t, f, f.serve(t))
			})
		})
	}
}

// TestCursorAhead: a watcher with a cursor of a server that is ahead of this one does not get again what it has seen there.
func TestCursorAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead, behind := &feed{}, &feed{}
		before := join(t, ahead.serve(t), nil)
		for _, f := range []*feed{ahead, behind} {
			f.commit("cluster", "first")
		}
		ahead.commit("cluster", "second")
		wants(t, next(t, before), "first second")
		cursor := before.Cursor()
		after := join(t, behind.serve(t), &cursor)
		wants(t, next(t, after), "")
		if at := after.Cursor().Position["cluster"]; at != cursor.Position["cluster"] {
			t.Errorf("its cursor is at commit %d", at)
		}
		behind.commit("cluster", "second")
		behind.commit("cluster", "third")
		wants(t, next(t, after), "third")
	})
}

// TestTooSlow: a watcher that falls behind the bytes that the log keeps ends with ErrTooSlow.
func TestTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{}
		hub := f.serve(t)
		slow, fast := join(t, hub, nil), join(t, hub, nil)
		cursor := slow.Cursor()
		big := strings.Repeat("x", 1<<20)
		for i := range db.FeedBytes>>20 + 2 {
			f.commit("own", fmt.Sprint(i, big))
			commits, err := fast.Next(t.Context(), nil)
			committertest.Check(t, err)
			if len(commits) != 1 {
				t.Fatalf("%d commits", len(commits))
			}
		}
		_, err := slow.Next(t.Context(), nil)
		fails(t, err, watch.ErrTooSlow)
		_, err = hub.Watch(t.Context(), &cursor)
		fails(t, err, watch.ErrCursorTooOld)
		late := fast.Cursor()
		f.commit("own", "last")
		wants(t, next(t, join(t, hub, &late)), "last")
	})
}

// TestLate: a watcher that falls behind, in bytes or in time, learns it before events are dropped.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{}
		hub := f.serve(t)
		w := join(t, hub, nil)
		is := func(want bool, when string) {
			t.Helper()
			if got := w.Late(); got != want {
				t.Errorf("%s: late %t", when, got)
			}
		}
		next(t, w)
		is(false, "at the begin")
		big := strings.Repeat("x", 1<<20)
		for i := range db.FeedBytes>>22 + 1 {
			f.commit("own", fmt.Sprint(i, big))
			time.Sleep(time.Second) // until the log has it
		}
		is(true, "behind a quarter of the bytes")
		next(t, w)
		is(false, "after it has read them")
		cursor := w.Cursor()
		time.Sleep(db.FeedAge/4 + time.Second)
		is(true, "behind a quarter of the time")
		next(t, w)
		is(false, "after it has read on")
		w = join(t, hub, &cursor)
		next(t, w)
		is(false, "one with a cursor")
	})
}

// Arrived implements db.Feed.
func (*feed) Arrived() <-chan struct{} { return nil }
