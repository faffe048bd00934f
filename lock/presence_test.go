package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
)

// TestPresenceOfClient: a client announces a presence of Acquire again after each loss, until it is released or the
// client is closed.
func TestPresenceOfClient(t *testing.T) {
	for name, lose := range map[string]func(w *world, client *lock.Client){
		"an outage": func(w *world, _ *lock.Client) {
			w.Set(locktest.Cut)
			time.Sleep(3 * ttl)
			w.Set(locktest.Open)
		},
		"a server that is away": func(w *world, _ *lock.Client) { w.restart(3 * ttl) },
		"a reset of sessions":   func(w *world, _ *lock.Client) { w.resetSessions() },
		"a claim that is ended": func(w *world, _ *lock.Client) { w.revoke(w.holding("web/1")[0].GetId(), "draining") },
		"another one takes over": func(w *world, _ *lock.Client) {
			w.revoke(w.holding("web/1")[0].GetId(), "")
			w.announceFor("web/1", 2*ttl)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				client, presence, set := w.announced()
				var last uint64
				for range 2 {
					time.Sleep(2 * ttl) // the claim of a session that was lost while the server was away ends late
					synctest.Wait()
					if got := keys(set); got != "web/1=here" || presence.Err() != nil || presence.Token() <= last {
						t.Fatalf("announced: %q; %v, with token %d after %d", got, presence.Err(), presence.Token(), last)
					}
					last = presence.Token()
					lose(w, client)
				}
				time.Sleep(5 * time.Second)
				must(t, presence.Release(t.Context()))
				time.Sleep(ttl)
				synctest.Wait()
				if got := keys(set); got != "" || !errors.Is(presence.Err(), lock.ErrReleased) {
					t.Errorf("after its release: %q, %v", got, presence.Err())
				}
			})
		})
	}
}

// announced returns a client with a presence, and the set of presences as another client sees it.
func (w *world) announced() (*lock.Client, *lock.Hold, *lock.PresenceSet) {
	client, watcher := w.client(lock.WithTTL(ttl)), w.beside().client()
	set, err := lock.Presences(w.t.Context(), watcher, "web/")
	must(w.t, err)
	presence, err := client.Acquire(w.t.Context(), "web/1", lock.WithPresence("here"))
	must(w.t, err)
	return client, presence, set
}

// announceFor announces a presence of another owner for a while.
func (w *world) announceFor(key string, length time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	other, err := w.beside().client().TryAcquire(ctx, key, lock.WithPresence("there"))
	must(w.t, err)
	time.Sleep(length)
	must(w.t, other.Release(ctx))
}

// TestPresenceAway: while a presence of a client is not announced, it may be released, or its client closed. It is not announced after that.
func TestPresenceAway(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(t *testing.T, client *lock.Client, presence *lock.Hold)
		want error
	}{
		"released": {func(t *testing.T, _ *lock.Client, presence *lock.Hold) { must(t, presence.Release(t.Context())) }, lock.ErrReleased},
		"closed":   {func(t *testing.T, client *lock.Client, _ *lock.Hold) { must(t, client.Close()) }, lock.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				client, presence, set := w.announced()
				w.Set(locktest.Cut)
				time.Sleep(2 * ttl)
				if presence.Err() != nil || presence.Context().Err() != nil || time.Until(presence.Deadline()) > 0 {
					t.Errorf("it is away: %v, until %v", presence.Err(), presence.Deadline())
				}
				end.by(t, client, presence)
				<-presence.Done()
				w.Set(locktest.Open)
				time.Sleep(2 * ttl)
				synctest.Wait()
				if got := keys(set); got != "" || !errors.Is(presence.Err(), end.want) {
					t.Errorf("after its end: %q, %v", got, presence.Err())
				}
			})
		})
	}
}

// TestLeaderWithPresence: a leader with a presence loses the leadership with its lease, like any leader.
func TestLeaderWithPresence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		led, err := lock.NewElection(w.client(lock.WithTTL(ttl)), "leader", lock.WithPresence("here")).Campaign(t.Context(), "here")
		must(t, err)
		w.Set(locktest.Cut)
		<-led.Done()
		if !errors.Is(led.Err(), lock.ErrLost) {
			t.Error(led.Err())
		}
		w.Set(locktest.Open)
	})
}
