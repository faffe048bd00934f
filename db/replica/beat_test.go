package replica_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/internal/rules/claim"
)

// beatFor has a store beat for a while, as a committer does.
func beatFor(t *testing.T, s *replica.Store, length time.Duration) {
	t.Helper()
	for range length / db.BeatInterval {
		time.Sleep(db.BeatInterval)
		if err := s.Beat(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
}

func leaseTime(t *testing.T, s *replica.Store) claim.Time {
	t.Helper()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return now.Lease
}

// TestBeatsAreThin: without leases beats write nothing. With leases they write as often as bounds how much of lease time a
// restart loses: a quarter of the shortest TTL, and 5 s.
func TestBeatsAreThin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, d := filepath.Join(t.TempDir(), "data"), disktest.New()
		s := onDisk(t, folder, d)
		written := func() (n int) {
			before := s.LogBytes()
			beatFor(t, s, time.Minute)
			return s.LogBytes() - before
		}
		restart := func(most time.Duration) {
			t.Helper()
			before := leaseTime(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			d = d.Kill()
			time.Sleep(time.Hour) // does not count
			s = onDisk(t, folder, d)
			if lost := before.Sub(leaseTime(t, s)); lost < 0 || lost > most {
				t.Errorf("a restart loses %s of lease time", lost)
			}
		}
		begin := leaseTime(t, s)
		if n := written(); n != 0 {
			t.Errorf("%d bytes without leases", n)
		}
		if passed := leaseTime(t, s).Sub(begin); passed != time.Minute {
			t.Errorf("%s of lease time in a minute", passed)
		}
		frames := func(n int) (least, most int) { return n * 32, n * 128 }
		dbtest.Do(t, s, claim.Acquire{ID: "long", Resource: "long", Owner: "o", TTL: time.Hour})
		if n := written(); !within(n)(frames(12)) {
			t.Errorf("%d bytes for a lease of an hour", n)
		}
		beatFor(t, s, 4*time.Second)
		restart(5 * time.Second)
		dbtest.Do(t, s, claim.Acquire{ID: "short", Resource: "short", Owner: "o", TTL: 6 * time.Second})
		if n := written(); !within(n)(frames(40)) {
			t.Errorf("%d bytes for a lease of 6 s", n)
		}
		beatFor(t, s, time.Second)
		restart(1500 * time.Millisecond)
		dbtest.Do(t, s, claim.End{ID: "short"}, claim.End{ID: "long"})
		if n := written(); n != 0 {
			t.Errorf("%d bytes when all leases have ended", n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestQuarantineAfterRestart: a quarantine continues where it was when a server restarts, give or take 5 s, even if
// nothing else has a deadline. When it has ended, beats write nothing.
func TestQuarantineAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = 3 * time.Minute
		folder := filepath.Join(t.TempDir(), "data")
		err := replica.Fill(folder, func(to backup.Sink) error {
			h := backup.Head{Engine: "embedded", Lease: claim.Time(time.Now().UnixMicro())}
			h.Quarantine = h.Lease.Add(long)
			return errors.Join(to.Begin(h), to.End(h))
		})
		if err != nil {
			t.Fatal(err)
		}
		left := func(s *replica.Store) time.Duration {
			clock := s.ClockState()
			return clock.Quarantine.Sub(clock.Lease)
		}
		s := open(t, folder)
		beatFor(t, s, long/2)
		before := left(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, folder)
		if after := left(s); before > long/2 || after > before+5*time.Second {
			t.Errorf("left are %s, and were %s", after, before)
		}
		beatFor(t, s, long)
		bytes := s.LogBytes()
		beatFor(t, s, time.Minute)
		if more := s.LogBytes() - bytes; left(s) > 0 || more != 0 {
			t.Errorf("at the end %s are left, and %d bytes were written", left(s), more)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func within(n int) func(least, most int) bool {
	return func(least, most int) bool { return least <= n && n <= most }
}

// TestLeaseTimeStands: at most half a second counts of a pause of the process, of a step of its clock, or of a time
// without writes to the log; and nothing counts if it is known that nothing could be committed.
func TestLeaseTimeStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, d := filepath.Join(t.TempDir(), "data"), disktest.New()
		s := onDisk(t, folder, d)
		dbtest.Do(t, s, claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour})
		passes := func(what string, most time.Duration, do func()) {
			t.Helper()
			before := leaseTime(t, s)
			do()
			if passed := leaseTime(t, s).Sub(before); passed > most {
				t.Errorf("%s: %s of lease time", what, passed)
			}
		}
		passes("a pause", db.MaxSilence, func() {
			time.Sleep(time.Minute)
			if err := s.Beat(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		})
		passes("a pause that is known", 0, func() {
			time.Sleep(time.Minute)
			if err := s.Beat(t.Context(), true); err != nil {
				t.Fatal(err)
			}
		})
		time.Sleep(time.Minute) // the work behind is done
		if err := s.Beat(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		passes("a slow disk", db.MaxSilence, func() {
			d.SetFault(func(string) error { time.Sleep(4 * time.Second); d.SetFault(nil); return nil })
			ended := make(chan error)
			go func() { ended <- do(s, create(1)) }()
			time.Sleep(time.Second)
			if err := s.Beat(t.Context(), false); err != nil { // it waits for the commit
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSessionsAfterRestart: a session whose server was killed has its TTL from the restart on, however long ago that server
// has written that it was there: until it was killed it may have answered heartbeats.
func TestSessionsAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 20 * time.Second
		folder, d := filepath.Join(t.TempDir(), "data"), disktest.New()
		s := onDisk(t, folder, d)
		if err := s.Register(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		dbtest.Do(t, s, claim.Attach{Session: claim.Session{ID: "s", Owner: "o", TTL: ttl}, Server: "first"})
		beatFor(t, s, 4*time.Second)
		dbtest.Do(t, s, claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour}) // says how late it is
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = onDisk(t, folder, d.Kill())
		restarted := leaseTime(t, s)
		if err := s.Register(t.Context(), "second"); err != nil {
			t.Fatal(err)
		}
		beatFor(t, s, 3*time.Second)
		if n, err := s.DetachSilent(t.Context(), db.ServerTimeout); err != nil || n != 1 {
			t.Fatalf("%d detached (%v)", n, err)
		}
		if found, _, err := s.Session(t.Context(), "s"); err != nil || found.Deadline < restarted.Add(ttl) {
			t.Errorf("it falls due %s after the restart (%v)", found.Deadline.Sub(restarted), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestManySessionsAreDetached: the sessions of a server that is gone are detached in steps: no record grows with their number.
func TestManySessionsAreDetached(t *testing.T) {
	const sessions, most = 2000, 1 << 20
	folder := filepath.Join(t.TempDir(), "data")
	s := open(t, folder)
	defer func() { _ = s.Close() }()
	if err := s.Register(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < sessions; n += 100 {
		var attach []claim.Command
		for i := range 100 {
			attach = append(attach, claim.Attach{Session: claim.Session{ID: fmt.Sprint("session ", n+i), Owner: strings.Repeat("o", 1024), TTL: time.Hour}, Server: "gone"})
		}
		dbtest.Do(t, s, attach...)
	}
	if err := s.Register(t.Context(), "next"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.DetachSilent(t.Context(), -time.Hour); err != nil || n != sessions {
		t.Fatalf("%d detached (%v)", n, err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "log", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Size() > most {
			t.Errorf("%s has %d bytes", file, info.Size())
		}
	}
	if attached, err := s.AttachedTo(t.Context(), "gone"); err != nil || len(attached) != 0 {
		t.Errorf("%d are attached still (%v)", len(attached), err)
	}
	if n, err := s.DetachSilent(t.Context(), -time.Hour); err != nil || n != 0 {
		t.Errorf("once more: %d detached (%v)", n, err)
	}
}
