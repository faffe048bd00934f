package watch_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/watch"
)

// TestSessionsPace: for sessions the feed is read as often as for waiting calls, however many sessions there are.
func TestSessionsPace(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		var reads atomic.Int64
		w.Store.Set(func(s *committertest.Store) {
			s.OnChanges = func(db.Position) ([]db.Commit, error) { reads.Add(1); return nil, nil }
		})
		follower := committertest.Run(t, watch.NewFollower(w.Store, w.Hub, w.Log))
		count := func(least, most int64) {
			t.Helper()
			synctest.Wait()
			before := reads.Load()
			time.Sleep(10*time.Second + 10*time.Millisecond)
			synctest.Wait()
			if n := reads.Load() - before; n < least || n > most {
				t.Errorf("%d reads in 10 s, want %d to %d", n, least, most)
			}
		}
		count(4, 6)
		var stops []func()
		for i := range 1000 {
			stops = append(stops, w.Hub.Follow(fmt.Sprint(i), inbox.New(1000, nil), &listener{}))
		}
		count(480, 520)
		for _, stop := range stops {
			stop()
		}
		count(4, 6)
		committertest.Stop(t, follower)
	})
}

// listener records its calls.
type listener struct {
	mu    sync.Mutex
	heard []string
}

func (l *listener) hear(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, what)
}

func (l *listener) all() string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(l.heard)
}

func (l *listener) Changed(change claim.Transition) {
	l.hear(fmt.Sprintf("%s %s", change.After.ID, change.After.Status))
}

func (l *listener) Missed() { l.hear("missed") }

// TestSessionsHear: a listener gets the changes of its session's claims by this server and by others, until another
// listener takes its place.
func TestSessionsHear(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		feed := make(chan []db.Commit, 1)
		w.Store.Set(func(s *committertest.Store) {
			s.OnChanges = func(db.Position) ([]db.Commit, error) {
				select {
				case commits := <-feed:
					return commits, nil
				default:
					return nil, nil
				}
			}
		})
		committertest.Run(t, watch.NewFollower(w.Store, w.Hub, w.Log))
		synctest.Wait() // it knows its place in the feed
		w.Must(t, claim.Attach{Session: claim.Session{ID: "s", TTL: time.Minute}, Server: "here"})
		first, second := &listener{}, &listener{}
		stop := w.Hub.Follow("s", inbox.New(1000, nil), first)
		w.Must(t, claim.Create{ID: "mine", Resource: "r", Session: "s", Server: "here"})
		w.Must(t, claim.Create{ID: "another's", Resource: "q", TTL: time.Minute})
		time.Sleep(time.Second)
		ended := &claim.Claim{ID: "mine", Resource: "r", Session: "s", Status: claim.Revoked}
		feed <- []db.Commit{{Server: "there", N: 1, Others: []claim.Transition{{Before: &claim.Claim{ID: "mine", Status: claim.Active}, After: ended}}}}
		time.Sleep(time.Second)
		feed <- []db.Commit{{Server: "there", N: 3}} // the second one is missing
		time.Sleep(time.Second)
		mine := &claim.Claim{ID: "mine", Resource: "r", Session: "s", Status: claim.Active}
		feed <- []db.Commit{{Server: "here", N: 1, Changes: []claim.Transition{{After: mine}}}} // reported when it was committed
		time.Sleep(time.Second)
		w.Hub.Follow("s", inbox.New(1000, nil), second)
		stop() // another listener has its place
		w.Must(t, claim.SetStatus{ID: "mine", Status: claim.Released})
		if got := first.all(); got != "[mine active mine revoked missed]" {
			t.Errorf("it heard %s", got)
		}
		if got := second.all(); got != "[mine released]" {
			t.Errorf("the next heard %s", got)
		}
	})
}

// TestSessionsMiss: changes by another server are missed before this server knows its place in the feed, and when it
// cannot read them. Then sessions must read their claims.
func TestSessionsMiss(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		l := &listener{}
		w.Hub.Follow("s", inbox.New(1000, nil), l)
		feed := follow(t, w)
		time.Sleep(3 * time.Second)
		if got := l.all(); got != "[missed]" {
			t.Errorf("at the begin it heard %s", got)
		}
		feed <- feedRead{ids: []string{"another's"}}
		time.Sleep(3 * time.Second)
		feed <- feedRead{err: db.ErrFeedGap}
		time.Sleep(3 * time.Second)
		if got := l.all(); got != "[missed missed]" {
			t.Errorf("it heard %s", got)
		}
	})
}

// slow is a listener that blocks until a gate opens.
type slow struct {
	listener
	gate chan struct{}
}

func (s *slow) Changed(change claim.Transition) {
	<-s.gate
	s.listener.Changed(change)
}

// TestSlowListener: a slow session delays no one else, and gets all changes in order.
func TestSlowListener(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		l := &slow{gate: make(chan struct{})}
		w.Hub.Follow("s", inbox.New(1000, nil), l)
		w.Must(t, claim.Attach{Session: claim.Session{ID: "s", TTL: time.Hour}, Server: "here"})
		w.Must(t, claim.Create{ID: "1", Resource: "1", Session: "s", Server: "here"})
		w.Must(t, claim.End{ID: "1"})
		if heard := l.all(); heard != "[]" {
			t.Errorf("heard %s", heard)
		}
		close(l.gate)
		synctest.Wait()
		if heard := l.all(); heard != "[1 active 1 released]" {
			t.Errorf("heard %s", heard)
		}
	})
}
