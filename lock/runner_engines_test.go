package lock_test

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
)

// engine makes runners of one way to hold, over the network of a world.
type engine struct {
	*world
	// lock, presence and claim make runners of "k", and of any resource. presence is nil for claims by calls.
	lock, presence func(owner string, options ...lock.Option) *lock.Runner
	claim          func(key, owner string, options ...lock.Option) *lock.Runner
	// queues is set if the lock is granted in the order of the queue.
	queues bool
}

// engines are the ways of holding: by calls of Lock, by calls of claims, and by a session.
var engines = map[string]func(w *world) engine{
	"locks": func(w *world) engine {
		claim := func(key, owner string, options ...lock.Option) *lock.Runner {
			return lock.NewLockRunner(w.rpc(), resource(key, owner), ttl, retry, options...)
		}
		presence := func(owner string, options ...lock.Option) *lock.Runner {
			return lock.NewPresenceRunner(w.rpc(), resource("k", owner), ttl, retry, options...)
		}
		return engine{w, of("k", claim), presence, claim, false}
	},
	"claims": func(w *world) engine {
		claim := func(key, owner string, options ...lock.Option) *lock.Runner {
			return lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: key, Owner: owner, Ttl: proto.Float64(ttl.Seconds())}, options...)
		}
		return engine{w, of("k", claim), nil, claim, true}
	},
	"session": func(w *world) engine {
		client := w.client(lock.WithTTL(ttl))
		claim := func(key, owner string, options ...lock.Option) *lock.Runner {
			return lock.NewSessionRunner(client, key, by(client, owner, options)...)
		}
		presence := func(owner string, options ...lock.Option) *lock.Runner {
			return lock.NewSessionPresenceRunner(client, "k", "of "+owner, by(client, owner, options)...)
		}
		return engine{w, of("k", claim), presence, claim, true}
	},
}

// by returns the options of a runner of a session; an empty owner means the client's.
func by(client *lock.Client, owner string, options []lock.Option) []lock.SessionRunnerOption {
	all := []lock.SessionRunnerOption{lock.WithOwner(cmp.Or(owner, client.Owner()))}
	for _, option := range options {
		all = append(all, option)
	}
	return all
}

// of binds claim to one resource.
func of(key string, claim func(key, owner string, options ...lock.Option) *lock.Runner) func(owner string, options ...lock.Option) *lock.Runner {
	return func(owner string, options ...lock.Option) *lock.Runner { return claim(key, owner, options...) }
}

// onEngines runs a test with runners that hold in each way.
func onEngines(t *testing.T, test func(t *testing.T, e engine)) {
	t.Helper()
	for name, newEngine := range engines {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) { test(t, newEngine(w)) })
		})
	}
}

// TestRunnerHolds: ready means held, for as long as the runner runs, and not a moment longer.
func TestRunnerHolds(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		var d diary
		r := e.lock("a", d.callbacks())
		p := ifrit.Invoke(r)
		for range 20 {
			time.Sleep(ttl / 4)
			token, held := r.Held()
			if owner, granted := e.holder("k"); !held || owner != "a" || r.Owner() != "a" || granted != token || token == 0 {
				t.Fatalf("held %t with %d; the server: %q with %d", held, token, owner, granted)
			}
		}
		must(t, end(p))
		e.holds("", "k")
		if _, held := r.Held(); held {
			t.Error("after its end it is within its trust window")
		}
		d.says(t, "acquired")
	})
}

// TestRunnerTakeOver: after a signal to the first runner the second one holds within a retry interval, with a greater token. It is not
// ready before. This also applies to runners without an owner of their own.
func TestRunnerTakeOver(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		for _, owners := range [][2]string{{"a", "b"}, {"", ""}} {
			first, second := e.lock(owners[0]), e.lock(owners[1])
			p, q := ifrit.Invoke(first), ifrit.Background(second)
			time.Sleep(time.Minute)
			if isReady(q) {
				t.Fatal("the second is ready while the first holds")
			}
			before, _ := first.Held()
			begin := time.Now()
			must(t, end(p))
			<-q.Ready()
			if took := time.Since(begin); took > retry {
				t.Errorf("it took %s", took)
			}
			after, held := second.Held()
			if shared := owners[0] == "" && first.Owner() == second.Owner(); !held || after < before || after == before && !shared {
				t.Errorf("held %t, token %d after %d", held, after, before)
			}
			must(t, end(q))
		}
	})
}

// TestRunnerOutage: the lock is kept over an outage that leaves time for another renewal. In a longer outage the trust window ends
// before the lease does on the server.
func TestRunnerOutage(t *testing.T) {
	for outage, want := range map[time.Duration]string{
		5 * time.Second:  "acquired",
		60 * time.Second: "acquired, unverifiable, lost",
	} {
		for state, kind := range map[locktest.State]string{locktest.Silent: "silent", locktest.Cut: "cut"} {
			t.Run(fmt.Sprint(outage, " ", kind), func(t *testing.T) {
				onEngines(t, func(t *testing.T, e engine) {
					var d diary
					r := e.lock("a", d.callbacks())
					p := ifrit.Invoke(r)
					time.Sleep(2 * ttl)
					e.Set(state)
					begin := time.Now()
					for time.Since(begin) < outage {
						time.Sleep(250 * time.Millisecond)
						synctest.Wait()
						if _, held := r.Held(); held {
							if owner, _ := e.holder("k"); owner != "a" {
								t.Fatalf("after %s it is within its trust window, and %q holds", time.Since(begin), owner)
							}
						}
					}
					e.Set(locktest.Open)
					time.Sleep(ttl)
					if told := d.String(); outage > ttl && told != want || outage < ttl && told != want && told != want+", unverifiable, verified" {
						t.Errorf("the callbacks: %s", told)
					}
					if gone, err := exited(p); gone != (outage > ttl) || gone && (!errors.Is(err, lock.ErrLost) || !errors.Is(err, lock.ErrTimeUp)) {
						t.Errorf("ended: %t, %v", gone, err)
					}
					_ = end(p)
				})
			})
		}
	}
}

// TestRunnersSayFirst: when no server can be reached, each runner calls Unverifiable before Lost, whenever it was started.
func TestRunnersSayFirst(t *testing.T) { runnersSayFirst(t, 40) }

func runnersSayFirst(t *testing.T, count int) {
	t.Helper()
	onEngines(t, func(t *testing.T, e engine) {
		diaries, processes := make([]diary, count), make([]ifrit.Process, count)
		for i := range processes {
			processes[i] = ifrit.Invoke(e.claim(fmt.Sprint(i), "a", diaries[i].callbacks()))
			time.Sleep(2 * retry / time.Duration(count))
		}
		e.Set(locktest.Cut)
		for i, p := range processes {
			if err := <-p.Wait(); !errors.Is(err, lock.ErrTimeUp) {
				t.Error(err)
			}
			diaries[i].says(t, "acquired, unverifiable, lost")
		}
		e.Set(locktest.Open)
	})
}

// TestRunnerServerRestart: the lock is kept over a restart of the server that is shorter than the lease, and a waiter keeps its place in
// the queue.
func TestRunnerServerRestart(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		var d diary
		r := e.lock("a", d.callbacks())
		p, q := ifrit.Invoke(r), ifrit.Background(e.lock("b"))
		time.Sleep(time.Minute)
		before, _ := r.Held()
		e.restart(5 * time.Second)
		time.Sleep(time.Minute)
		if after, held := r.Held(); !held || after != before {
			t.Errorf("held %t, token %d after %d; %s", held, after, before, d.String())
		}
		late := ifrit.Background(e.lock("c"))
		time.Sleep(time.Second)
		must(t, end(p))
		if e.queues {
			<-q.Ready()
		}
		must(t, errors.Join(end(late), end(q)))
	})
}

// TestRunnerRevoked: a revoked claim is lost by the next renewal at the latest.
func TestRunnerRevoked(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		var d diary
		p := ifrit.Invoke(e.claim("k", "a", d.callbacks()))
		e.revoke(e.holding("k")[0].GetId(), "a test")
		begin := time.Now()
		err := <-p.Wait()
		if took := time.Since(begin); !errors.Is(err, lock.ErrLost) || took > ttl/3 {
			t.Errorf("after %s: %v", took, err)
		}
		t.Logf("after %v: %v", time.Since(begin), err)
		d.says(t, "acquired, lost")
		e.holds("", "k")
	})
}

// TestRunnerPresence: a presence that is lost is announced again, under a new token.
func TestRunnerPresence(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		if e.presence == nil {
			return
		}
		var d diary
		r := e.presence("a", d.callbacks())
		p := ifrit.Invoke(r)
		before, _ := r.Held()
		e.revoke(e.holding("k")[0].GetId(), "a test")
		time.Sleep(ttl)
		if after, held := r.Held(); !held || after <= before {
			t.Errorf("held %t, token %d after %d", held, after, before)
		}
		e.Set(locktest.Cut)
		time.Sleep(time.Minute)
		e.Set(locktest.Open)
		time.Sleep(ttl + retry)
		d.says(t, "acquired, lost, acquired, unverifiable, lost, acquired")
		list, err := e.own().FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: models.TypeCode_PRESENCE})
		must(t, err)
		if len(list.GetResources()) != 1 || list.GetResources()[0].GetValue() != "of a" {
			t.Errorf("the presences: %v", list)
		}
		must(t, end(p))
	})
}

// TestRunnerSignal: a signal ends a runner in bounded time, while it waits and while it cannot reach a server, and its lock is
// released.
func TestRunnerSignal(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		holder := ifrit.Invoke(e.lock("a"))
		waiter := ifrit.Background(e.lock("b"))
		time.Sleep(time.Second)
		must(t, end(waiter))
		must(t, end(holder))
		e.holds("", "k")
		e.Set(locktest.Silent)
		p := ifrit.Background(e.lock("a"))
		synctest.Wait()
		begin := time.Now()
		must(t, end(p))
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		e.Set(locktest.Open)
		time.Sleep(2 * ttl)
		e.holds("", "k")
	})
}

// TestRunnerObserved: Waiting is called while others come first. Renewed is called before Acquired and for each renewal, with the time
// when it was sent and its duration, before the lease before it ends.
func TestRunnerObserved(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		holder := ifrit.Invoke(e.lock("a"))
		d := new(diary)
		var until time.Time
		waiter := ifrit.Background(e.lock("b", lock.WithCallbacks(lock.Callbacks{
			Waiting:  func(string) { d.note("waiting") },
			Acquired: func(uint64) { d.note("acquired") },
			Renewed: func(sent time.Time, lasts time.Duration) {
				if now := time.Now(); sent.After(now) || lasts > ttl || !sent.Add(lasts).After(now) || !until.IsZero() && (now.After(until) || sent.Add(lasts).Before(until)) {
					t.Errorf("renewed at %s, for %s, after %s", sent, lasts, until)
				}
				until = sent.Add(lasts)
				d.note("renewed")
			},
		})))
		time.Sleep(time.Second)
		if got := d.String(); got != "waiting" {
			t.Errorf("it waits: %q", got)
		}
		must(t, end(holder))
		<-waiter.Ready()
		time.Sleep(3 * ttl)
		must(t, end(waiter))
		if got := d.String(); !regexp.MustCompile(`^waiting(, waiting)?, renewed, acquired(, renewed){6,}$`).MatchString(got) {
			t.Errorf("it told: %q", got)
		}
	})
}

// TestRunnerSignalAfterPause: the trust window ends while the process is paused, and no timer has run. A runner that gets a signal then
// returns ErrLost, and so does its Hold.
func TestRunnerSignalAfterPause(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		for range 8 {
			d := new(diary)
			r := e.lock("a", d.callbacks())
			p := ifrit.Invoke(r)
			held := lock.HoldOf(r)
			lock.StopClock(held)
			e.Set(locktest.Silent)
			time.Sleep(ttl)
			if err := end(p); !errors.Is(err, lock.ErrLost) || !errors.Is(held.Err(), lock.ErrLost) {
				t.Errorf("it ended with %v, and what it held with %v", err, held.Err())
			}
			if got := d.String(); !strings.HasSuffix(got, ", lost") {
				t.Errorf("the callbacks: %q", got)
			}
			e.Set(locktest.Open)
			time.Sleep(ttl)
		}
	})
}

// TestRunnersJoint: a Joint that loses one of its locks ends at once, and releases the others after the margin that
// leaves holders time to stop.
func TestRunnersJoint(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		j := lock.NewJoint(e.claim("x", "a"), e.claim("y", "a"), e.claim("z", "a"))
		p := ifrit.Invoke(j)
		if tokens, held := j.Held(); !held || len(tokens) != 3 {
			t.Errorf("%v, %t", tokens, held)
		}
		e.revoke(e.holding("y")[0].GetId(), "a test")
		if err := <-p.Wait(); !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		if _, held := j.Held(); held {
			t.Error("it is held")
		}
		<-j.Lost()
		e.holds("a", "x", "z")
		time.Sleep(ttl/20 + time.Millisecond)
		e.holds("", "x", "y", "z")
	})
}

// TestRunnersJointInPart: a Joint that loses a lock while it waits for another one ends, and releases all. The next run holds all.
func TestRunnersJointInPart(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		other := ifrit.Invoke(e.claim("z", "b"))
		j := lock.NewJoint(e.claim("x", "a"), e.claim("y", "a"), e.claim("z", "a"))
		p := ifrit.Background(j)
		time.Sleep(ttl / 4)
		e.revoke(e.holding("y")[0].GetId(), "a test")
		if err := <-p.Wait(); !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		must(t, end(other))
		time.Sleep(ttl)
		e.holds("", "x", "y", "z")
		p = ifrit.Invoke(j)
		if _, held := j.Held(); !held {
			t.Error("the next run does not hold")
		}
		must(t, end(p))
	})
}

// TestManyRunnersOneSession: the runners of a client share one session, and lose their locks together.
func TestManyRunnersOneSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := w.client(lock.WithTTL(ttl))
		runners := make([]*lock.Runner, 50)
		processes := make([]ifrit.Process, len(runners))
		for i := range runners {
			runners[i] = lock.NewSessionRunner(client, fmt.Sprint("k", i))
			processes[i] = ifrit.Invoke(runners[i])
		}
		list, err := w.own().ListSessions(t.Context(), &models.ListSessionsRequest{})
		must(t, err)
		if len(list.GetSessions()) != 1 || list.GetSessions()[0].GetHolding() != uint32(len(runners)) || list.GetSessions()[0].GetOwner() != runners[0].Owner() {
			t.Errorf("the sessions: %v", list)
		}
		time.Sleep(time.Minute)
		w.resetSessions()
		begin := time.Now()
		for _, p := range processes {
			if err := <-p.Wait(); !errors.Is(err, lock.ErrLost) {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v until all knew", took)
		}
		must(t, end(ifrit.Invoke(runners[0]))) // by a new session
	})
}
