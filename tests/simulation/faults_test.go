package simulation_test

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/snapshot"
	"github.com/locket-service/locket/internal/rules/claim"
)

// kinds are the faults. Each begins one at a server, and returns how to end it, nil if it ends by itself.
var kinds = []struct {
	name  string
	begin func(d *disturber, s *server) (end func())
}{
	{"stop", func(d *disturber, s *server) func() { return d.compactBefore(s.down(false)) }},
	{"crash", func(d *disturber, s *server) func() { return d.compactBefore(s.down(true)) }},
	{"crash at a write", func(d *disturber, s *server) func() { return s.number(&s.faults.writes, 1+d.IntN(12)) }},
	{"crash before a commit", func(d *disturber, s *server) func() { return s.number(&s.faults.appends, 1+d.IntN(5)) }},
	{"crash after a commit", func(d *disturber, s *server) func() {
		s.on(&s.faults.behind)
		return s.number(&s.faults.appends, 1+d.IntN(5))
	}},
	{"pause", func(_ *disturber, s *server) func() { return s.faults.pause() }},
	{"the log is slow", func(_ *disturber, s *server) func() { return s.on(&s.faults.slow) }},
	{"the log fails", func(_ *disturber, s *server) func() { return s.on(&s.faults.losing) }},
	{"appends are late", func(_ *disturber, s *server) func() { return s.on(&s.faults.late) }},
	{"events are late", func(_ *disturber, s *server) func() { return s.on(&s.faults.lagging) }},
	{"the log is cut off", func(d *disturber, s *server) func() { return d.compactBefore(s.offLog()) }},
	{"the watch of the log breaks", func(_ *disturber, s *server) func() { return s.cutWatch() }},
	{"the disk is full", func(_ *disturber, s *server) func() { return s.on(&s.faults.full) }},
	{"the disk is slow", func(_ *disturber, s *server) func() { return s.on(&s.faults.slowly) }},
	{"cut off the other servers", func(_ *disturber, s *server) func() { return s.on(&s.faults.apart) }},
	{"cut off the clients", func(_ *disturber, s *server) func() { return s.on(&s.faults.alone) }},
	{"an epoch is raised", func(d *disturber, _ *server) func() { d.raise(); return nil }},
	{"the clock steps", func(d *disturber, s *server) func() { d.step(s); return nil }},
	{"the log is compacted", func(d *disturber, _ *server) func() { d.compact(); return nil }},
}

// down stops the server, in order or not, until the returned function is called.
func (s *server) down(crash bool) func() {
	s.set(true, false)
	if r := s.current(); r != nil {
		r.vanish(crash)
	}
	return func() { s.set(false, false) }
}

// on turns a fault on.
func (s *server) on(fault *bool) (off func()) {
	set := func(to bool) {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		*fault = to
	}
	set(true)
	return func() { set(false) }
}

// number sets after how many operations the server crashes.
func (s *server) number(count *int, n int) (off func()) {
	set := func(to int) {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		*count = to
	}
	set(n)
	return func() {
		set(0)
		s.on(&s.faults.behind)()
	}
}

// pause stops what a server sends, receives and writes, or one direction of a client's network.
func (f *faults) pause() (resume func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paused != nil {
		return nil
	}
	paused := make(chan struct{})
	f.paused = paused
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.paused = nil
		close(paused)
	}
}

// offLog cuts the server's run off the log.
func (s *server) offLog() (on func()) {
	r, off := s.current(), s.on(&s.faults.offLog)
	if r == nil {
		return off
	}
	r.log.Load().Pause()
	return func() {
		r.log.Load().Resume()
		off()
	}
}

// cutWatch breaks what follows the log.
func (s *server) cutWatch() func() {
	if r := s.current(); r != nil {
		r.log.Load().Cut()
	}
	return nil
}

// disturber plans and makes the faults of a world.
type disturber struct {
	*client
	pending []pending
}

// pending is the end of a fault.
type pending struct {
	at   time.Time
	what string
	end  func()
}

const faultsOf = 4

// disturb makes faults at random times, some of them at the same time.
func (w *world) disturb() {
	d := &disturber{client: w.client("disturber", 0)}
	for range faultsOf {
		d.until(time.Now().Add(time.Duration(100+d.IntN(1200)) * time.Millisecond))
		kind, s := kinds[d.IntN(len(kinds))], w.servers[d.IntN(len(w.servers))]
		if decider := w.runOf(w.log.Epoch().Decider); decider != nil && d.IntN(3) > 0 { // the decider more often than not
			s = decider.s
		}
		lasts := time.Duration(100+d.IntN(1200)) * time.Millisecond
		if d.IntN(3) == 0 {
			lasts += 3 * time.Second
		}
		w.trace.note("world", "%s: %s, for %s", s.name, kind.name, lasts)
		w.reached.note("fault: " + kind.name)
		if end := kind.begin(d, s); end != nil {
			what := s.name + ": no longer " + kind.name
			d.pending = append(d.pending, pending{time.Now().Add(lasts), what, end})
		}
	}
	for len(d.pending) > 0 {
		d.until(d.pending[0].at)
	}
}

// until waits until a time, and ends the faults whose time has come.
func (d *disturber) until(at time.Time) {
	for {
		slices.SortStableFunc(d.pending, func(a, b pending) int { return a.at.Compare(b.at) })
		if len(d.pending) == 0 || d.pending[0].at.After(at) {
			sleep(d.Context(), time.Until(at))
			return
		}
		next := d.pending[0]
		d.pending = d.pending[1:]
		sleep(d.Context(), time.Until(next.at))
		next.end()
		d.trace.note("world", "%s", next.what)
	}
}

// raise begins an epoch that nobody decides in.
func (d *disturber) raise() {
	l, now := d.log.Open(), d.log.Epoch()
	first, records := d.log.Records()
	_ = l.Raise(context.Background(), now.Number, first+uint64(len(records))-1, nil)
}

// step steps the clock of a server: by seconds, or by more than any lease.
func (d *disturber) step(s *server) {
	by := time.Duration(d.IntN(8000)-4000) * time.Millisecond
	if d.IntN(2) == 0 {
		by *= 1000
		d.reached.note(clockStepped)
	}
	d.trace.note(s.name, "its clock steps by %s", by)
	s.clock.step(by)
}

// compact deletes the records that a majority of the servers have in their snapshots, as the decider does now and then.
func (d *disturber) compact() {
	var snapshots []uint64
	for _, s := range d.servers {
		snapshots = append(snapshots, s.snapshot())
	}
	slices.Sort(snapshots)
	upTo := snapshots[(len(snapshots)-1)/2]
	d.trace.note("log", "the records up to %d are deleted", upTo)
	_ = d.log.Open().Trim(context.Background(), upTo)
}

// snapshot returns the last record in the server's newest snapshot, 0 if it has none.
func (s *server) snapshot() uint64 {
	index, err := snapshot.Latest(disktest.Folder(filepath.Join(s.folder, "snapshots")))
	if err != nil {
		return 0
	}
	return index
}

// compactBefore has the log compacted, or not, before a server comes back.
func (d *disturber) compactBefore(back func()) func() {
	return func() {
		if d.IntN(3) > 0 {
			d.compact()
		}
		back()
	}
}

// heal ends what may be left of the faults.
func (w *world) heal() {
	for _, s := range w.servers {
		s.number(&s.faults.writes, 0)()
		s.number(&s.faults.appends, 0)()
		s.set(false, false)
	}
}

// count notes the conditions that the final claims show.
func (w *world) count(stored []claim.Claim) {
	for what, n := range w.Unknown(stored) {
		if what {
			w.reached.add(unknownCommitted, n)
		} else {
			w.reached.add(unknownNotCommitted, n)
		}
	}
}
