package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/discovery"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
)

// announce announces a presence by own.
func (w *world) announce(key, value string) ifrit.Process {
	return ifrit.Invoke(lock.NewPresenceRunner(w.own(), &models.Resource{Key: key, Value: value}, ttl, retry))
}

func keys(set *lock.PresenceSet) string {
	var all []string
	for _, p := range set.All() {
		all = append(all, p.Key+"="+p.Value)
	}
	return strings.Join(all, " ")
}

func texts(changes []lock.PresenceChange) string {
	var all []string
	for _, c := range changes {
		all = append(all, fmt.Sprint(c.Kind, " ", c.Presence.Key))
	}
	return strings.Join(all, ", ")
}

// TestPresences: the set is complete at first, and follows the presences of its prefix, even after a restart of the
// server and an outage.
func TestPresences(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := w.client()
		a, other := w.announce("web/a", "1"), w.announce("db/a", "9")
		ctx, cancel := context.WithCancel(t.Context())
		set, err := lock.Presences(ctx, client, "web/")
		must(t, err)
		is := func(want, changes string) {
			t.Helper()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if got := keys(set); got != want {
				t.Errorf("the set: %q, want %q", got, want)
			}
			if changes == "" {
				return
			}
			got, err := set.Next(t.Context())
			if err != nil || texts(got) != changes {
				t.Errorf("changes: %q, want %q: %v", texts(got), changes, err)
			}
		}
		is("web/a=1", "joined web/a")
		b := w.announce("web/b", "2")
		is("web/a=1 web/b=2", "joined web/b")
		must(t, end(a))
		is("web/b=2", "left web/a")
		w.Set(locktest.Cut)
		c := w.announce("web/c", "3")
		must(t, end(b))
		is("web/b=2", "") // it is cut off
		w.Set(locktest.Open)
		is("web/c=3", "left web/b, joined web/c")
		w.restart(2 * time.Second)
		d := w.announce("web/d", "4")
		is("web/c=3 web/d=4", "joined web/d")
		waiting, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if got, err := set.Next(waiting); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", got, err)
		}
		cancel()
		<-set.Done()
		if err := set.Err(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := set.Next(t.Context()); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := lock.Presences(t.Context(), client, "\xff"); err == nil {
			t.Error("a prefix that is not UTF-8")
		}
		must(t, errors.Join(end(c), end(d), end(other), client.Close()))
		if _, err := lock.Presences(t.Context(), client, "web/"); !errors.Is(err, lock.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestClosedWhileFollowed: a set of presences and the observer of an election end with ErrClosed when their client is closed.
func TestClosedWhileFollowed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := w.client()
		set, err := lock.Presences(t.Context(), client, "web/")
		must(t, err)
		observed := make(chan error, 1)
		go func() {
			var last error
			for _, err := range lock.NewElection(client, "lead").Observe(t.Context()) {
				last = err
			}
			observed <- last
		}()
		time.Sleep(time.Second)
		must(t, client.Close())
		_, err = set.Next(t.Context())
		for of, err := range map[string]error{"presences": err, "election": <-observed} {
			if !errors.Is(err, lock.ErrClosed) {
				t.Errorf("%s: %v", of, err)
			}
		}
	})
}

// TestPresenceBecomesLock: a presence that its owner makes a lock has left, and comes back as a presence.
func TestPresenceBecomesLock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		announce := func(kind models.TypeCode) {
			resource := &models.Resource{Key: "web/a", Owner: "o", Value: "1", TypeCode: kind}
			_, err := w.own().Lock(t.Context(), &models.LockRequest{Resource: resource, TtlInSeconds: 60})
			must(t, err)
			time.Sleep(3 * time.Second)
		}
		announce(models.TypeCode_PRESENCE)
		set, err := lock.Presences(t.Context(), w.client(), "web/")
		must(t, err)
		for _, want := range []string{"web/a=1", "", "web/a=1"} {
			if got := keys(set); got != want {
				t.Errorf("the set: %q, want %q", got, want)
			}
			kind := models.TypeCode_LOCK
			if want == "" {
				kind = models.TypeCode_PRESENCE
			}
			announce(kind)
		}
	})
}

// states notes the addresses that a resolver reports.
type states struct {
	diary
}

func (s *states) UpdateState(state resolver.State) error {
	var all []string
	for _, e := range state.Endpoints {
		all = append(all, e.Addresses[0].Addr)
	}
	s.note("%s", strings.Join(all, "+"))
	return nil
}

func (s *states) ReportError(error)                                    { s.note("error") }
func (s *states) NewAddress([]resolver.Address)                        {}
func (s *states) ParseServiceConfig(string) *serviceconfig.ParseResult { return nil }

// TestResolver: the resolver reports each address once, as presences come and go.
func TestResolver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.announce("web/a", "127.0.0.1:1")
		twin := w.announce("web/b", "127.0.0.1:1")
		nothing := w.announce("web/c", "")
		var heard states
		var target resolver.Target
		target.URL.Scheme, target.URL.Path = "locket", "/web/"
		r, err := discovery.NewResolver(w.client()).Build(target, &heard, resolver.BuildOptions{})
		must(t, err)
		time.Sleep(3 * time.Second)
		d := w.announce("web/d", "127.0.0.1:2")
		time.Sleep(3 * time.Second)
		must(t, end(d))
		time.Sleep(3 * time.Second)
		r.ResolveNow(resolver.ResolveNowOptions{})
		r.Close()
		told := heard.String()
		told = strings.TrimPrefix(told, "127.0.0.1:1, ")
		if told != "127.0.0.1:1, 127.0.0.1:1+127.0.0.1:2, 127.0.0.1:1" && told != "127.0.0.1:1+127.0.0.1:2, 127.0.0.1:1" {
			t.Errorf("reported: %s", told)
		}
		must(t, errors.Join(end(a), end(twin), end(nothing)))
	})
}
