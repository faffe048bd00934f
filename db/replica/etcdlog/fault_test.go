package etcdlog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// rank returns the members of a cluster: the leader first.
func rank(t *testing.T, e *fixtures.Etcd) []*fixtures.EtcdMember {
	t.Helper()
	l := open(t, quietly(e))
	var leads func(m *fixtures.EtcdMember) bool
	harness.Eventually(t, func() error {
		report, err := l.Check(t.Context())
		leads = func(m *fixtures.EtcdMember) bool {
			return slices.ContainsFunc(report.Members, func(r etcdlog.Member) bool { return r.Leads && r.Endpoint == m.Endpoint() })
		}
		if err == nil && !slices.ContainsFunc(e.Members, leads) {
			err = errors.New("etcd has no leader")
		}
		return err
	})
	members := slices.Clone(e.Members)
	slices.SortStableFunc(members, func(a, b *fixtures.EtcdMember) int {
		if leads(a) == leads(b) {
			return 0
		} else if leads(a) {
			return -1
		}
		return 1
	})
	return members
}

// first returns options whose first endpoint is a member's.
func first(o etcdlog.Options, m *fixtures.EtcdMember) etcdlog.Options {
	at := slices.Index(o.Endpoints, m.Endpoint())
	o.Endpoints = slices.Concat(o.Endpoints[at:], o.Endpoints[:at])
	return o
}

// writer appends one record after another until it is stopped. It notes how long the slowest append took.
type writer struct {
	log     *etcdlog.Log
	acked   chan uint64
	slowest time.Duration
	err     error
}

func (w *writer) run(ctx context.Context) {
	defer close(w.acked)
	for index := uint64(1); ctx.Err() == nil; index++ {
		begin := time.Now() // real time: it is printed
		if w.err = w.log.Append(ctx, 1, index, content(index)); w.err != nil {
			return
		}
		w.slowest = max(w.slowest, time.Since(begin)) // real time: it is printed
		select {
		case w.acked <- index:
		case <-ctx.Done():
			return
		}
	}
}

func content(index uint64) []byte { return fmt.Appendf(nil, "record %d", index) }

// reader follows the log until it has a record. Whenever Follow loses the log it calls it again.
type reader struct {
	log   *etcdlog.Log
	at    atomic.Uint64
	fails []error
}

func (r *reader) run(ctx context.Context, last uint64) error {
	enough := errors.New("enough")
	for {
		err := r.log.Follow(ctx, r.at.Load(), func(e order.Event) error {
			if e.Index == 0 {
				return nil
			}
			if e.Index != r.at.Load()+1 || string(e.Data) != string(content(e.Index)) {
				return fmt.Errorf("record %d after %d is %q", e.Index, r.at.Load(), e.Data)
			}
			r.at.Store(e.Index)
			if e.Index == last {
				return enough
			}
			return nil
		})
		switch {
		case errors.Is(err, enough):
			return nil
		case !errors.Is(err, order.ErrUnavailable) || ctx.Err() != nil:
			return err
		}
		r.fails = append(r.fails, err)
	}
}

// disturbance is a fault of a member, and its remedy.
type disturbance struct {
	name          string
	begin, remedy func(*fixtures.EtcdMember) error
}

var disturbances = []disturbance{
	{"kill -9", (*fixtures.EtcdMember).Kill, (*fixtures.EtcdMember).Start},
	{"SIGSTOP", (*fixtures.EtcdMember).Pause, (*fixtures.EtcdMember).Resume},
}

// While a member is killed or paused, the writer and the reader that use it go on: nothing acknowledged is lost, nothing
// is there twice, and there is no gap.
func TestMemberFaults(t *testing.T) {
	e := cluster(t, triple37)
	for _, d := range disturbances {
		t.Run(d.name+" of the leader", func(t *testing.T) { disturb(t, e, d, rank(t, e)[0]) })
	}
}

func disturb(t *testing.T, e *fixtures.Etcd, d disturbance, victim *fixtures.EtcdMember) {
	const each = 30
	o := first(quietly(e), victim)
	w := &writer{log: open(t, o), acked: make(chan uint64)}
	if err := w.log.Raise(t.Context(), 0, 0, []byte("a")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	t.Cleanup(func() { _ = d.remedy(victim) })
	r, read := &reader{log: open(t, o)}, make(chan error, 1)
	var group sync.WaitGroup
	group.Go(func() { w.run(ctx) })
	group.Go(func() { read <- r.run(ctx, 3*each) })
	for index := range w.acked {
		var err error
		switch index {
		case each:
			err = d.begin(victim)
		case 2 * each: // the reader does without the victim
			harness.Until(t, "the reader has all records", func() bool { return r.at.Load() >= index })
			err = d.remedy(victim)
		case 3 * each:
			if err := harness.Await(t, "the reader", read); err != nil {
				t.Errorf("the reader: %v", err)
			}
			cancel()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	group.Wait()
	if ctx.Err() == nil || w.err != nil && !errors.Is(w.err, context.Canceled) {
		t.Errorf("the writer: %v", w.err)
	}
	t.Logf("the slowest append took %v; the reader lost the log: %v", w.slowest.Round(time.Millisecond), r.fails)
	for _, err := range r.fails { // gRPC would notice a pause, too, but only after 12 s
		if d.name == "SIGSTOP" && !strings.Contains(err.Error(), "the watch misses changes") {
			t.Errorf("the reader lost the log: %v", err)
		}
	}
	again := &reader{log: open(t, o)}
	if err := again.run(t.Context(), 3*each); err != nil {
		t.Errorf("read again: %v", err)
	}
}

// After a fault of another member, requests go to the member that leads: others would pass them on to it.
func TestLeaderAfterFault(t *testing.T) {
	e := cluster(t, triple37)
	members := rank(t, e)
	leader, victim, other := members[0], members[1], members[2]
	var said fixtures.Buffer
	o := quietly(e)
	o.Endpoints = []string{victim.Endpoint(), other.Endpoint(), leader.Endpoint()}
	o.Log = slog.New(slog.NewTextHandler(&said, nil))
	l := open(t, o)
	must(t, victim.Kill())
	t.Cleanup(func() { _ = victim.Start() })
	must(t, l.Raise(t.Context(), 0, 0, []byte("a")))
	harness.Until(t, "request to the leader", func() bool { return strings.Contains(said.String(), "now="+leader.Endpoint()) })
}

// A leader that has just failed is not used again at once: it may lead and be slow.
func TestLeaderThatFailed(t *testing.T) {
	const leader, first, second = 0, 1, 2
	members := rank(t, cluster(t, triple37))
	o := quietly(cluster(t, triple37))
	o.Endpoints = []string{members[leader].Endpoint(), members[first].Endpoint(), members[second].Endpoint()}
	l := open(t, o)
	if used := l.UseLeader(leader, first); used != o.Endpoints[first] {
		t.Errorf("after a failure of the leader %s is used, want %s", used, o.Endpoints[first])
	}
	if used := l.UseLeader(second, first); used != o.Endpoints[leader] {
		t.Errorf("after a failure of another member %s is used, want %s", used, o.Endpoints[leader])
	}
}
