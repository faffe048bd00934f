package replica_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/filelog"
	"github.com/locket-service/locket/internal/rules/claim"
)

func openSmall(folder string) (*replica.Store, error) { return replica.OpenWith(folder, small) }

// onDisk opens a store whose log is on a disk in memory.
func onDisk(t testing.TB, folder string, d *disktest.Disk) *replica.Store {
	t.Helper()
	return atClock(t, folder, d, new(wallClock))
}

func create(n int) claim.Create {
	return claim.Create{ID: fmt.Sprint(n), Resource: fmt.Sprint("r", n), TTL: time.Hour, Value: strings.Repeat("v", n%700)}
}

// has checks the claims up to n: all that were made exist; the last one may or may not if its outcome is unknown.
func has(t testing.TB, s *replica.Store, made int, unknown bool) (there int) {
	t.Helper()
	for n := range made + 2 {
		_, _, _, err := s.Get(t.Context(), fmt.Sprint(n), 0)
		switch {
		case err == nil && (n < made || n == made && unknown):
			there++
		case n < made || !errors.Is(err, claim.ErrNotFound):
			t.Fatalf("claim %d of %d: %v", n, made, err)
		}
	}
	return there
}

// TestFailingDisk: a write of the log that fails is the last one; its outcome is not known; after the power has gone too
// all is there that was acknowledged, and nothing else.
func TestFailingDisk(t *testing.T) {
	folder, d := filepath.Join(t.TempDir(), "data"), disktest.New()
	rnd := rand.New(rand.NewPCG(1, 1))
	made := 0
	for range failures {
		s := onDisk(t, folder, d)
		made = has(t, s, made, true)
		var left atomic.Int64
		left.Store(rnd.Int64N(40))
		boom := errors.New("boom")
		d.SetFault(func(operation string) error {
			if left.Add(-1) < 0 && !strings.HasSuffix(operation, " end") && !strings.HasSuffix(operation, " names") {
				return boom
			}
			return nil
		})
		var err error
		for ; err == nil; made++ {
			err = do(s, create(made))
		}
		made--
		if !errors.Is(err, db.ErrOutcomeUnknown) || errors.Is(err, db.ErrUnavailable) {
			t.Fatalf("the write that fails: %v", err)
		}
		if err := do(s, create(made)); !errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrOutcomeUnknown) {
			t.Fatalf("the one after it: %v", err)
		}
		if err := s.Beat(t.Context(), false); !errors.Is(err, db.ErrUnavailable) {
			t.Fatalf("a beat after it: %v", err)
		}
		if _, _, _, err := s.Get(t.Context(), "0", 0); !errors.Is(err, db.ErrUnavailable) {
			t.Fatalf("a read after it: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		d.SetFault(nil)
		d = d.Crash(rnd)
	}
}

// TestReadBesideSlowDisk: a read shows no change before the disk has it.
func TestReadBesideSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New()
		s := onDisk(t, filepath.Join(t.TempDir(), "data"), d)
		if err := do(s, create(0)); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		d.SetFault(func(string) error { <-gate; return nil })
		var working sync.WaitGroup
		working.Go(func() { _ = do(s, create(1)) })
		synctest.Wait()
		read := make(chan error, 1)
		working.Go(func() { _, _, _, err := s.Get(t.Context(), "1", 0); read <- err })
		synctest.Wait()
		select {
		case err := <-read:
			t.Errorf("a claim that is not on the disk is shown (%v)", err)
			read <- nil
		default:
		}
		close(gate)
		if err := <-read; err != nil {
			t.Error(err)
		}
		working.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestHangingDisk: a write that takes too long is the last one, even if it succeeds later on.
func TestHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, d := filepath.Join(t.TempDir(), "data"), disktest.New()
		s := onDisk(t, folder, d)
		if err := do(s, create(0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // what is done behind is done
		gate := make(chan struct{})
		d.SetFault(func(string) error { <-gate; return nil })
		begin := time.Now()
		if err := do(s, create(1)); !errors.Is(err, db.ErrOutcomeUnknown) {
			t.Errorf("the write that hangs: %v", err)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("it took %s", took)
		}
		if err := do(s, create(2)); !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("the one after it: %v", err)
		}
		close(gate)
		synctest.Wait()
		if err := do(s, create(2)); !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("after the disk has answered: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		d.SetFault(nil)
		s = onDisk(t, folder, d.Kill())
		has(t, s, 1, true)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestHangingRotation: a disk that does not answer while the log needs a new file holds up nobody for longer than a write may take.
func TestHangingRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New()
		s := onDisk(t, filepath.Join(t.TempDir(), "data"), d)
		gate := make(chan struct{})
		d.SetFault(func(operation string) error {
			if operation == "create next" {
				<-gate
			}
			return nil
		})
		var err error
		for made := 0; err == nil; made++ {
			err = do(s, create(made))
		}
		if !errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrOutcomeUnknown) {
			t.Errorf("what needs a new file: %v", err)
		}
		select {
		case <-s.About().Broken:
		default:
			t.Error("the disk counts as one that works")
		}
		close(gate)
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestFullDisk: while there is no room for the log to grow, or no more files may be opened, nothing is committed.
// Afterwards commits continue by themselves.
func TestFullDisk(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EMFILE, syscall.ENFILE} {
		t.Run(full.Error(), func(t *testing.T) { testFullDisk(t, full) })
	}
}

func testFullDisk(t *testing.T, full error) {
	folder, d := filepath.Join(t.TempDir(), "data"), disktest.New()
	s := onDisk(t, folder, d)
	d.SetFault(func(operation string) error {
		if operation == "create next" {
			return full
		}
		return nil
	})
	made := 0
	var err error
	for ; err == nil; made++ {
		err = do(s, create(made))
	}
	made--
	for range 3 {
		if !errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrOutcomeUnknown) {
			t.Fatalf("full: %v", err)
		}
		err = do(s, create(made))
	}
	has(t, s, made, false)
	d.SetFault(nil)
	for range 10 {
		if err := do(s, create(made)); err != nil {
			t.Fatal(err)
		}
		made++
	}
	has(t, s, made, false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = onDisk(t, folder, d.Kill())
	has(t, s, made, false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStartOnFullDisk: a store that is opened while the log cannot grow has everything that was acknowledged, even
// after a power cut in the middle of the last write, and changes nothing. When there is room, commits continue by
// themselves: locks stay held, and tokens rise.
func TestStartOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, d := filepath.Join(t.TempDir(), "data"), disktest.New()
		rnd := rand.New(rand.NewPCG(4, 5))
		made := 0
		for range failures / 3 {
			s := onDisk(t, folder, d)
			first := tokenOf(t, s, "0", made)
			torn := rnd.IntN(2) == 0
			made = fillLog(t, s, d, made, torn)
			for range 1 + rnd.IntN(2) {
				_ = s.Close() // a log that is broken is not closed
				d = d.Crash(rnd)
				d.SetFault(full)
				s = onDisk(t, folder, d)
				made = has(t, s, made, torn)
				if got := tokenOf(t, s, "0", made); first != 0 && got != first {
					t.Errorf("a token is %d, and was %d", got, first)
				}
				refuses(t, s, made)
			}
			d.SetFault(nil)
			time.Sleep(2 * time.Second)
			if err := do(s, create(made)); err != nil || len(s.About().Warnings) > 0 {
				t.Fatalf("with room: %v, warnings: %q", err, s.About().Warnings)
			}
			made = has(t, s, made+1, false)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s := onDisk(t, folder, d)
		first := tokenOf(t, s, "0", made)
		for _, cmd := range []claim.Command{claim.Create{ID: "next", Resource: "r0", TTL: time.Hour}, claim.End{ID: "0"}} {
			if tokenOf(t, s, "next", made) != 0 {
				t.Error("it was granted what another one holds")
			}
			if err := do(s, cmd); err != nil {
				t.Fatal(err)
			}
		}
		if next := tokenOf(t, s, "next", made); next <= first {
			t.Errorf("token %d after %d", next, first)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRolledBackOnFullDisk: a folder that was rolled back to an older state starts as after a restore, even if the disk
// is full at first.
func TestRolledBackOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, d := filepath.Join(t.TempDir(), "data"), disktest.New()
		s := onDisk(t, folder, d)
		made := fillLog(t, s, d, 0, false)
		if err := errors.Join(s.Close(), os.Remove(filepath.Join(folder, "run"))); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s = onDisk(t, folder, d)
			time.Sleep(3 * time.Second)
			refuses(t, s, made)
			if err := errors.Join(s.Failure(), s.Close()); err != nil {
				t.Fatal(err)
			}
		}
		s = onDisk(t, folder, d)
		d.SetFault(nil)
		time.Sleep(2 * time.Second)
		if now, err := s.Now(t.Context()); err != nil || s.ClockState().Quarantine <= now.Lease {
			t.Errorf("the quarantine ends at %d, and it is %d: %v", s.ClockState().Quarantine, now.Lease, err)
		}
		if err := do(s, create(made)); err != nil {
			t.Fatal(err)
		}
		if c, _, _, err := s.Get(t.Context(), fmt.Sprint(made), 0); err != nil || c.Status != claim.Waiting {
			t.Errorf("a claim in the quarantine is %v: %v", c.Status, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// full is a disk fault: the log cannot grow.
func full(operation string) error {
	if operation == "create next" {
		return syscall.ENOSPC
	}
	return nil
}

// fillLog makes claims until the log cannot grow, and returns how many there are. With torn the write of a smaller one fails then.
func fillLog(t *testing.T, s *replica.Store, d *disktest.Disk, made int, torn bool) int {
	t.Helper()
	d.SetFault(full)
	var err error
	for ; err == nil; made++ {
		err = do(s, create(made))
	}
	made--
	if !torn {
		return made
	}
	d.SetFault(func(operation string) error {
		if strings.HasPrefix(operation, "write") {
			return syscall.EIO
		}
		return full(operation)
	})
	small := claim.Create{ID: fmt.Sprint(made), Resource: fmt.Sprint("r", made), TTL: time.Hour}
	if err = do(s, small); !errors.Is(err, db.ErrOutcomeUnknown) && !errors.Is(err, filelog.ErrFull) { // it may find no room either
		t.Errorf("the claim whose write fails: %v", err)
	}
	return made
}

// tokenOf returns the token of a claim, 0 for none.
func tokenOf(t *testing.T, s *replica.Store, id string, made int) uint64 {
	t.Helper()
	c, _, _, err := s.Get(t.Context(), id, 0)
	if err != nil && (made > 0 && id == "0" || !errors.Is(err, claim.ErrNotFound)) {
		t.Fatal(err)
	}
	return c.Token
}

// refuses fails the test unless a store refuses the next claim, and everything else that would write, because the disk is full.
func refuses(t *testing.T, s *replica.Store, made int) {
	t.Helper()
	for what, err := range map[string]error{
		"a claim": do(s, create(made)), "an end": do(s, claim.End{ID: "0"}), "a beat": s.Beat(t.Context(), false), "the beat after it": s.Beat(t.Context(), true), "a name": s.Register(t.Context(), "name"),
	} {
		if !errors.Is(err, db.ErrUnavailable) || !errors.Is(err, filelog.ErrFull) || errors.Is(err, db.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if warnings := s.About().Warnings; len(warnings) != 1 {
		t.Errorf("warnings: %q", warnings)
	}
	has(t, s, made, false)
}

// TestPowerCut: at whatever operation on the log and the snapshots the power goes, what was acknowledged is there afterwards.
func TestPowerCut(t *testing.T) {
	folder, log, snapshots := filepath.Join(t.TempDir(), "data"), disktest.New(), disktest.New()
	rnd := rand.New(rand.NewPCG(2, 3))
	acknowledged := map[string]claim.Status{}
	next := 0
	for range 2 * failures {
		s, err := replica.OpenWith(folder, replica.Options{SegmentBytes: 16 << 10, SnapshotBytes: 8 << 10, Delay: time.Millisecond, Disk: log, Snapshots: snapshots})
		if err != nil {
			t.Fatal(err)
		}
		for id, status := range acknowledged {
			if c, _, _, err := s.Get(t.Context(), id, 0); err != nil || c.Status < status {
				t.Fatalf("claim %s is %v (%v), and was %v", id, c.Status, err, status)
			}
			if err := do(s, claim.End{ID: id}); err != nil {
				t.Fatal(err)
			}
			delete(acknowledged, id)
		}
		if _, err := s.PruneResources(t.Context(), "", claim.Forever, 1000); err != nil { // a snapshot has few of them
			t.Fatal(err)
		}
		var left atomic.Int64
		left.Store(rnd.Int64N(200))
		off := errors.New("the power has gone")
		power := func(string) error {
			if left.Add(-1) < 0 {
				return off
			}
			return nil
		}
		log.SetFault(power)
		snapshots.SetFault(power)
		for err == nil {
			made := create(next)
			if err = do(s, made); err == nil {
				acknowledged[made.ID] = claim.Active
			}
			if err == nil && next%3 > 0 {
				if err = do(s, claim.End{ID: made.ID}); err == nil {
					acknowledged[made.ID] = claim.Released
				}
			}
			next++
		}
		_ = s.Close() // it may not be able to write
		log.SetFault(nil)
		snapshots.SetFault(nil)
		log, snapshots = log.Crash(rnd), snapshots.Crash(rnd)
	}
}
