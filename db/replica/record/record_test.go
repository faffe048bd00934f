package record_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

const at claim.Time = 1_790_000_000_000_000

var (
	made = &claim.Claim{
		ID: "a", Resource: "r", Owner: "o", Identity: "i", Units: claim.Shared, Type: claim.Presence, TTL: time.Minute + 1,
		Session: "s", WaitTTL: 3 * time.Second, UserData: []byte("{}"), Value: "v", Status: claim.Waiting,
		Enqueued: uint64(at) - 7, Version: uint64(at) + 9, Deadline: at - 3e6, Created: at - 5,
	}
	granted = with(made, func(c *claim.Claim) {
		c.Status, c.Token, c.Version, c.Activated, c.Deadline = claim.Active, uint64(at)+10, uint64(at)+10, at, claim.Forever
	})
	renewed = with(granted, func(c *claim.Claim) {
		c.Version, c.Deadline, c.TTL, c.Value, c.Type = uint64(at)+11, at+60e6, time.Hour, "w", claim.Lock
	})
	ended = with(renewed, func(c *claim.Claim) {
		c.Status, c.Version, c.Finished, c.Reason, c.EndedBy = claim.Revoked, 1<<62+1, at+1, "why", "e"
	})
	attached = &claim.Session{
		ID: "s", Owner: "o", Identity: "i", Secret: []byte("secret"), TTL: time.Minute, Server: "here", Attached: at - 1, Created: at - 2, Version: uint64(at),
	}
	ending = &claim.Session{
		ID: "e", Secret: []byte{}, Deadline: at + 2, Version: 7, Ending: claim.Ending{Active: claim.Expired, Waiting: claim.Aborted, Reason: "why", By: "me"},
	}
)

func with(c *claim.Claim, change func(*claim.Claim)) *claim.Claim {
	changed := *c
	change(&changed)
	return &changed
}

func step(before, after *claim.Claim) claim.Transition {
	return claim.Transition{Before: before, After: after}
}

// example has everything that a record may have.
func example() *record.Record {
	again := *attached
	again.Version++
	again.Attached++
	return &record.Record{
		Header: record.Header{Wall: at, Lease: at - 3e6},
		Claims: []claim.Transition{step(nil, made), step(made, granted), step(granted, renewed), step(renewed, ended), step(nil, granted)},
		Sessions: []claim.SessionChange{
			{After: attached}, {Before: attached, After: &again}, {Before: attached, After: ending}, {Before: attached},
		},
		Servers: []record.Server{{Name: "here", Seen: at}, {Name: "there", Gone: true}},
		Rows:    []record.Row{{Name: "r", Version: 1}, {Name: "q", Version: uint64(at), Dropped: true}},
		Floor:   uint64(at) - 1, Quarantine: at + 5,
		Batches: []record.Batch{{Origin: record.Origin{Node: 5, Seq: 1<<40 + 1}, Claims: 2, Outcome: []byte("outcome")}, {Origin: record.Origin{Node: 6, Seq: 1}, Outcome: []byte{}}},
		Cuts:    []record.Cut{{Entry: 1 << 40, Finished: at - 9e6, ID: "c"}},
		Sums:    record.Sums{{Part: 'r', Sum: 1<<63 + 7}, {Part: record.PartSessions, Sum: 1}},
		Format:  2,
	}
}

func read(t testing.TB, r *record.Record) *record.Decoded {
	t.Helper()
	buf, sum := record.Append(nil, 7, r)
	if got, ok := record.Checksum(7, buf); !ok || got != sum {
		t.Fatal("the checksum does not hold")
	}
	if _, ok := record.Checksum(8, buf); ok {
		t.Fatal("the checksum is not chained to the one before")
	}
	d, err := record.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRecord(t *testing.T) {
	r := example()
	d := read(t, r)
	if d.Header != r.Header || d.Floor != r.Floor || !reflect.DeepEqual(d.Servers, r.Servers) || !reflect.DeepEqual(d.Rows, r.Rows) ||
		!reflect.DeepEqual(d.Batches, r.Batches) || !reflect.DeepEqual(d.Cuts, r.Cuts) || !reflect.DeepEqual(d.Sums, r.Sums) || d.Format != r.Format || d.Quarantine != r.Quarantine {
		t.Errorf("got %+v", d)
	}
	for i, p := range d.Claims {
		change := r.Claims[i]
		var got claim.Claim
		if change.Before != nil {
			got = *change.Before
		}
		p.Apply(&got)
		if !reflect.DeepEqual(got, *change.After) {
			t.Errorf("change %d: got %+v, want %+v", i, got, *change.After)
		}
	}
	want := []record.Session{
		{ID: "s", Version: attached.Version, Put: attached}, {ID: "s", Version: attached.Version + 1, Attached: attached.Attached + 1}, {ID: "e", Version: 7, Put: ending}, {ID: "s", Ended: true},
	}
	if !reflect.DeepEqual(d.Sessions, want) {
		t.Errorf("got sessions %+v", d.Sessions)
	}
}

// TestThen: patches of one claim, one after the other, are one.
func TestThen(t *testing.T) {
	d := read(t, example())
	for from := range 3 {
		sum := d.Claims[from]
		for i := from + 1; i < 4; i++ {
			sum = sum.Then(&d.Claims[i])
			var before claim.Claim
			if from > 0 {
				before = *example().Claims[from].Before
			}
			sum.Apply(&before)
			if want := *example().Claims[i].After; !reflect.DeepEqual(before, want) {
				t.Errorf("%d to %d: got %+v, want %+v", from, i, before, want)
			}
		}
	}
}

// TestPacked: a patch that was packed is the same one.
func TestPacked(t *testing.T) {
	var buf []byte
	for i, p := range read(t, example()).Claims {
		var packed codec.Packed
		packed, buf = p.Pack(buf)
		clear(buf[:cap(buf)]) // it is another's now
		if got := packed.Patch(); !reflect.DeepEqual(got, p) || packed.ID() != p.Claim.ID {
			t.Errorf("%d: got %q, %+v, want %+v", i, packed.ID(), got, p)
		}
	}
}

func TestMerge(t *testing.T) {
	other := with(made, func(c *claim.Claim) { c.ID = "b" })
	got := record.Merge([]claim.Transition{step(nil, made), step(made, granted), step(granted, ended), step(nil, other), step(renewed, ended)})
	want := []claim.Transition{step(nil, granted), step(granted, ended), step(nil, other), step(renewed, ended)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

// TestNumbers writes numbers that are near the times of the record, and such as are far away.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		time := func(what string) claim.Time { return claim.Time(rapid.Int64().Draw(t, what)) }
		r := &record.Record{Header: record.Header{Wall: time("wall"), Lease: time("lease")}}
		c := *made
		c.Deadline, c.Created, c.TTL = time("deadline"), time("created"), 1
		c.Version, c.Enqueued = rapid.Uint64().Draw(t, "version"), rapid.Uint64().Draw(t, "enqueued")
		r.Claims = []claim.Transition{step(nil, &c)}
		buf, _ := record.Append(nil, 0, r)
		d, err := record.Read(buf)
		if err != nil || !reflect.DeepEqual(d.Claims[0].Claim, c) || d.Header != r.Header {
			t.Fatalf("got %+v, want %+v (%v)", d, c, err)
		}
	})
}

func TestNoRecord(t *testing.T) {
	whole, _ := record.Append(nil, 0, example())
	for n := range len(whole) - 4 {
		cut := append(bytes.Clone(whole[:n]), 0, 0, 0, 0)
		if _, err := record.Read(cut); err != nil && !errors.Is(err, record.ErrFormat) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	for name, wrong := range map[string][]byte{"nothing": nil, "short": whole[:4]} {
		if _, err := record.Read(wrong); !errors.Is(err, record.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for bit := range 8 * len(whole) {
		flipped := bytes.Clone(whole)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, ok := record.Checksum(0, flipped); ok {
			t.Fatalf("the checksum holds with bit %d flipped", bit)
		}
	}
}

// FuzzRead: data that is no record is an error, never a panic; a record is written again unchanged.
func FuzzRead(f *testing.F) {
	buf, _ := record.Append(nil, 0, example())
	f.Add(buf)
	f.Add([]byte{record.Version, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, buf []byte) {
		d, err := record.Read(buf)
		if err != nil {
			if !errors.Is(err, record.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		for _, p := range d.Claims {
			var c claim.Claim
			p.Apply(&c)
		}
	})
}
