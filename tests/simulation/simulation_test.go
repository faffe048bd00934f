package simulation_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

var (
	seedFlag = flag.Int64("seed", -1, "simulate this seed only, and print what happens")
	again    = flag.Int("again", 1, "how often to simulate the seed of -seed")
)

// TestSimulation simulates clusters of servers: see the package. TestSoakSimulation has more of them, and must reach all conditions.
func TestSimulation(t *testing.T) {
	r := &reached{times: make(map[string]int)}
	if *seedFlag >= 0 {
		for range *again {
			simulate(t, uint64(*seedFlag), r)
		}
	} else {
		simulateMany(t, 0, seeds, r)
	}
	t.Logf("what happened, and how often:\n%s", r)
}

// simulateMany simulates seeds until one fails.
func simulateMany(t *testing.T, from, to uint64, r *reached) {
	t.Helper()
	for seed := from; seed < to && !t.Failed(); seed++ {
		simulate(t, seed, r)
	}
}

// simulate simulates one seed.
func simulate(t *testing.T, seed uint64, r *reached) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed, r)
		defer w.print()
		w.run()
	})
}

// print prints what happened, if the seed was given or has failed.
func (w *world) print() {
	if w.Failed() {
		w.Logf("seed %d failed; go test -race ./tests/simulation -run '^TestSimulation$' -seed %d -count 1 -v\n%s", w.seed, w.seed, &w.trace)
	} else if *seedFlag >= 0 {
		w.Logf("%s", &w.trace)
	}
}

// run lets clients use the servers, with faults, then without, and checks all that they were told.
func (w *world) run() {
	watching, stopWatching := context.WithCancel(w.Context())
	defer w.close()
	defer w.watches.Wait()
	defer stopWatching()
	w.watches.Go(func() { w.observe(watching) })
	for _, s := range w.servers {
		go s.live()
	}
	w.serve(10 * time.Second)
	w.Busy()
	w.begin(watching)
	w.disturb()
	w.heal()
	w.trace.note("world", "all faults are over")
	w.serve(40 * time.Second)
	w.stop()
	w.clients.Wait()
	w.trace.note("world", "the clients have stopped")
	stored := w.settle()
	if err := w.CheckWatches(stored); err != nil {
		w.Error(err)
	}
	stopWatching()
	w.watches.Wait()
	if err := w.Check(stored); err != nil {
		w.Error(err)
	}
	for _, conflict := range w.held.conflicts() {
		w.Error(conflict)
	}
	w.count(stored)
}

// close ends all servers.
func (w *world) close() {
	for _, s := range w.servers {
		s.set(false, true)
		if r := s.current(); r != nil {
			r.vanish(false)
		}
	}
	for _, s := range w.servers {
		<-s.ended
	}
}

// begin starts the clients.
func (w *world) begin(watching context.Context) {
	l := w.client("lock", 0)
	w.clients.Go(func() { l.repeat(l.lock) })
	for n := range 2 {
		c, s, h, k := w.client("claim", n), w.client("session", n), w.client("runner", n), w.client("keychain", n)
		w.clients.Go(func() { c.repeat(c.claim) })
		w.clients.Go(func() { s.repeat(s.session) })
		w.clients.Go(func() { h.repeat(h.hold) })
		w.clients.Go(func() { k.repeat(k.keep) })
	}
	r := w.client("rest", 0).web()
	w.clients.Go(func() { r.repeat(r.rest) })
	moving, staying, events := w.client("watch", 0), w.client("watch", 1), w.client("watch", 2).web()
	w.watches.Go(func() { moving.watch(watching) })
	w.watches.Go(func() { staying.stay(watching) })
	w.watches.Go(func() { events.events(watching) })
}

// serve fails the test unless every server carries out a request within a time.
func (w *world) serve(within time.Duration) {
	end := time.Now().Add(within)
	for _, s := range w.servers {
		at := models.NewLocketClient(w.Over(&connection{w, "world", new(network), s}))
		for {
			w.probes++
			id := fmt.Sprint("probe-", w.probes)
			_, err := at.CreateClaim(w.Context(), &models.CreateClaimRequest{Id: id, Resource: id, Owner: id, Ttl: proto.Float64(0.1)})
			if err == nil {
				break
			}
			if time.Now().After(end) {
				w.Fatalf("%s does not serve %s after the start, or after all faults: %v", s.name, within, err)
			}
			sleep(w.Context(), 100*time.Millisecond)
		}
	}
}

// settle waits until nothing is live and all servers have the same claims, and returns these.
func (w *world) settle() (stored []claim.Claim) {
	end := time.Now().Add(2 * time.Minute)
	for {
		var err error
		if stored, err = w.same(); err == nil {
			sleep(w.Context(), time.Second) // for the watches
			return stored
		}
		if time.Now().After(end) {
			w.Fatalf("two minutes after the clients have stopped: %v", err)
		}
		sleep(w.Context(), time.Second)
	}
}

// same returns the claims of all servers if these are the same, and have ended.
func (w *world) same() (stored []claim.Claim, err error) {
	for i, s := range w.servers {
		r := s.current()
		if r == nil {
			return nil, fmt.Errorf("%s is stopped", s.name)
		}
		all, _, err := r.store.List(w.Context(), db.Filter{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		for _, c := range all {
			if c.Status.Live() {
				return nil, fmt.Errorf("claim %s is %v", c.ID, c.Status)
			}
		}
		if i > 0 && !reflect.DeepEqual(all, stored) {
			return nil, errors.Join(fmt.Errorf("%s and %s have different claims", w.servers[0].name, s.name), differ(stored, all))
		}
		stored = all
	}
	return stored, nil
}

// differ returns the first difference between two lists.
func differ(a, b []claim.Claim) error {
	for i := range min(len(a), len(b)) {
		if !reflect.DeepEqual(a[i], b[i]) {
			return fmt.Errorf("%+v\n%+v", a[i], b[i])
		}
	}
	return fmt.Errorf("there are %d and %d claims", len(a), len(b))
}
