package ordertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/db/replica/order"
)

// Run tests a log against the contract of order.Log. make returns a function that opens a new, empty log for one more
// server each time.
func Run(t *testing.T, make func(*testing.T) (open func() order.Log)) {
	for _, test := range []struct {
		name string
		run  func(*bench)
	}{
		{"Cluster", testCluster},
		{"ClusterOfOneServer", testClusterOfOneServer},
		{"Epochs", testEpochs},
		{"UnseenBeat", testUnseenBeat},
		{"Append", testAppend},
		{"AppendAgain", testAppendAgain},
		{"Sizes", testSizes},
		{"Last", testLast},
		{"Follow", testFollow},
		{"FollowPages", testFollowPages},
		{"FollowEnds", testFollowEnds},
		{"Trim", testTrim},
		{"Announce", testAnnounce},
		{"Rivals", testRivals},
		{"Closed", testClosed},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // in case something hangs
			defer cancel()
			test.run(&bench{T: t, ctx: ctx, make: make(t)})
		})
	}
}

// bench is one test on a log of its own.
type bench struct {
	*testing.T
	ctx  context.Context
	make func() order.Log
}

func (b *bench) open() order.Log {
	log := b.make()
	b.Cleanup(func() { _ = log.Close() })
	return log
}

// must fails the test unless an error is the expected one, nil included.
func (b *bench) must(what string, err, want error) {
	b.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		b.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// fill raises the first epoch and appends records up to one.
func (b *bench) fill(log order.Log, last uint64) {
	b.Helper()
	b.must("raise", log.Raise(b.ctx, 0, 0, []byte("a")), nil)
	for i := range last {
		b.must("append", log.Append(b.ctx, 1, i+1, data(i+1)), nil)
	}
}

func data(index uint64) []byte { return fmt.Appendf(nil, "record %d", index) }

func testCluster(b *bench) {
	first, second := b.open(), b.open()
	if id, err := first.Cluster(b.ctx, 0, 0); id != 0 || err != nil {
		b.Errorf("the id is %d before the cluster has begun (%v)", id, err)
	}
	for i, log := range []order.Log{first, second, first} {
		id, err := log.Cluster(b.ctx, uint64(i)+1<<63, 0)
		b.must("cluster", err, nil)
		if id != 1<<63 {
			b.Errorf("the cluster's id is %d, want the first proposal", id)
		}
	}
	if id, err := second.Cluster(b.ctx, 0, 0); id != 1<<63 || err != nil {
		b.Errorf("the cluster's id is %d without a proposal (%v)", id, err)
	}
}

// The log of a cluster begins behind the records that its first server had before.
func testClusterOfOneServer(b *bench) {
	log := b.open()
	_, err := log.Cluster(b.ctx, 5, 7)
	b.must("cluster", err, nil)
	last, err := log.Last(b.ctx, 7)
	b.must("last", err, nil)
	if last != 7 {
		b.Errorf("the last record is %d, want 7", last)
	}
	_, err = log.Last(b.ctx, 3)
	b.must("last for a server that lacks records", err, order.ErrTrimmed)
	b.must("raise", log.Raise(b.ctx, 0, 7, []byte("a")), nil)
	b.must("append", log.Append(b.ctx, 1, 8, data(8)), nil)
	got := b.collect(log, 7, 2)
	b.equal(got[1:], []string{"8 record 8"})
}

func testEpochs(b *bench) {
	first, second := b.open(), b.open()
	b.must("append before the first epoch", first.Append(b.ctx, 1, 1, data(1)), order.ErrDeposed)
	b.must("beat before the first epoch", first.Beat(b.ctx, 1), order.ErrDeposed)
	b.must("raise", first.Raise(b.ctx, 0, 0, []byte("first")), nil)
	b.must("raise the same", first.Raise(b.ctx, 0, 0, []byte("first")), nil)
	b.must("raise after an old epoch", second.Raise(b.ctx, 0, 0, []byte("second")), order.ErrDeposed)
	b.must("raise after a later epoch", second.Raise(b.ctx, 2, 0, []byte("second")), order.ErrDeposed)
	b.must("append", first.Append(b.ctx, 1, 1, data(1)), nil)
	b.must("beat", first.Beat(b.ctx, 1), nil)
	b.must("raise ahead of the log", second.Raise(b.ctx, 1, 2, []byte("second")), order.ErrBehind)
	b.must("raise without the last record", second.Raise(b.ctx, 1, 0, []byte("second")), order.ErrDeposed)
	b.must("raise", second.Raise(b.ctx, 1, 1, []byte("second")), nil)
	b.must("append when deposed", first.Append(b.ctx, 1, 2, data(2)), order.ErrDeposed)
	b.must("beat when deposed", first.Beat(b.ctx, 1), order.ErrDeposed)
	b.must("append in an epoch that has not begun", second.Append(b.ctx, 3, 2, data(2)), order.ErrDeposed)
	b.must("append", second.Append(b.ctx, 2, 2, data(2)), nil)
	b.must("resign", second.Raise(b.ctx, 2, 2, nil), nil)
	b.must("append after the resignation", second.Append(b.ctx, 2, 3, data(3)), order.ErrDeposed)
	got := b.collect(first, 0, 3)
	if e := got[0].Epoch; e == nil || e.Number != 3 || len(e.Decider) != 0 {
		b.Errorf("the epoch is %v, want 3 without a decider", e)
	}
}

// A server deposes nobody whose last beat it has not seen. An attempt sees the beat.
func testUnseenBeat(b *bench) {
	decider, other := b.open(), b.open()
	b.fill(decider, 1)
	b.must("beat", decider.Beat(b.ctx, 1), nil)
	b.must("raise after an unseen beat", other.Raise(b.ctx, 1, 1, []byte("b")), order.ErrDeposed)
	b.must("beat", decider.Beat(b.ctx, 1), nil)
	b.must("raise after another one", other.Raise(b.ctx, 1, 1, []byte("b")), order.ErrDeposed)
	b.must("raise after no other one", other.Raise(b.ctx, 1, 1, []byte("b")), nil)
	b.must("beat", other.Beat(b.ctx, 2), nil)
	b.must("resign after a beat", other.Raise(b.ctx, 2, 1, nil), nil)

	follower := b.open()
	if err := other.Raise(b.ctx, 3, 1, []byte("b")); err != nil { // it has not seen its own beat
		b.must("raise", other.Raise(b.ctx, 3, 1, []byte("b")), nil)
	}
	b.must("beat", other.Beat(b.ctx, 4), nil)
	ctx, end := context.WithCancel(b.ctx)
	events := make(chan order.Event, 8)
	ended := make(chan error, 1)
	go func() { ended <- follower.Follow(ctx, 1, func(e order.Event) error { events <- e; return nil }) }()
	for n := range 3 { // the epoch, the beat before, and this one
		if n == 2 {
			b.must("beat", other.Beat(b.ctx, 4), nil)
		}
		select {
		case e := <-events:
			if (e.Epoch != nil) != (n == 0) || e.Index != 0 {
				b.Fatalf("event %d is %+v", n, e)
			}
		case err := <-ended:
			b.Fatal(err)
		}
	}
	end()
	b.must("follow", <-ended, order.ErrUnavailable)
	b.must("raise after a beat that was seen", follower.Raise(b.ctx, 4, 1, []byte("c")), nil)
}

func testAppend(b *bench) {
	log := b.open()
	b.fill(log, 1)
	b.must("append with a gap", log.Append(b.ctx, 1, 3, data(3)), order.ErrBehind)
	b.must("append another record", log.Append(b.ctx, 1, 1, []byte("another")), order.ErrUnavailable)
	b.must("append", log.Append(b.ctx, 1, 2, nil), nil)
	got := b.collect(log, 0, 3)
	b.equal(got[1:], []string{"1 record 1", "2 "})
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	err := log.Append(ended, 1, 3, data(3))
	b.must("append with an ended context", err, order.ErrUnavailable)
	b.must("append with an ended context", err, context.Canceled)
}

// An append is repeated when its outcome is unknown.
func testAppendAgain(b *bench) {
	log := b.open()
	b.fill(log, 3)
	b.must("append again", log.Append(b.ctx, 1, 3, data(3)), nil)
	b.must("append an earlier one again", log.Append(b.ctx, 1, 1, data(1)), nil)
	b.must("raise", log.Raise(b.ctx, 1, 3, []byte("b")), nil)
	b.must("append again after the end of the epoch", log.Append(b.ctx, 1, 3, data(3)), nil)
	b.must("append the same in another epoch", log.Append(b.ctx, 2, 3, data(3)), order.ErrUnavailable)
	b.must("append another one after the end of the epoch", log.Append(b.ctx, 1, 3, []byte("x")), order.ErrDeposed)
}

func testSizes(b *bench) {
	log := b.open()
	b.fill(log, 0)
	large := bytes.Repeat([]byte{0, 255}, order.MaxRecord/2)
	b.must("append MaxRecord", log.Append(b.ctx, 1, 1, large), nil)
	b.must("append more", log.Append(b.ctx, 1, 2, append(large, 0)), order.ErrTooLarge)
	if got := b.collect(log, 0, 2); !bytes.Equal(got[1].Data, large) {
		b.Error("the record of MaxRecord bytes has changed")
	}
}

func testLast(b *bench) {
	log, other := b.open(), b.open()
	last := func(applied, want uint64, wantErr error) {
		b.Helper()
		index, err := other.Last(b.ctx, applied)
		b.must(fmt.Sprintf("last after %d", applied), err, wantErr)
		if index != want {
			b.Errorf("last after %d is %d, want %d", applied, index, want)
		}
	}
	last(0, 0, nil)
	last(1, 0, order.ErrBehind)
	b.fill(log, 5)
	for applied := range uint64(6) {
		last(applied, 5, nil)
	}
	last(6, 0, order.ErrBehind)
	b.must("trim", log.Trim(b.ctx, 3), nil)
	last(5, 5, nil)
	last(3, 5, nil)
	last(2, 0, order.ErrTrimmed)
	last(0, 0, order.ErrTrimmed)
}

func testFollow(b *bench) {
	log, other := b.open(), b.open()
	events := b.follow(other, 0)
	b.equal(take(b, events, 1), []string{"epoch 0 "})
	b.fill(log, 2)
	b.equal(take(b, events, 3), []string{"epoch 1 a", "1 record 1", "2 record 2"})
	b.must("beat", log.Beat(b.ctx, 1), nil)
	b.must("append", log.Append(b.ctx, 1, 3, data(3)), nil)
	b.equal(take(b, events, 2), []string{"beat", "3 record 3"})
	b.must("raise", other.Raise(b.ctx, 1, 3, []byte("b")), nil)
	b.must("append", other.Append(b.ctx, 2, 4, data(4)), nil)
	b.must("beat", other.Beat(b.ctx, 2), nil)
	b.equal(take(b, events, 3), []string{"epoch 2 b", "4 record 4", "beat"})
	events = b.follow(other, 2)
	b.equal(take(b, events, 3), []string{"epoch 2 b", "3 record 3", "4 record 4"})
}

// Follow gives all records that are there, and the records that are appended meanwhile.
func testFollowPages(b *bench) {
	const records = 150
	log, other := b.open(), b.open()
	b.fill(log, records)
	events := b.follow(other, 10)
	take(b, events, 1)
	b.must("append", log.Append(b.ctx, 1, records+1, data(records+1)), nil)
	for index := uint64(11); index <= records+1; index++ {
		b.equal(take(b, events, 1), []string{fmt.Sprintf("%d record %d", index, index)})
	}
}

func testFollowEnds(b *bench) {
	log := b.open()
	b.fill(log, 3)
	mine := errors.New("mine")
	b.must("follow with an error of its own", log.Follow(b.ctx, 0, func(order.Event) error { return mine }), mine)
	b.must("follow ahead of the log", log.Follow(b.ctx, 4, func(order.Event) error { return nil }), order.ErrBehind)
	ctx, cancel := context.WithCancel(b.ctx)
	err := log.Follow(ctx, 0, func(e order.Event) error {
		if e.Index == 3 {
			cancel()
		}
		return nil
	})
	cancel()
	b.must("follow until the context ends", err, context.Canceled)
	b.must("trim", log.Trim(b.ctx, 2), nil)
	b.must("follow behind the log", log.Follow(b.ctx, 1, func(order.Event) error { return nil }), order.ErrTrimmed)
}

func testTrim(b *bench) {
	log := b.open()
	b.must("trim nothing", log.Trim(b.ctx, 10), nil)
	b.fill(log, 5)
	for _, step := range []struct{ upTo, first uint64 }{{0, 1}, {2, 3}, {1, 3}, {100, 5}} {
		b.must("trim", log.Trim(b.ctx, step.upTo), nil)
		got := b.collect(log, step.first-1, 1+6-int(step.first))
		if got[1].Index != step.first {
			b.Errorf("after a trim up to %d the first record is %d, want %d", step.upTo, got[1].Index, step.first)
		}
		if step.first > 1 {
			_, err := log.Last(b.ctx, step.first-2)
			b.must("last behind the log", err, order.ErrTrimmed)
		}
	}
	for _, index := range []uint64{1, 2, 3, 4} { // a commit that is late changes nothing
		b.must("append a trimmed record", log.Append(b.ctx, 1, index, data(index)), order.ErrTrimmed)
	}
	b.must("raise after a trimmed record", log.Raise(b.ctx, 1, 2, nil), order.ErrDeposed)
	b.must("append after a trim", log.Append(b.ctx, 1, 6, data(6)), nil)
	b.equal(b.collect(log, 4, 3)[1:], []string{"5 record 5", "6 record 6"})
}

func testAnnounce(b *bench) {
	log, other := b.open(), b.open()
	b.must("announce", log.Announce(b.ctx, "a", []byte("1")), nil)
	b.must("announce", log.Announce(b.ctx, "a", []byte("2")), nil)
	b.must("announce", other.Announce(b.ctx, "b/c", []byte{}), nil)
	b.must("announce", other.Announce(b.ctx, "d", []byte("3")), nil)
	b.must("announce nothing", log.Announce(b.ctx, "d", nil), nil)
	b.must("announce nothing again", log.Announce(b.ctx, "d", nil), nil)
	all, err := other.Announced(b.ctx)
	b.must("announced", err, nil)
	if len(all) != 2 || string(all["a"]) != "2" || all["b/c"] == nil || len(all["b/c"]) != 0 {
		b.Errorf("announced is %q", all)
	}
}

// Several servers raise the epoch and append, each as soon as it can. The log has each acknowledged record, once.
func testRivals(b *bench) {
	const rivals, each = 3, 20
	follower := b.open()
	events := b.follow(follower, 0)
	take(b, events, 1)
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		acked = map[string]uint64{}
		known atomic.Uint64 // the last epoch that a rival has raised
	)
	for rival := range rivals {
		log := b.open()
		group.Go(func() {
			for n := 0; n < each && b.ctx.Err() == nil; {
				epoch := known.Load()
				index, err := log.Last(b.ctx, 0)
				if err == nil {
					err = log.Raise(b.ctx, epoch, index, fmt.Appendf(nil, "%d", rival))
				}
				if err != nil {
					continue
				}
				epoch++
				known.Store(epoch)
				for err == nil && n < each {
					index++
					text := fmt.Sprintf("%d of %d", n, rival)
					if err = log.Append(b.ctx, epoch, index, []byte(text)); err == nil {
						n++
						mu.Lock()
						acked[text] = index
						mu.Unlock()
					}
				}
			}
		})
	}
	group.Wait()
	at, epoch := uint64(0), uint64(0)
	for at < rivals*each {
		e := take(b, events, 1)[0]
		if e.Epoch != nil {
			if e.Epoch.Number != epoch+1 {
				b.Fatalf("epoch %d follows %d", e.Epoch.Number, epoch)
			}
			epoch++
			continue
		}
		if at++; e.Index != at || acked[string(e.Data)] != at {
			b.Fatalf("%q has the index %d behind %d, and was acknowledged at %d", e.Data, e.Index, at-1, acked[string(e.Data)])
		}
	}
	if len(acked) != rivals*each {
		b.Errorf("%d records were acknowledged, want %d", len(acked), rivals*each)
	}
}

func testClosed(b *bench) {
	log, other := b.open(), b.open()
	b.fill(log, 1)
	ended, followed := make(chan error, 1), make(chan struct{}, 10)
	go func() {
		ended <- log.Follow(b.ctx, 0, func(order.Event) error { followed <- struct{}{}; return nil })
	}()
	<-followed
	b.must("close", log.Close(), nil)
	b.must("close again", log.Close(), nil)
	b.must("follow until the log is closed", <-ended, order.ErrUnavailable)
	b.must("append to a closed log", log.Append(b.ctx, 1, 2, data(2)), order.ErrUnavailable)
	b.must("append", other.Append(b.ctx, 1, 2, data(2)), nil)
}

// follow follows a log until the end of the test.
func (b *bench) follow(log order.Log, after uint64) <-chan order.Event {
	events := make(chan order.Event, 1000)
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() {
		done <- log.Follow(ctx, after, func(e order.Event) error { events <- e; return nil })
		close(events)
	}()
	b.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			b.Errorf("follow ended: %v", err)
		}
	})
	return events
}

// collect returns the first events of a Follow.
func (b *bench) collect(log order.Log, after uint64, n int) (events []order.Event) {
	b.Helper()
	enough := errors.New("enough")
	err := log.Follow(b.ctx, after, func(e order.Event) error {
		if events = append(events, e); len(events) == n {
			return enough
		}
		return nil
	})
	b.must("follow", err, enough)
	return events
}

func take(b *bench, events <-chan order.Event, n int) (taken []order.Event) {
	b.Helper()
	for range n {
		select {
		case e, open := <-events:
			if !open {
				b.Fatal("follow has ended")
			}
			taken = append(taken, e)
		case <-b.ctx.Done():
			b.Fatalf("only %d of %d events came", len(taken), n)
		}
	}
	return taken
}

func (b *bench) equal(events []order.Event, want []string) {
	b.Helper()
	var got []string
	for _, e := range events {
		switch {
		case e.Epoch != nil:
			got = append(got, fmt.Sprintf("epoch %d %s", e.Epoch.Number, e.Epoch.Decider))
		case e.Index > 0:
			got = append(got, fmt.Sprintf("%d %s", e.Index, e.Data))
		default:
			got = append(got, "beat")
		}
	}
	if !slices.Equal(got, want) {
		b.Fatalf("the events are %q, want %q", got, want)
	}
}
