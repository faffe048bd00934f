//go:build soak

package etcdlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// rival raises the epoch now and then, and appends records while it decides. A record names its epoch.
type rival struct {
	log     *etcdlog.Log
	name    int
	mu      *sync.Mutex
	acked   map[uint64]string // by index, of all rivals
	raised  int
	unknown int
	slowest time.Duration
}

func (r *rival) run(ctx context.Context) error {
	at, epoch := uint64(0), uint64(0)
	enough := errors.New("enough")
	for ctx.Err() == nil {
		// Catch up with the log.
		last, err := r.log.Last(ctx, at)
		if err == nil {
			err = r.log.Follow(ctx, at, func(e order.Event) error {
				switch {
				case e.Epoch != nil:
					epoch = e.Epoch.Number
				case e.Index > 0:
					at = e.Index
				}
				if at >= last {
					return enough
				}
				return nil
			})
		}
		if errors.Is(err, enough) {
			err = r.log.Raise(ctx, epoch, at, fmt.Appendf(nil, "%d", r.name))
		}
		if err == nil {
			r.raised++
			err = r.decide(ctx, epoch+1, at)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, order.ErrDeposed) && !errors.Is(err, order.ErrUnavailable) {
			return err
		}
	}
	return nil
}

// decide appends up to 100 records, each within a second as a decider does.
func (r *rival) decide(ctx context.Context, epoch, at uint64) error {
	for range rand.IntN(100) {
		at++
		text := fmt.Sprintf("%d of %d in %d", at, r.name, epoch)
		limited, cancel := context.WithTimeout(ctx, time.Second)
		begin := time.Now() // real time: it is printed
		err := r.log.Append(limited, epoch, at, []byte(text))
		cancel()
		r.slowest = max(r.slowest, time.Since(begin)) // real time: it is printed
		if err != nil {
			if errors.Is(err, order.ErrUnavailable) {
				r.unknown++
			}
			return err
		}
		r.mu.Lock()
		other, twice := r.acked[at]
		r.acked[at] = text
		r.mu.Unlock()
		if twice {
			return fmt.Errorf("record %d was acknowledged as %q and as %q", at, other, text)
		}
	}
	return nil
}

// TestSoakMemberFaults: rivals append while random members are killed and paused, at most one at a time. Each acknowledged
// record is in the log, at its index, and epochs only rise in it.
func TestSoakMemberFaults(t *testing.T) {
	for _, version := range []string{fixtures.Etcd34, fixtures.Etcd37} {
		t.Run(version, func(t *testing.T) { soak(t, fixtures.NewEtcd(t, version, 3)) })
	}
}

// TestSoakFollowerFaults is TestMemberFaults for members that do not lead.
func TestSoakFollowerFaults(t *testing.T) {
	e := cluster(t, triple37)
	for _, d := range disturbances {
		t.Run(d.name, func(t *testing.T) { disturb(t, e, d, rank(t, e)[1]) })
	}
}

func soak(t *testing.T, e *fixtures.Etcd) {
	const faults = 20
	o := quietly(e)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		mu     sync.Mutex
		group  sync.WaitGroup
		rivals []*rival
		acked  = map[uint64]string{}
	)
	for i := range 3 {
		r := &rival{log: open(t, first(o, e.Members[i])), name: i, mu: &mu, acked: acked}
		rivals = append(rivals, r)
		group.Go(func() {
			if err := r.run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	more := func() {
		mu.Lock()
		before := len(acked)
		mu.Unlock()
		harness.Until(t, "more records are appended", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(acked) > before+50
		})
	}
	for range faults {
		victim, d := e.Members[rand.IntN(3)], disturbances[rand.IntN(2)]
		more()
		must(t, d.begin(victim))
		more()
		must(t, d.remedy(victim))
	}
	cancel()
	group.Wait()
	for i, r := range rivals {
		t.Logf("rival %d raised the epoch %d times; %d outcomes unknown; slowest append %v", i, r.raised, r.unknown, r.slowest.Round(time.Millisecond))
	}
	examine(t, open(t, o), acked)
}

// examine reads the whole log.
func examine(t *testing.T, l *etcdlog.Log, acked map[uint64]string) {
	t.Helper()
	last, err := l.Last(t.Context(), 0)
	must(t, err)
	at, epoch, enough := uint64(0), uint64(0), errors.New("enough")
	err = l.Follow(t.Context(), 0, func(e order.Event) error {
		if e.Index == 0 {
			return nil
		}
		var index, in uint64
		var by int
		if _, err := fmt.Sscanf(string(e.Data), "%d of %d in %d", &index, &by, &in); err != nil || index != e.Index || e.Index != at+1 || in < epoch {
			t.Errorf("record %d, after %d of epoch %d, is %q", e.Index, at, epoch, e.Data)
		}
		at, epoch = e.Index, in
		if text, ok := acked[at]; ok && text != string(e.Data) {
			t.Errorf("record %d is %q; acknowledged was %q", at, e.Data, text)
		}
		delete(acked, at)
		if at == last {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || len(acked) > 0 {
		t.Errorf("%v; %d acknowledged records are not in the log", err, len(acked))
	}
	t.Logf("%d records in the log, up to epoch %d", last, epoch)
}

// TestSoakCatchUp reads 100,000 records.
func TestSoakCatchUp(t *testing.T) {
	l := open(t, quietly(cluster(t, triple37)))
	fill(t, l, 1, 100_000)
	begin, enough := time.Now(), errors.New("enough") // real time: it is printed
	err := l.Follow(t.Context(), 0, func(e order.Event) error {
		if e.Index == 100_000 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	t.Logf("read in %v", time.Since(begin).Round(time.Millisecond)) // real time: it is printed
	begin = time.Now()                                              // real time: it is printed
	must(t, l.Trim(t.Context(), 100_000))
	t.Logf("trimmed in %v", time.Since(begin).Round(time.Millisecond)) // real time: it is printed
}

// TestSoakIdleFollow: a watch that misses nothing goes on, with and without others' changes, and with a slow reader.
func TestSoakIdleFollow(t *testing.T) {
	l := open(t, quietly(cluster(t, triple37)))
	fill(t, l, 1, 1)
	for name, wait := range map[string]time.Duration{"idle": 0, "slow": 3 * time.Second} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err := l.Follow(ctx, 0, func(e order.Event) error {
			time.Sleep(wait) // real time: a reader that hangs
			return nil
		})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
