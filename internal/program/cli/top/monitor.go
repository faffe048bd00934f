package top

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

const (
	// listInterval is the minimum time between the beginnings of two lists. If lists are slow, they take one part of the time
	// in listShare.
	listInterval = 500 * time.Millisecond
	listShare    = 10
)

// Config selects the resources and the rhythm.
type Config struct {
	Client models.LocketClient
	// Explain says an error of a call for people.
	Explain func(error) error
	// Timeout bounds a list.
	Timeout time.Duration
	// Prefix is how the names of the resources begin.
	Prefix string
	// Limit is how many resources to list, 1 to 1,000.
	Limit int
	// Interval is between two Snapshots.
	Interval time.Duration
	Order    Order
}

// Snapshot is a copy of the board at a time.
type Snapshot struct {
	Time time.Time
	// Problem says why this is not live, and NotLive since when; empty and zero if it is.
	Problem string
	NotLive time.Time
	Prefix  string
	Order   Order
	// Rows are the first resources in the order, at most Limit. Resources is how many there are, and Waiting how many claims
	// wait for them, at least if More is set.
	Rows      []Row
	Resources int
	Waiting   int
	More      bool
	// Listed: it is of one list, so there are no rates.
	Listed bool
	// Grants, Waits, Ends and Expiries happened so often per second: claims became active, began to wait, were active
	// and ended, and expired.
	Grants, Waits, Ends, Expiries float64
	// Refusals is how many requests the server that sends the feed refused per second.
	Refusals float64
	// Changes are the last ones, oldest first.
	Changes []*models.Transition
}

// monitor keeps a board.
type monitor struct {
	Config
	board *board
	// problem is why the feed or the list is not live, since is from when on.
	feedProblem, listProblem string
	since                    time.Time
	next                     time.Time // when a list may be asked for again
	listing                  bool
	redraw                   bool  // there is something new to show
	failure                  error // that another attempt does not fix

	news   chan func()
	broken chan string
}

func newMonitor(config Config) *monitor {
	return &monitor{Config: config, board: newBoard(time.Now()), news: make(chan func()), broken: make(chan string)}
}

// Once returns a Snapshot of one list.
func Once(ctx context.Context, config Config) (Snapshot, error) {
	m := newMonitor(config)
	page, err := m.list(ctx, m.Order)
	if err != nil {
		return Snapshot{}, err
	}
	m.take(page)
	s := m.snapshot(time.Now())
	s.Listed = true
	return s, nil
}

// Lines shows a Snapshot at each interval until the context ends, or an error that another attempt does not fix.
func Lines(ctx context.Context, config Config, show func(Snapshot) error) error {
	return newMonitor(config).run(ctx, nil, show)
}

// run reads, and has show be called at each interval, when it becomes live or no longer is, and after an event. It ends with the error of
// show or of an event, the context's, or one that another attempt does not fix.
func (m *monitor) run(ctx context.Context, events <-chan func() error, show func(Snapshot) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	page, err := m.list(ctx, m.Order)
	if err != nil { // what cannot be read at all is an error, and nothing to wait for
		return err
	}
	m.take(page)
	m.feedProblem, m.since = "the feed of changes has not started yet", time.Now()
	m.start(ctx, m.follow)
	tick := time.NewTicker(m.Interval)
	defer tick.Stop()
	for live := m.isLive(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case what := <-m.broken:
			panic(what)
		case news := <-m.news:
			news()
			m.redraw = m.redraw || m.isLive() != live
		case event := <-events:
			if err := event(); err != nil {
				return err
			}
			m.redraw = true
		case <-tick.C:
			m.refresh(ctx, time.Now())
		}
		if m.failure != nil {
			return m.failure
		}
		if m.redraw {
			m.redraw, live = false, m.isLive()
			if err := show(m.snapshot(time.Now())); err != nil {
				return err
			}
		}
	}
}

// start runs what reads; if it panics, run does.
func (m *monitor) start(ctx context.Context, read func(ctx context.Context)) {
	go func() {
		defer func() {
			if what := recover(); what != nil {
				select {
				case m.broken <- fmt.Sprintf("%v\n%s", what, debug.Stack()):
				case <-ctx.Done():
				}
			}
		}()
		read(ctx)
	}()
}

// tell has run do something.
func (m *monitor) tell(ctx context.Context, news func()) {
	select {
	case m.news <- news:
	case <-ctx.Done():
	}
}

// refresh asks for a list, which is shown when it comes. If it is too early for one, the last one is shown again.
func (m *monitor) refresh(ctx context.Context, now time.Time) {
	if m.listing || now.Before(m.next) {
		m.redraw = true
		return
	}
	m.listing = true
	order := m.Order
	m.start(ctx, func(ctx context.Context) {
		page, err := m.list(ctx, order)
		m.tell(ctx, func() {
			m.listing, m.redraw, m.next = false, true, now.Add(max(listInterval, listShare*time.Since(now)))
			if err != nil {
				m.fail(&m.listProblem, err)
				return
			}
			m.take(page)
			m.listProblem = ""
		})
	})
}

func (m *monitor) take(page *models.ListResourcesResponse) {
	m.board.take(page.GetResources(), page.GetNextPageToken() != "", time.Now())
}

// list returns the first resources by name, or the most contended ones for the other orders, which the server does not have.
func (m *monitor) list(ctx context.Context, order Order) (*models.ListResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	first := models.ResourceOrder_RESOURCE_ORDER_CONTENDED
	if order == Name {
		first = models.ResourceOrder_RESOURCE_ORDER_NAME
	}
	return m.Client.ListResources(ctx, &models.ListResourcesRequest{Prefix: m.Prefix, Order: first, Limit: proto.Uint32(uint32(m.Limit))})
}

// follow watches until the context ends, or an error that another attempt does not fix. What comes without a cursor belongs together
// with the changes that follow.
func (m *monitor) follow(ctx context.Context) {
	var changes []*models.Transition
	for e, err := range lock.Watch(ctx, m.Client, &models.WatchRequest{Prefix: m.Prefix, NoSnapshot: true, Refusals: true}) {
		switch {
		case err != nil:
			m.tell(ctx, func() { m.failure = err })
			return
		case e.Broken != nil:
			m.tell(ctx, func() { m.fail(&m.feedProblem, e.Broken) })
		case e.Refusals > 0:
			m.tell(ctx, func() { m.board.refusals.add(time.Now(), e.Refusals) })
		case e.Missed:
			changes = nil
		default:
			if e.Transition != nil {
				changes = append(changes, e.Transition)
			}
			if e.Cursor != "" {
				whole := changes
				changes = nil
				m.tell(ctx, func() { m.apply(whole) })
			}
		}
	}
}

func (m *monitor) apply(changes []*models.Transition) {
	now := time.Now()
	for _, t := range changes {
		m.board.apply(t, now)
	}
	m.feedProblem = ""
}

func (m *monitor) isLive() bool { return m.problem() == "" }

func (m *monitor) problem() string {
	if m.feedProblem != "" {
		return m.feedProblem
	}
	return m.listProblem
}

// fail notes why the feed or the list cannot be read, and since when, if that is new.
func (m *monitor) fail(which *string, err error) {
	if m.isLive() {
		m.since = time.Now()
	}
	*which = m.Explain(err).Error()
}

func (m *monitor) snapshot(now time.Time) Snapshot {
	b := m.board
	rows := b.rows(m.Order, now)
	s := Snapshot{
		Time: now, Problem: m.problem(), Prefix: m.Prefix, Order: m.Order, Resources: len(rows), More: b.more, Changes: b.changes,
		Grants: b.rate(&b.grants, now), Waits: b.rate(&b.waits, now), Ends: b.rate(&b.ends, now), Expiries: b.rate(&b.expiries, now),
		Refusals: b.rate(&b.refusals, now),
	}
	if s.Problem != "" {
		s.NotLive = m.since
	}
	for _, r := range rows {
		s.Waiting += max(r.Waiting, 0)
	}
	s.Rows = rows[:min(len(rows), m.Limit)]
	return s
}
