package replica_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// random returns a command about a few resources, sessions and claims.
func random(rnd *rand.Rand, next int) claim.Command {
	resource, session, id := fmt.Sprint("r", rnd.IntN(6)), fmt.Sprint("s", rnd.IntN(4)), fmt.Sprintf("c%03d", rnd.IntN(next+1)*37%1000)
	fresh := fmt.Sprintf("c%03d", next*37%1000)
	switch rnd.IntN(9) {
	case 0, 1, 2:
		return claim.Create{ID: fresh, Resource: resource, Owner: "o", TTL: time.Hour, Units: dbtest.EitherUnits(rnd.IntN(2)), UserData: []byte("{}")}
	case 3:
		return claim.Create{ID: fresh, Resource: resource, Owner: "o", Session: session, Server: "here"}
	case 4:
		return claim.Renew{ID: id, TTL: 2 * time.Hour}
	case 5, 6:
		return claim.End{ID: id}
	case 7:
		return claim.Attach{Session: claim.Session{ID: session, TTL: time.Hour}, Server: "here"}
	default:
		return claim.EndSession{ID: session, Active: claim.Expired, Waiting: claim.Aborted}
	}
}

// TestSnapshots: a state made from a snapshot and the records since equals the original. Snapshots are made from
// snapshots, with changes of everything between.
func TestSnapshots(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	folder := filepath.Join(t.TempDir(), "data")
	next := 0
	for round := range 25 {
		s := open(t, folder)
		name := fmt.Sprint("server ", round)
		if err := s.Register(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for range 12 {
			for range 1 + rnd.IntN(6) {
				_ = do(s, random(rnd, next)) // many are refused
				next++
			}
			switch rnd.IntN(6) {
			case 0:
				if _, err := s.PruneResources(t.Context(), "", claim.Forever, 100); err != nil {
					t.Fatal(err)
				}
			case 1:
				if err := s.Snapshot(); err != nil {
					t.Fatal(err)
				}
			case 2:
				if err := s.Beat(t.Context(), false); err != nil {
					t.Fatal(err)
				}
			}
		}
		if rnd.IntN(3) == 0 {
			if err := s.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		before := s.Dump()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, folder)
		if after := s.Dump(); string(after) != string(before) {
			t.Fatalf("round %d: the state is another one: %d bytes, and %d before", round, len(after), len(before))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestIDThatIsUsedAgain: a snapshot has the version of a resource even if another claim has reused the id of the last
// one to change it.
func TestIDThatIsUsedAgain(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	s := open(t, folder)
	dbtest.Do(t, s, claim.Create{ID: "c", Resource: "first", TTL: time.Hour})
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	dbtest.Do(t, s, claim.End{ID: "c"})
	if n, err := s.Prune(t.Context(), claim.Forever, 100); n != 1 || err != nil {
		t.Fatalf("%d are deleted (%v)", n, err)
	}
	dbtest.Do(t, s, claim.Create{ID: "c", Resource: "second", TTL: time.Hour})
	before := s.Dump()
	if err := errors.Join(s.Snapshot(), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, folder)
	if after := s.Dump(); string(after) != string(before) {
		t.Errorf("the state is another one: %q, and %q before", after, before)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// withSnapshots opens a store whose snapshots are on a disk in memory.
func withSnapshots(t *testing.T) (*replica.Store, *disktest.Disk, replica.Options) {
	t.Helper()
	d, options := disktest.New(), small
	options.Snapshots = d
	s, err := replica.OpenWith(filepath.Join(t.TempDir(), "data"), options)
	if err != nil {
		t.Fatal(err)
	}
	return s, d, options
}

// TestSnapshotOnFullDisk: a failed snapshot takes no room from the log.
func TestSnapshotOnFullDisk(t *testing.T) {
	s, d, _ := withSnapshots(t)
	defer func() { _ = s.Close() }()
	for n := range 2 {
		dbtest.Do(t, s, create(n))
		for _, failing := range []string{"write new", "sync new", "rename new"} {
			d.SetFault(func(operation string) error {
				if operation == failing {
					return syscall.ENOSPC
				}
				return nil
			})
			if err := s.Snapshot(); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("%s: %v", failing, err)
			}
			if names, err := d.List(); err != nil || len(names) != n {
				t.Errorf("%s: there are %q (%v)", failing, names, err)
			}
		}
		d.SetFault(nil)
		if err := s.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCloseDuringSnapshot: a snapshot that takes long does not hold up the end of a server.
func TestCloseDuringSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New()
		options := small
		options.Snapshots, options.SnapshotBytes = d, 4<<20
		folder := filepath.Join(t.TempDir(), "data")
		s, err := replica.OpenWith(folder, options)
		if err != nil {
			t.Fatal(err)
		}
		var writing atomic.Bool
		d.SetFault(func(operation string) error {
			if operation == "write new" {
				writing.Store(true)
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		n := 0
		for ; !writing.Load(); n++ {
			made := create(n)
			made.UserData = make([]byte, 60<<10)
			dbtest.Do(t, s, made)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
			time.Sleep(time.Minute) // until it has ended
		}
		d.SetFault(nil)
		if s, err = replica.OpenWith(folder, options); err != nil {
			t.Fatal(err)
		}
		if count, err := s.Census(t.Context(), 0); err != nil || count.Active != int64(n) {
			t.Errorf("%+v, want %d active (%v)", count, n, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLogIsBounded: the log forgets what is in a snapshot and in the history, by itself.
func TestLogIsBounded(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "data"))
	defer func() { _ = s.Close() }()
	end := time.Now().Add(5 * time.Minute)
	written := 0
	for n := 0; written < 8*small.SegmentBytes || s.LogBytes() > 2*small.SegmentBytes; n++ {
		if time.Now().After(end) {
			t.Fatalf("the log has %d bytes of %d", s.LogBytes(), written)
		}
		cmd := create(n)
		cmd.Value += string(make([]byte, 5000))
		dbtest.Do(t, s, cmd)
		dbtest.Do(t, s, claim.End{ID: cmd.ID})
		written += len(cmd.Value)
	}
}

// TestPending: when too many claims wait for a history that cannot be written, the oldest are given up, and become a
// gap.
func TestPending(t *testing.T) {
	p := replica.NewPending(20_000)
	for n := range uint64(100) {
		p.Add(n+1, &claim.Claim{ID: fmt.Sprint(n)})
	}
	ended, gap := p.Ended()
	if gap == nil || gap.After != 0 || gap.Entry+1 != ended[0].Entry || gap.Claims+len(ended) != 100 || len(ended) < 15 {
		t.Fatalf("%d claims from entry %d on, gap %+v", len(ended), ended[0].Entry, gap)
	}
	wrote := *gap
	for n := uint64(100); *gap == wrote; n++ {
		p.Add(n+1, &claim.Claim{ID: fmt.Sprint(n)})
	}
	p.Done(wrote.Entry, &wrote)
	ended, grown := p.Ended()
	if grown.After != wrote.Entry || grown.Entry+1 != ended[0].Entry {
		t.Fatalf("claims from entry %d on, gap %+v after %+v", ended[0].Entry, grown, wrote)
	}
	last := ended[len(ended)-1].Entry
	p.Done(last, grown)
	if ended, gap := p.Ended(); len(ended) != 0 || gap != nil {
		t.Errorf("in the end %d claims, gap %+v", len(ended), gap)
	}
}

// TestPendingIsBounded: whatever text of a claim is long counts.
func TestPendingIsBounded(t *testing.T) {
	const most = 100_000
	long := strings.Repeat("x", 1024)
	for name, c := range map[string]claim.Claim{
		"id": {ID: long}, "resource": {Resource: long}, "owner": {Owner: long}, "identity": {Identity: long}, "session": {Session: long},
		"value": {Value: long}, "user data": {UserData: []byte(long)}, "reason": {Reason: long}, "ended by": {EndedBy: long},
	} {
		p := replica.NewPending(most)
		for n := range uint64(200) {
			added := c
			p.Add(n+1, &added)
			if ended, _ := p.Ended(); len(ended)*len(long) > most {
				t.Errorf("%s: %d claims are kept", name, len(ended))
				break
			}
		}
	}
}

// TestGivenUpWhileWritten: claims that are given up while the history is written are a gap unless the history has got
// them.
func TestGivenUpWhileWritten(t *testing.T) {
	for name, c := range map[string]struct {
		added uint64 // while all up to entry 30 are written
		after uint64 // which the gap follows, 0 for none
	}{
		"all are written":  {10, 0},
		"some are written": {40, 30},
	} {
		t.Run(name, func(t *testing.T) {
			p := replica.NewPending(20_000)
			for n := range 30 + c.added {
				p.Add(n+1, &claim.Claim{ID: fmt.Sprint(n)})
			}
			if _, gap := p.Ended(); gap == nil {
				t.Fatal("nothing was given up")
			}
			p.Done(30, nil)
			switch ended, gap := p.Ended(); {
			case (gap == nil) != (c.after == 0):
				t.Errorf("the gap is %+v", gap)
			case gap != nil && gap.After != c.after:
				t.Errorf("the gap is %+v, and follows entry %d", gap, c.after)
			case gap == nil && ended[0].Entry != 31:
				t.Errorf("kept is what follows entry %d", ended[0].Entry-1)
			}
		})
	}
}

// TestSnapshotThatStays: when the snapshot before cannot be deleted, the new one still counts: it is made once, and the
// log forgets its entries. The next one deletes both.
func TestSnapshotThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, options := withSnapshots(t)
		defer func() { _ = s.Close() }()
		large := func(n int) claim.Create {
			made := create(n)
			made.Value = strings.Repeat("v", 2*options.SegmentBytes)
			return made
		}
		snapshots := func() int {
			names, err := d.List()
			if err != nil {
				t.Fatal(err)
			}
			return len(names)
		}
		dbtest.Do(t, s, large(0))
		time.Sleep(time.Minute)
		var made atomic.Int64
		d.SetFault(func(operation string) error {
			switch {
			case operation == "rename new":
				made.Add(1)
			case strings.HasPrefix(operation, "remove "):
				return syscall.EPERM
			}
			return nil
		})
		dbtest.Do(t, s, large(1))
		time.Sleep(time.Minute)
		if made.Load() != 1 || snapshots() != 2 || s.LogBytes() > 3*options.SegmentBytes {
			t.Errorf("%d snapshots are made, %d are there, and %d bytes of the log", made.Load(), snapshots(), s.LogBytes())
		}
		d.SetFault(nil)
		dbtest.Do(t, s, large(2))
		time.Sleep(time.Minute)
		if n := snapshots(); n != 1 {
			t.Errorf("in the end there are %d snapshots", n)
		}
	})
}

// TestSlowSnapshot: a large snapshot may take long without an error in the log. If its disk has done nothing for a
// minute, there is one.
func TestSlowSnapshot(t *testing.T) {
	for hangs, said := range map[time.Duration]bool{40 * time.Second: false, 2 * time.Minute: true} {
		synctest.Test(t, func(t *testing.T) {
			d, options := disktest.New(), small
			var log fixtures.Buffer
			options.Snapshots, options.Log = d, slog.New(slog.NewTextHandler(&log, nil))
			s, err := replica.OpenWith(filepath.Join(t.TempDir(), "data"), options)
			if err != nil {
				t.Fatal(err)
			}
			var writes atomic.Int32
			d.SetFault(func(operation string) error {
				if operation == "write new" {
					writes.Add(1)
					time.Sleep(hangs)
				}
				return nil
			})
			for n := range 4 {
				made := create(n)
				made.Value = strings.Repeat("v", 1<<20)
				dbtest.Do(t, s, made)
			}
			time.Sleep(20 * time.Minute)
			if reported := strings.Contains(log.String(), "cannot be written"); reported != said || writes.Load() < 3 {
				t.Errorf("after %d writes of %s each the log says %q", writes.Load(), hangs, log.String())
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSnapshotInSteps: what a snapshot needs of memory does not grow with the log, which is long when there could be none before.
func TestSnapshotInSteps(t *testing.T) {
	d, folder := disktest.New(), filepath.Join(t.TempDir(), "data")
	options := small
	options.Snapshots = d
	s, err := replica.OpenWith(folder, options)
	if err != nil {
		t.Fatal(err)
	}
	d.SetFault(func(operation string) error {
		if operation == "create new" {
			return syscall.ENOSPC
		}
		return nil
	})
	for n := 0; s.LogBytes() < 8*small.SegmentBytes; n++ {
		made := create(n)
		made.Value = strings.Repeat("v", 5000)
		dbtest.Do(t, s, made)
		if n%2 == 0 {
			dbtest.Do(t, s, claim.End{ID: made.ID})
		}
	}
	var made atomic.Int64
	d.SetFault(func(operation string) error {
		if operation == "rename new" {
			made.Add(1)
		}
		return nil
	})
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	if names, err := d.List(); err != nil || len(names) != 1 || made.Load() < 3 || s.LogBytes() > small.SegmentBytes {
		t.Errorf("after %d snapshots there are %q (%v), and %d bytes of the log", made.Load(), names, err, s.LogBytes())
	}
	before := s.Dump()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = replica.OpenWith(folder, options); err != nil {
		t.Fatal(err)
	}
	if after := s.Dump(); string(after) != string(before) {
		t.Error("the state is another one")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestQuarantineInSnapshot: a snapshot has the quarantine of the store.
func TestQuarantineInSnapshot(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	var until claim.Time
	err := replica.Fill(folder, func(to backup.Sink) error {
		h := backup.Head{Engine: "embedded", Lease: claim.Time(time.Now().UnixMicro())}
		until = h.Lease.Add(time.Hour)
		h.Quarantine = until
		return errors.Join(to.Begin(h), to.End(h))
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := open(t, folder)
		if got := s.ClockState().Quarantine; got != until {
			t.Errorf("the quarantine ends at %d, want %d", got, until)
		}
		if err := errors.Join(do(s, create(1)), s.Snapshot(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
