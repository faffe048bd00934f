package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/lock/lockmetrics"
	"github.com/locket-service/locket/models"
)

// measured collects the metrics of a test.
type measured struct {
	t         *testing.T
	registry  *prometheus.Registry
	collector *lockmetrics.Collector
}

func measure(t *testing.T) *measured {
	m := &measured{t, prometheus.NewPedanticRegistry(), lockmetrics.New()}
	must(t, m.registry.Register(m.collector))
	return m
}

func (m *measured) option() lock.Option { return lock.WithObserver(m.collector.Observer()) }

// values returns the metrics when everything has settled: values, and counts of histograms, by their names without the common prefix.
func (m *measured) values() map[string]float64 {
	m.t.Helper()
	synctest.Wait()
	families, err := m.registry.Gather()
	must(m.t, err)
	values := make(map[string]float64)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "locket_client_")
			for _, label := range metric.GetLabel() {
				name += "/" + label.GetValue()
			}
			values[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// are fails the test unless these are the metrics that are not 0, except trust_left_seconds.
func (m *measured) are(want string) {
	m.t.Helper()
	var got []string
	for name, value := range m.values() {
		if value != 0 && name != "trust_left_seconds" {
			got = append(got, fmt.Sprintf("%s %v", name, value))
		}
	}
	slices.Sort(got)
	if all := strings.Join(got, ", "); all != want {
		m.t.Errorf("the metrics: %q, want %q", all, want)
	}
}

// TestMetricsOfHolds: waits and holds of a client, a mutex, an election and runners are counted as long as they last. The outcome of
// each wait is counted once.
func TestMetricsOfHolds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := measure(t)
		client := w.client(m.option(), lock.WithTTL(ttl))
		first, err := client.Acquire(t.Context(), "a")
		must(t, err)
		m.are("held 1, wait_seconds/held 1")
		if left := m.values()["trust_left_seconds"]; left <= 0 || left > ttl.Seconds() {
			t.Errorf("%v s of trust are left, of a TTL of %s", left, ttl)
		}
		if err := second(client.TryAcquire(t.Context(), "a")); !errors.Is(err, models.ErrLockCollision) {
			t.Errorf("the try: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := acquiring(ctx, client, "a")
		m.are("held 1, wait_seconds/collision 1, wait_seconds/held 1, waits 1")
		cancel()
		<-done
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = client.Acquire(short, "a")
		must(t, first.Release(t.Context()))
		m.are("wait_seconds/canceled 1, wait_seconds/collision 1, wait_seconds/held 1, wait_seconds/timeout 1")
		if _, trusted := m.values()["trust_left_seconds"]; trusted {
			t.Error("there is a trust window, and nothing is held")
		}

		m = measure(t)
		watched := w.client(m.option())
		session, err := watched.Session()
		must(t, err)
		mutex := lock.NewMutex(session, "m")
		must(t, mutex.Lock(t.Context()))
		leader, err := lock.NewElection(watched, "e").Campaign(t.Context(), "me")
		must(t, err)
		bySession := ifrit.Invoke(lock.NewSessionRunner(watched, "s"))
		byCalls := ifrit.Invoke(lock.NewLockRunner(w.rpc(), resource("l", "o"), ttl, retry, m.option()))
		m.are("held 4, wait_seconds/held 4")
		must(t, mutex.Unlock())
		must(t, leader.Release(t.Context()))
		must(t, errors.Join(end(bySession), end(byCalls)))
		m.are("wait_seconds/held 4")
	})
}

// TestMetricsOfSessionLocks: locks held by a session's commands are counted from the grant to the end, even if the
// grant comes later; losses by their reason; and a mutex of the session only once.
func TestMetricsOfSessionLocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := measure(t)
		client, other := w.client(m.option(), lock.WithTTL(ttl)), w.client()
		session, err := client.Session()
		must(t, err)
		theirs, err := other.Session()
		must(t, err)
		must(t, second(theirs.Lock(t.Context(), "theirs")))
		for _, name := range []string{"a", "a", "b", "theirs"} {
			must(t, second(session.Lock(t.Context(), name)))
		}
		_, _ = session.TryLock(t.Context(), "theirs")
		m.are("held 2")
		if left := m.values()["trust_left_seconds"]; left <= 0 || left > ttl.Seconds() {
			t.Errorf("%v s of trust are left, of a TTL of %s", left, ttl)
		}
		must(t, second(theirs.Unlock(t.Context(), "theirs")))
		m.are("held 3")
		mutex := lock.NewMutex(session, "m")
		must(t, mutex.Lock(t.Context()))
		m.are("held 4, wait_seconds/held 1")
		must(t, second(session.Unlock(t.Context(), "a")))
		must(t, second(session.Lock(t.Context(), "a")))
		must(t, second(w.own().EndClaim(t.Context(), &models.EndClaimRequest{Id: w.holding("b")[0].GetId()})))
		m.are("held 3, lost_total/released 1, wait_seconds/held 1") // the session has not released it
		must(t, session.UnlockAll(t.Context()))
		must(t, second(session.Lock(t.Context(), "c")))
		if got := m.values()["held"]; got != 1 {
			t.Errorf("after all are unlocked and one is locked, %v are held", got)
		}
		w.Set(locktest.Cut)
		time.Sleep(ttl)
		if got := m.values(); got["held"] != 0 || got["lost_total/expired"] != 1 {
			t.Errorf("after the trust window: %v", got)
		}
		w.Set(locktest.Open)
	})
}

// TestMetricsOfDeadlocks: a wait that is refused because of a deadlock is counted as a deadlock.
func TestMetricsOfDeadlocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := measure(t)
		client, other := w.client(m.option()), w.client()
		must(t, errors.Join(second(client.Acquire(t.Context(), "a")), second(other.Acquire(t.Context(), "b"))))
		ctx, cancel := context.WithCancel(t.Context())
		done := acquiring(ctx, other, "a")
		waits(t, done)
		err := second(client.Acquire(t.Context(), "b", lock.WithAllowDeadlock(false)))
		if models.ReasonOf(err) != models.ReasonDeadlock {
			t.Errorf("the deadlock: %v", err)
		}
		m.are("held 1, wait_seconds/deadlock 1, wait_seconds/held 1")
		cancel()
		<-done
	})
}

// TestMetricsOfLosses: each loss is counted once, by its reason.
func TestMetricsOfLosses(t *testing.T) {
	for reason, lose := range map[string]func(w *world, c *lock.Client){
		"released": func(w *world, _ *lock.Client) {
			must(w.t, second(w.own().EndClaim(w.t.Context(), &models.EndClaimRequest{Id: w.holding("a")[0].GetId()})))
		},
		"session_ended": func(w *world, _ *lock.Client) { // the server comes back with another database
			w.stop()
			w.folder = newFolder(w.t)
			w.start()
		},
		"revoked": func(w *world, c *lock.Client) {
			session, err := c.Session()
			must(w.t, err)
			must(w.t, second(w.own().EndSession(w.t.Context(), &models.EndSessionRequest{Id: session.ID()})))
		},
		"expired": func(w *world, _ *lock.Client) {
			w.Set(locktest.Cut)
			time.Sleep(ttl)
		},
		"closed": func(w *world, c *lock.Client) { must(w.t, c.Close()) },
	} {
		t.Run(reason, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				m := measure(t)
				client := w.client(m.option(), lock.WithTTL(ttl))
				must(t, second(client.Acquire(t.Context(), "a")))
				held, err := client.Acquire(t.Context(), "b")
				must(t, err)
				must(t, held.Release(t.Context()))
				lose(w, client)
				time.Sleep(ttl / 2)
				got := m.values()
				if got["lost_total/"+reason] != 1 || got["held"] != 0 {
					t.Errorf("after the loss: %v", got)
				}
				w.Set(locktest.Open)
			})
		})
	}
}

// TestMetricsOfRenewals: a resumed session is counted once, and so is each renewal that fails, of sessions and of runners by calls.
func TestMetricsOfRenewals(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sessions, calls := measure(t), measure(t)
		client := w.client(sessions.option(), lock.WithTTL(ttl))
		must(t, second(client.Acquire(t.Context(), "a")))
		w.Set(locktest.Cut)
		w.Set(locktest.Open)
		time.Sleep(ttl)
		if got := sessions.values(); got["session_reconnects_total"] != 1 || got["held"] != 1 {
			t.Errorf("after a stream has ended: %v", got)
		}
		before := sessions.values()["renewals_failed_total"]
		w.Set(locktest.Cut)
		time.Sleep(ttl / 3)
		w.Set(locktest.Open)
		if got := sessions.values(); got["renewals_failed_total"] <= before || got["held"] != 1 {
			t.Errorf("after no server could be reached: %v, and %v failures before", got, before)
		}
		runner := ifrit.Invoke(lock.NewLockRunner(w.rpc(), resource("l", "o"), ttl, retry, calls.option()))
		<-runner.Ready()
		failed := 0
		w.failing(func(context.Context, string) error {
			failed++
			return status.Error(codes.Unavailable, "not now")
		})
		time.Sleep(ttl * 2 / 3)
		w.failing(nil)
		if got := calls.values(); got["renewals_failed_total"] == 0 || got["renewals_failed_total"] != float64(failed) || got["held"] != 1 {
			t.Errorf("after %d renewals that failed: %v", failed, got)
		}
		must(t, end(runner))
	})
}
