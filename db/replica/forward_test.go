package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/state"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// forwarding is a store, and servers that send it the batches of their callers over a network that loses, doubles and
// delays them, while the store is stopped and started again.
type forwarding struct {
	testing.TB
	*rand.Rand
	*Store
	folder  string
	disk    *disktest.Disk
	running sync.WaitGroup
	enough  chan struct{} // closed when no more batches should come
	late    []*letter     // copies that are still there
	own     []db.Batch    // that the store's server has committed for itself, in order

	mu      sync.Mutex // guards the following, which callers use too
	posted  []*letter
	batches map[record.Origin]db.Batch
	told    map[record.Origin][]byte
	// tooLarge are batches whose outcome is too large to keep.
	tooLarge map[record.Origin]bool
	unknown  int

	restarts, again, old int
	most                 int // batches of one record
}

// letter is a batch on its way to the store.
type letter struct {
	origin record.Origin
	sent   []byte
	answer chan []byte
}

func newForwarding(t testing.TB, seed uint64) *forwarding {
	f := &forwarding{
		TB: t, Rand: rand.New(rand.NewPCG(seed, 0)), folder: filepath.Join(t.TempDir(), "data"), disk: disktest.New(),
		enough: make(chan struct{}), batches: map[record.Origin]db.Batch{}, told: map[record.Origin][]byte{},
	}
	f.open()
	for node := range uint64(3) {
		rnd := rand.New(rand.NewPCG(seed, node+1))
		f.running.Go(func() { f.call(rnd, node+1) })
	}
	return f
}

func (f *forwarding) open() {
	f.Helper()
	var err error
	if f.Store, err = OpenWith(f.folder, Options{Disk: f.disk}); err != nil {
		f.Fatal(err)
	}
}

// restart stops the store, without power if crash is set, and starts it again.
func (f *forwarding) restart(crash bool) {
	f.Helper()
	_ = f.Close() // its disk may have failed
	f.disk.SetFault(nil)
	if f.disk = f.disk.Kill(); crash {
		f.disk = f.disk.Crash(f.Rand)
	}
	f.open()
	f.restarts++
}

// call sends the batches of a server until there are enough. Its process is started anew now and then.
func (f *forwarding) call(rnd *rand.Rand, node uint64) {
	var sender *Forwarder
	for n := uint64(0); ; n++ {
		if sender == nil || rnd.IntN(10) == 0 {
			sender = NewForwarder(node+10*n, f.send) // a start of the server
		}
		select {
		case <-f.enough:
			return
		case <-time.After(time.Duration(1+rnd.IntN(40)) * time.Millisecond): // real time: none, networks run in bubbles; later than enough, where that is closed
		}
		batch, origin := randomBatch(rnd, fmt.Sprintf("%d/%d", node, n)), record.Origin{Node: sender.last.Node, Seq: sender.last.Seq + 1}
		f.mu.Lock()
		f.batches[origin] = batch
		f.mu.Unlock()
		patience := time.Hour
		if rnd.IntN(6) == 0 {
			patience = time.Duration(rnd.IntN(300)) * time.Millisecond
		}
		limited, cancel := context.WithTimeout(context.Background(), patience)
		outcome, err := sender.Transact(limited, batch)
		cancel()
		f.mu.Lock()
		switch {
		case err == nil:
			f.told[origin], err = record.WriteOutcome(outcome, nil)
			if err != nil {
				f.Error(err)
			}
		case errors.Is(err, db.ErrOutcomeUnknown):
			f.unknown++
		default:
			f.Errorf("batch %+v: %v", origin, err)
		}
		f.mu.Unlock()
	}
}

// send puts a batch on the network, and waits for an answer, for some time.
func (f *forwarding) send(ctx context.Context, sent []byte) ([]byte, error) {
	origin, _, err := record.ReadBatch(sent)
	if err != nil {
		return nil, err
	}
	l := &letter{origin, sent, make(chan []byte, 1)}
	f.mu.Lock()
	f.posted = append(f.posted, l)
	f.mu.Unlock()
	select {
	case outcome := <-l.answer:
		return outcome, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(150 * time.Millisecond): // real time: none, networks run in bubbles
		return nil, errors.New("there is no answer")
	}
}

// randomBatch returns commands about a few resources. What it makes has ids that begin with a prefix.
func randomBatch(rnd *rand.Rand, prefix string) db.Batch {
	callers := []access.Caller{
		{},
		{Identity: access.Identity{Name: "other"}},
		{Identity: access.Identity{Name: "reader"}, Rules: access.NewRules([]*access.Rule{{Everybody: true, May: access.Read, ResourcePrefix: new("")}})},
	}
	var b db.Batch
	for n := range 1 + rnd.IntN(4) {
		id, resource, owner, session := fmt.Sprint(prefix, "/", n), fmt.Sprint("r", rnd.IntN(4)), fmt.Sprint("o", rnd.IntN(3)), fmt.Sprint("s", rnd.IntN(3))
		ttl := time.Duration(1+rnd.IntN(600)) * 10 * time.Millisecond
		r := claim.Request{Caller: callers[rnd.IntN(len(callers))]}
		switch rnd.IntN(8) {
		case 0, 1:
			r.Command = claim.Acquire{ID: id, Resource: resource, Owner: owner, TTL: ttl, Value: id}
		case 2, 3:
			r.Command = claim.Release{Resource: resource, Owner: owner}
		case 4:
			r.Command = claim.Create{ID: id, New: true, Resource: resource, Owner: owner, TTL: ttl, Units: dbtest.EitherUnits(rnd.IntN(2)), NoWait: rnd.IntN(2) == 0}
		case 5:
			r.Command = claim.Create{ID: id, New: true, Resource: resource, Owner: owner, Session: session, Server: "here", UserData: []byte("{}")}
		case 6:
			r.Command = claim.Attach{Session: claim.Session{ID: session, Owner: owner, TTL: time.Hour}, Server: "here"}
		default:
			r.Command = claim.EndSession{ID: session, Keep: rnd.IntN(2) == 0, Active: claim.Released, Waiting: claim.Withdrawn}
			if rnd.IntN(2) == 0 {
				r.Command = claim.Expire{Resources: []string{"r0", "r1", "r2", "r3"}}
			}
		}
		b.Requests = append(b.Requests, r)
	}
	return b
}

// step has some time pass. One of so many letters is lost, none for 0.
func (f *forwarding) step(lost int) {
	synctest.Wait()
	f.mu.Lock()
	slices.SortFunc(f.posted, func(a, b *letter) int { return int(a.origin.Node) - int(b.origin.Node) })
	letters := f.posted
	f.posted = nil
	f.mu.Unlock()
	f.Shuffle(len(letters), func(i, j int) { letters[i], letters[j] = letters[j], letters[i] })
	for _, l := range letters {
		if lost == 0 || f.IntN(lost) > 0 {
			f.serve(l)
		}
		if f.IntN(3) == 0 {
			f.late = append(f.late, l)
		}
	}
	for n := range f.late {
		if f.IntN(20) == 0 {
			f.serve(f.late[n])
		}
	}
	time.Sleep(10 * time.Millisecond)
}

// serve has the store carry out a batch that was sent to it. One of four answers is lost.
func (f *forwarding) serve(l *letter) {
	known, _ := f.state.LastBatch(l.origin)
	last := known.Seq
	outcome, err := f.CarryOut(context.Background(), l.sent)
	switch {
	case errors.Is(err, ErrOldBatch):
		f.old++
		if l.origin.Seq >= last {
			f.Errorf("batch %+v is refused: %v", l.origin, err)
		}
		return
	case errors.Is(err, db.ErrOutcomeUnknown): // the disk fails
		f.restart(true)
		return
	case err != nil:
		f.Errorf("batch %+v: %v", l.origin, err)
		return
	case l.origin.Seq == last:
		f.again++
	}
	if f.IntN(4) > 0 {
		select {
		case l.answer <- outcome:
		default: // it has an answer
		}
	}
}

// decide commits a batch of the store's own server.
func (f *forwarding) decide(batch db.Batch) {
	outcome, completion, err := f.Transact(context.Background(), batch)
	if err == nil && completion != nil {
		err = completion.Wait(context.Background())
	}
	if err != nil {
		f.Error(err)
	}
	if outcome.Committed {
		f.own = append(f.own, batch)
	}
}

// play has batches sent while the store is stopped, and its disk fails.
func (f *forwarding) play() {
	for range 200 {
		f.step(6)
		switch f.IntN(40) {
		case 0, 1:
			f.restart(f.IntN(2) == 0)
		case 2:
			f.disk.SetFault(func(string) error { return syscall.EIO }) // of the next batch nothing stays
			f.step(2)
			f.restart(true)
		case 3, 4, 5, 6:
			f.decide(randomBatch(f.Rand, fmt.Sprint("own/", f.Uint64())))
		}
	}
	close(f.enough)
	ended := make(chan struct{})
	go func() { f.running.Wait(); close(ended) }()
	for n := 0; ; n++ {
		select {
		case <-ended:
			for _, l := range f.late { // what comes now is too late
				f.serve(l)
			}
			f.restart(true)
			return
		default:
		}
		if n == 5000 {
			f.Fatal("there are batches without an answer")
		}
		f.step(0)
	}
}

// oracle carries out batches, one after the other, by the rules alone.
type oracle struct {
	state *state.State
	now   claim.Instant
	saved *claim.Queues
}

// Load implements db.Tx.
func (o *oracle) Load(wanted db.Wanted) (*claim.Queues, error) {
	return o.state.Load(o.now, wanted, func(string) *claim.Claim { return nil }), nil
}

// Save implements db.Tx.
func (o *oracle) Save(queues *claim.Queues) error {
	o.saved = queues
	return nil
}

// run carries out a batch, and returns how its outcome travels.
func (o *oracle) run(f *forwarding, batch db.Batch) []byte {
	f.Helper()
	o.saved = claim.NewQueues(claim.Instant{}, 0)
	outcome, err := batch.CarryOut(o)
	if err == nil {
		header := record.Header{Wall: o.now.Wall, Lease: o.now.Lease}
		_, err = o.state.Apply(&record.Record{Header: header, Claims: record.Merge(o.saved.Transitions()), Sessions: o.saved.ChangedSessions()})
	}
	if err != nil {
		f.Fatal(err)
	}
	sent, err := record.WriteOutcome(outcome, nil)
	if err != nil {
		f.Fatal(err)
	}
	return sent
}

// withoutShared returns an outcome without Committed, which is the same for all batches of a record.
func withoutShared(t testing.TB, sent []byte) []byte {
	t.Helper()
	outcome, err := record.ReadOutcome(sent)
	if err != nil {
		t.Fatal(err)
	}
	outcome.Committed = false
	if sent, err = record.WriteOutcome(outcome, nil); err != nil {
		t.Fatal(err)
	}
	return sent
}

// check compares the log, and the callers' answers, with the batches carried out one after the other: each answered
// batch exactly once, and any other at most once.
func (f *forwarding) check() {
	f.Helper()
	o, done := &oracle{state: state.New()}, map[record.Origin]bool{}
	own := f.own
	err := f.records(1, f.applied.index, func(data []byte) error {
		d, err := record.Read(data)
		if err != nil {
			return err
		}
		o.now = claim.Instant{Wall: d.Wall, Lease: d.Lease}
		for n, b := range d.Batches {
			if done[b.Origin] {
				f.Fatalf("batch %+v is carried out twice", b.Origin)
			}
			done[b.Origin] = true
			if f.tooLarge[b.Origin] {
				if outcome, err := record.ReadOutcome(b.Outcome); err == nil {
					f.Errorf("batch %+v has an outcome that is too large: %.1000v", b.Origin, outcome)
				}
				continue
			}
			want := o.run(f, f.batches[b.Origin])
			if made := record.Merge(o.saved.Transitions()); len(made) != b.Claims {
				f.Errorf("batch %+v has made %d changes of claims, and by the rules %d", b.Origin, b.Claims, len(made))
			}
			if told := f.told[b.Origin]; told != nil && !bytes.Equal(withoutShared(f, told), withoutShared(f, want)) {
				f.Errorf("batch %+v, number %d of %d: its callers were told %x, and by the rules it is %x", b.Origin, n, len(d.Batches), told, want)
			}
		}
		switch {
		case o.state.Lease == 0: // the first record begins lease time
			_, err = o.state.Apply(&record.Record{Header: d.Header})
		case len(d.Batches) == 0:
			if len(own) == 0 {
				f.Fatalf("nobody has sent what is in the log: %+v", d)
			}
			o.run(f, own[0])
			own = own[1:]
		}
		if err == nil {
			_, err = o.state.Apply(&record.Record{Header: d.Header, Batches: d.Batches})
		}
		f.most = max(f.most, len(d.Batches))
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	for origin := range f.told {
		if !done[origin] {
			f.Errorf("batch %+v has an answer, and was not carried out", origin)
		}
	}
	if differ := f.state.Sums().Differences(o.state.Sums()); differ != "" {
		f.Errorf("the state is not that of the batches, one after the other: %s", differ)
	}
}

// TestForwarding: batches that servers send to the decider are carried out once each, and their callers learn of the outcome,
// while messages are lost, doubled and late, servers restart, and the disk fails.
func TestForwarding(t *testing.T) {
	var all forwarding
	told, size := 0, 0
	for seed := range uint64(forwardings) {
		synctest.Test(t, func(t *testing.T) {
			f := newForwarding(t, seed)
			f.play()
			f.check()
			if t.Failed() {
				t.Fatalf("with the seed %d", seed)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			for _, outcome := range f.told {
				told, size = told+1, size+len(outcome)
			}
			all.restarts, all.again, all.old, all.unknown = all.restarts+f.restarts, all.again+f.again, all.old+f.old, all.unknown+f.unknown
		})
	}
	t.Logf("%d batches were answered, with %d bytes; %d were not; %d came again, %d too late; %d restarts", told, size, all.unknown, all.again, all.old, all.restarts)
	if told == 0 || all.again == 0 || all.old == 0 || all.unknown == 0 || all.restarts == 0 {
		t.Error("some of this has not happened")
	}
}

// TestTogether: batches of several servers that wait for the same record are carried out as if they were one after the other. One
// whose outcome is too large, or that fails otherwise, fails alone. One that comes again meanwhile has the same outcome.
func TestTogether(t *testing.T) {
	most := 0
	for seed := range uint64(forwardings) {
		synctest.Test(t, func(t *testing.T) {
			f := &forwarding{
				TB: t, Rand: rand.New(rand.NewPCG(seed, 1)), folder: filepath.Join(t.TempDir(), "data"), disk: disktest.New(),
				batches: map[record.Origin]db.Batch{}, told: map[record.Origin][]byte{}, tooLarge: map[record.Origin]bool{},
			}
			f.open()
			f.options.OutcomeBytes = 8192
			for round := range uint64(30) {
				f.together(round + 1)
			}
			f.check()
			if most = max(most, f.most); t.Failed() {
				t.Fatalf("with the seed %d", seed)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if most < 3 {
		t.Errorf("a record had %d batches at most", most)
	}
}

// together has some servers send a batch each while nobody may decide.
func (f *forwarding) together(round uint64) {
	f.writing <- struct{}{}
	fails, large := uint64(f.IntN(12)), strings.Repeat("v", f.options.OutcomeBytes)
	for node := range uint64(6) {
		origin, batch := record.Origin{Node: node + 1, Seq: round}, randomBatch(f.Rand, fmt.Sprint(node, "/", round))
		for n, r := range batch.Requests {
			if _, is := r.Command.(claim.EndSession); is { // the claims that a record has made end after the others
				batch.Requests[n].Command = claim.Release{Resource: "r0", Owner: "o0"}
			}
		}
		if node == fails {
			f.tooLarge[origin] = true
			batch.Requests = append(batch.Requests, requests(claim.Acquire{ID: fmt.Sprint(origin), Resource: fmt.Sprint(origin), Owner: "o", TTL: time.Hour, Value: large}).Requests...)
		}
		f.batches[origin] = batch
		for range 1 + f.IntN(2) {
			f.running.Go(func() { f.tell(origin, batch) })
		}
		synctest.Wait()
		time.Sleep(time.Millisecond) // real time: none, networks run in bubbles
	}
	<-f.writing
	f.running.Wait()
}

// tell has the store carry out a batch, and keeps its outcome.
func (f *forwarding) tell(origin record.Origin, batch db.Batch) {
	sent, err := record.WriteBatch(origin, batch)
	if err != nil {
		f.Error(err)
		return
	}
	outcome, err := f.CarryOut(context.Background(), sent)
	if err != nil {
		f.Errorf("batch %+v: %v", origin, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if told := f.told[origin]; told != nil && !bytes.Equal(told, outcome) {
		f.Errorf("batch %+v has two outcomes: %x and %x", origin, told, outcome)
	}
	f.told[origin] = outcome
}

// carryOut has a store carry out a batch of a node, and returns how the outcome travels.
func carryOut(t *testing.T, s *Store, from record.Origin, batch db.Batch) []byte {
	t.Helper()
	sent, err := record.WriteBatch(from, batch)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := s.CarryOut(t.Context(), sent)
	if err != nil {
		t.Fatalf("batch %+v: %v", from, err)
	}
	return outcome
}

func requests(cmds ...claim.Command) (b db.Batch) {
	for _, cmd := range cmds {
		b.Requests = append(b.Requests, claim.Request{Command: cmd})
	}
	return b
}

// TestCarriedOutOnce: a batch that comes again has the outcome that it had, and changes nothing: at once, after a restart
// from the log, from a snapshot, and from one that was made of that. One that is older than the last is refused.
func TestCarriedOutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, d := filepath.Join(t.TempDir(), "data"), disktest.New()
		open := func() *Store {
			t.Helper()
			s, err := OpenWith(folder, Options{Disk: d})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := open()
		dbtest.Do(t, s, claim.Create{ID: "ended", Resource: "q", TTL: time.Hour}, claim.End{ID: "ended"})
		if err := s.writeHistory(); err != nil {
			t.Fatal(err)
		}
		first, second := record.Origin{Node: 7, Seq: 1}, record.Origin{Node: 7, Seq: 5}
		carryOut(t, s, first, requests(claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour}))
		batches, outcomes := map[record.Origin]db.Batch{
			second: requests(claim.Acquire{ID: "b", Resource: "r", Owner: "p", TTL: time.Hour}, claim.Release{Resource: "r", Owner: "o"}),
			{Node: 8, Seq: 1 << 41}: requests(claim.Acquire{ID: "c", Resource: "s", Owner: "o", TTL: time.Hour},
				claim.Create{ID: "ended", Resource: "q", TTL: time.Hour}, claim.Create{ID: "new", Resource: "q", TTL: time.Hour}),
			{Node: 9, Seq: 1}: requests(claim.End{ID: "nothing"}), // it changes nothing
		}, map[record.Origin][]byte{}
		for origin, batch := range batches {
			outcomes[origin] = carryOut(t, s, origin, batch)
			o, err := record.ReadOutcome(outcomes[origin])
			if err != nil || len(o.Answers) != len(batch.Requests) {
				t.Fatalf("batch %+v: %+v (%v)", origin, o, err)
			}
			if origin.Node == 8 && (o.Answers[1].Claim.Status != claim.Released || o.Answers[2].Claim.Status != claim.Active) {
				t.Errorf("answers %+v", o.Answers)
			}
		}
		again := func(when string) {
			t.Helper()
			before, bytes := s.Dump(), s.LogBytes()
			for origin, batch := range batches {
				if got := carryOut(t, s, origin, batch); string(got) != string(outcomes[origin]) {
					t.Errorf("batch %+v %s: %x, and it was %x", origin, when, got, outcomes[origin])
				}
			}
			if string(s.Dump()) != string(before) || s.LogBytes() != bytes {
				t.Errorf("batches that come again change something %s", when)
			}
		}
		restart := func() {
			t.Helper()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			d = d.Kill()
			s = open()
		}
		again("at once")
		restart()
		again("after a restart")
		for _, when := range []string{"in a snapshot", "in a snapshot of a snapshot"} {
			dbtest.Do(t, s, claim.Create{ID: when, Resource: "z", TTL: time.Hour})
			if err := s.Snapshot(); err != nil {
				t.Fatal(err)
			}
			restart()
			again(when)
		}
		for _, seq := range []uint64{1, 4} {
			sent, err := record.WriteBatch(record.Origin{Node: 7, Seq: seq}, requests(claim.Release{Resource: "s", Owner: "o"}))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.CarryOut(t.Context(), sent); !errors.Is(err, ErrOldBatch) {
				t.Errorf("batch %d after %d: %v", seq, second.Seq, err)
			}
		}
		if _, err := s.CarryOut(t.Context(), []byte("no batch")); !errors.Is(err, record.ErrFormat) {
			t.Errorf("what is no batch: %v", err)
		}
		if c, err := s.Holder(t.Context(), "s"); err != nil || c.ID != "c" {
			t.Errorf("the holder is %q (%v)", c.ID, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOutcomeTooLarge: a batch whose outcome is too large to keep fails, even when it is repeated, and nothing of it is
// done. Its parts can be carried out.
func TestOutcomeTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the disk is not too slow, whatever else this machine does
		s := withHistory(t)
		defer func() { _ = s.Close() }()
		s.options.OutcomeBytes = 1 << 20
		n, size := 8, s.options.OutcomeBytes/8
		large := strings.Repeat("v", size)
		var contend []claim.Command
		for i := range n {
			dbtest.Do(t, s, claim.Acquire{ID: fmt.Sprint(i), Resource: fmt.Sprint(i), Owner: "o", TTL: time.Hour, Value: large})
			contend = append(contend, claim.Acquire{ID: fmt.Sprint("p", i), Resource: fmt.Sprint(i), Owner: "p", TTL: time.Hour}) // the error has the holder
		}
		contend = append(contend, claim.Release{Resource: "rlive", Owner: "o"}, claim.Acquire{ID: "free", Resource: "free", Owner: "p", TTL: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sender := NewForwarder(7, s.CarryOut)
		if _, err := sender.Transact(ctx, requests(contend...)); err == nil || errors.Is(err, db.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "1048576 are the limit") {
			t.Errorf("the whole: %v", err)
		}
		if _, err := s.Holder(t.Context(), "free"); !errors.Is(err, claim.ErrNotFound) {
			t.Errorf("a part of it was done: %v", err)
		}
		first, err := record.ReadOutcome(carryOut(t, s, sender.last, requests(claim.Renew{ID: "0", TTL: time.Hour})))
		if err == nil || !strings.Contains(err.Error(), "are the limit") {
			t.Errorf("the same batch again: %+v (%v)", first, err)
		}
		for _, half := range [][]claim.Command{contend[:n/2], contend[n/2:]} {
			o, err := sender.Transact(ctx, requests(half...))
			var collision *claim.CollisionError
			if err != nil || !errors.As(o.Answers[0].Err, &collision) || len(collision.Holder.Value) != len(large) {
				t.Errorf("a half: %v", err)
			}
		}
		if _, err := s.Holder(t.Context(), "free"); err != nil {
			t.Errorf("the halves: %v", err)
		}
	})
}

// TestGivenUpAndPutBack: a caller gives up while somebody decides its batch, which is put back for the next record. The caller returns,
// although nobody else decides.
func TestGivenUpAndPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withHistory(t)
		defer func() { _ = s.Close() }()
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		s.writing <- struct{}{} // another batch's caller decides
		ended := make(chan error, 1)
		go func() {
			ended <- s.carryOut(ctx, &waiting{batch: requests(claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour})})
		}()
		synctest.Wait()
		taken := s.queue.take()
		giveUp()
		synctest.Wait()
		s.queue.putBack(taken)
		s.release()
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, db.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		default:
			t.Error("the caller waits on")
			if err := s.acquire(t.Context(), nil); err == nil {
				_ = s.decideWaiting(t.Context())
			}
		}
		if _, err := s.Holder(t.Context(), "r"); !errors.Is(err, claim.ErrNotFound) {
			t.Errorf("the batch that was given up: %v", err)
		}
	})
}

// TestSnapshotWhileCommitsWait: when commits wait for the history, a snapshot that reads the log writes it, and does not rest.
func TestSnapshotWhileCommitsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withHistory(t)
		defer func() { _ = s.Close() }()
		dbtest.Do(t, s, claim.Create{ID: "late", Resource: "late", TTL: time.Hour}, claim.End{ID: "late"})
		begin, waited, late, first := time.Now(), time.Duration(0), true, sync.Once{}
		if err := s.onTurn(t.Context(), func() error {
			s.mu.Lock()
			s.pending.late = begin
			s.mu.Unlock()
			s.rested = begin.Add(-time.Second)
			return s.records(s.log.First(), s.at().index, func([]byte) error {
				first.Do(func() { waited, late = time.Since(begin), s.Late() })
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
		if late || waited > 0 {
			t.Errorf("the commits wait still (%t), or have waited for %v", late, waited)
		}
	})
}

// TestRuns: the number of a run of a node is higher than those before it.
func TestRuns(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	for want := range uint64(3) {
		f, err := openFolder(folder, false, false)
		if err != nil {
			t.Fatal(err)
		}
		begin := f.beginRun
		if want == 0 {
			begin = f.ready
		}
		if err := begin(); err != nil || f.run.number != want+1 {
			t.Errorf("run %d (%v), want %d", f.run.number, err, want+1)
		}
		f.close()
	}
}

// TestOldBatch: a server does not know what has become of a batch that comes after a later one.
func TestOldBatch(t *testing.T) {
	f := NewForwarder(1, func(context.Context, []byte) ([]byte, error) { return nil, ErrOldBatch })
	if _, err := f.Transact(t.Context(), db.Batch{}); !errors.Is(err, db.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
}
