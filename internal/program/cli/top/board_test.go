package top

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var wireModes = map[claim.Units]models.Mode{claim.Exclusive: models.Mode_MODE_EXCLUSIVE, claim.Shared: models.Mode_MODE_SHARED}

func wireClaim(c *claim.Claim) *models.Claim {
	return &models.Claim{Id: c.ID, Resource: c.Resource, Owner: c.Owner, Mode: wireModes[c.Units], Status: models.Status(c.Status), Version: c.Version}
}

func wireTransition(t claim.Transition) *models.Transition {
	wire := &models.Transition{Claim: wireClaim(t.After)}
	if t.Before != nil {
		wire.Before = models.Status(t.Before.Status)
	}
	return wire
}

// world is the true state, by the rules, and the board.
type world struct {
	t       *rapid.T
	queues  *claim.Queues
	names   []string
	ids     []string
	sent    int // of the queues' transitions
	commits [][]claim.Transition
	board   *board
	now     time.Time
}

// commit carries out a few commands together.
func (w *world) commit() {
	w.queues.Now.Wall += claim.Time(rapid.IntRange(0, 2).Draw(w.t, "pause"))
	w.queues.Now.Lease = w.queues.Now.Wall
	for range rapid.IntRange(1, 4).Draw(w.t, "commands") {
		if len(w.ids) > 0 && rapid.Bool().Draw(w.t, "end") {
			_, _ = w.queues.Do(claim.End{ID: rapid.SampledFrom(w.ids).Draw(w.t, "id")})
			continue
		}
		id := fmt.Sprintf("c%d", len(w.ids))
		w.ids = append(w.ids, id)
		_, _ = w.queues.Do(claim.Create{
			ID: id, Owner: id, Resource: rapid.SampledFrom(w.names).Draw(w.t, "resource"), TTL: time.Hour,
			Units: rapid.SampledFrom([]claim.Units{claim.Exclusive, claim.Exclusive, claim.Shared}).Draw(w.t, "mode"),
		})
	}
	all := w.queues.Transitions()
	if net := claim.Net(all[w.sent:]); len(net) > 0 {
		w.commits = append(w.commits, net)
	}
	w.sent = len(all)
}

// list returns the answer to a list, at most so many resources.
func (w *world) list(limit int) (list []*models.ResourceInfo, more bool) {
	for _, name := range w.names {
		info := w.info(name)
		switch {
		case info == nil:
		case len(list) == limit:
			return list, true
		default:
			list = append(list, info)
		}
	}
	return list, false
}

// info describes a resource that is not free.
func (w *world) info(name string) *models.ResourceInfo {
	q := w.queues.Resource(name)
	if q.Free() {
		return nil
	}
	info := &models.ResourceInfo{Resource: name, Version: q.Version, Holding: uint32(max(q.Shared, 1)), Waiting: uint32(q.Waiting)}
	for _, id := range w.ids {
		if c := q.Find(id); c != nil && c.Status == claim.Active && info.GetHolder() == nil {
			info.Holder = wireClaim(c)
		}
	}
	return info
}

// deliver has the board hear of a commit.
func (w *world) deliver() {
	w.now = w.now.Add(time.Millisecond)
	for _, t := range rapid.Permutation(w.commits[0]).Draw(w.t, "order") {
		w.board.apply(wireTransition(t), w.now)
	}
	w.commits = w.commits[1:]
}

// check compares all that the board knows with the rules' state.
func (w *world) check() {
	for _, name := range w.names {
		want, got := w.info(name), w.board.resources[name]
		switch {
		case got == nil && w.board.whole && want != nil:
			w.t.Fatalf("%s is not there: %v", name, want)
		case got == nil, got.Waiting == unknown:
		case got.Waiting != int(want.GetWaiting()) || got.Holding != int(want.GetHolding()):
			w.t.Fatalf("%s: %d hold and %d wait, want %v", name, got.Holding, got.Waiting, want)
		case w.queues.Resource(name).Holder != "" && got.Holder.GetId() != w.queues.Resource(name).Holder:
			w.t.Fatalf("%s is held by %s, not by %v", name, w.queues.Resource(name).Holder, got.Holder)
		case got.Holder != nil && w.queues.Resource(name).Find(got.Holder.GetId()).Status != claim.Active:
			w.t.Fatalf("%s is not held by %v", name, got.Holder)
		}
	}
}

// A board agrees with the rules, however lists and the feed overtake each other, whatever the order within a commit.
func TestBoardKnows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, queues: claim.NewQueues(claim.Instant{Wall: 1, Lease: 1}, 3), names: []string{"a", "b", "c"}, board: newBoard(noon), now: noon}
		for _, name := range w.names {
			w.queues.Put(claim.NewQueue(claim.Row{Resource: name}, 0, nil))
		}
		for range rapid.IntRange(0, 5).Draw(t, "before") { // the feed
			w.commit()
		}
		w.commits = nil
		w.board.forget()
		for range rapid.IntRange(20, 100).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"commit", "deliver", "catch up", "list", "show"}).Draw(t, "step") {
			case "commit":
				w.commit()
			case "deliver":
				if len(w.commits) > 0 {
					w.deliver()
				}
			case "catch up":
				for len(w.commits) > 0 {
					w.deliver()
				}
			case "list":
				asked := w.now.Add(time.Microsecond)
				list, more := w.list(rapid.IntRange(1, 3).Draw(t, "limit"))
				if rapid.Bool().Draw(t, "late") {
					w.commit()
					for len(w.commits) > 0 {
						w.deliver()
					}
				}
				w.board.merge(list, more, asked, w.now)
			case "show":
				w.board.rows(Contended, w.now)
			}
			if len(w.commits) == 0 {
				w.check()
			}
		}
		for len(w.commits) > 0 {
			w.deliver()
		}
		w.check()
	})
}

// A board has a bound, and first forgets resources without waiters.
func TestBoardIsBounded(t *testing.T) {
	t.Parallel()
	b, now := newBoard(noon), noon
	for i := range 3 * maxResources {
		now = now.Add(time.Millisecond)
		name := fmt.Sprintf("k%d", i)
		b.take(&models.ResourceInfo{Resource: name, Version: 1, Holding: 1, Waiting: uint32(i % 100 / 99), Holder: &models.Claim{Id: "h"}}, now)
		if len(b.resources) > maxResources {
			t.Fatalf("%d resources", len(b.resources))
		}
	}
	for i := 99; i < 3*maxResources; i += 100 {
		if b.resources[fmt.Sprintf("k%d", i)] == nil {
			t.Fatalf("k%d is forgotten, for which one waits", i)
		}
	}
	if !b.more || b.whole {
		t.Error("it says that it knows all")
	}
}

// Rates are of the last seconds, or since the board was begun.
func TestRates(t *testing.T) {
	t.Parallel()
	b := newBoard(noon)
	var c counter
	for i := range 40 {
		c.add(noon.Add(time.Duration(i)*100*time.Millisecond), 1)
	}
	for after, want := range map[time.Duration]float64{4 * time.Second: 10, 8 * time.Second: 5, 10 * time.Second: 3, 12 * time.Second: 1, 13 * time.Second: 0, time.Hour: 0} {
		copied := c
		if got := b.rate(&copied, noon.Add(after)); got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
	c.add(noon, 1) // the clock has been set back
	if got := b.rate(&c, noon); got != 41 {
		t.Errorf("%v", got)
	}
}

// Each order has the resources in a line, and what is not known last.
func TestOrders(t *testing.T) {
	t.Parallel()
	b := newBoard(noon)
	for i, row := range []Row{{Waiting: 2, WaitsSince: noon}, {Waiting: 5}, {Waiting: 1, WaitsSince: noon.Add(-time.Hour)}, {Waiting: unknown}} {
		row.Resource, row.Holding = string(rune('d'-i)), 1
		r := &resource{Row: row, version: uint64(i)}
		for range i {
			r.counter.add(noon, 1)
		}
		b.resources[row.Resource] = r
	}
	for order, want := range map[Order]string{Contended: "cdba", Busy: "abcd", Oldest: "bdca", Name: "abcd"} {
		got := ""
		for _, row := range b.rows(order, noon) {
			got += row.Resource
		}
		if got != want {
			t.Errorf("%v: %s, want %s", order, got, want)
		}
	}
	if Name.next() != Contended || Busy.String() != "busy" {
		t.Error("the orders do not come round")
	}
}

// A feed that begins anew while all is live is not live from then on, and not since an earlier time.
func TestNotLiveSince(t *testing.T) {
	t.Parallel()
	m := newMonitor(Config{Limit: 1})
	begin := time.Now()
	m.since = begin.Add(-time.Hour) // of an outage that is over
	m.startOver()
	if s := m.snapshot(time.Now()); s.Problem == "" || s.NotLive.Before(begin) {
		t.Errorf("%q since %v", s.Problem, s.NotLive)
	}
}
