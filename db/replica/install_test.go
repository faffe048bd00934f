package replica_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/snapshot"
	"github.com/locket-service/locket/internal/rules/claim"
)

// source is a store that others receive from.
type source struct {
	*replica.Store
	folder string
	closed bool
}

// filled returns a store with live claims and claims that have ended, and a snapshot.
func filled(t *testing.T, claims int) *source {
	t.Helper()
	s := &source{folder: filepath.Join(t.TempDir(), "data")}
	s.open(t)
	fill(t, s.Store, 0, claims)
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	return s
}

// open opens the store in the folder.
func (s *source) open(t *testing.T) {
	t.Helper()
	var err error
	if s.Store, err = replica.OpenWith(s.folder, replica.Options{Copied: true}); err != nil {
		t.Fatal(err)
	}
	s.closed = false
	t.Cleanup(func() { s.shut(t) })
}

// log returns the id of the log.
func (s *source) log(t *testing.T) uint64 {
	t.Helper()
	id, err := replica.LogOf(s.folder)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (s *source) shut(t *testing.T) {
	t.Helper()
	if !s.closed {
		s.closed = true
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// goOn returns a copy of the folder, and then changes the store.
func (s *source) goOn(t *testing.T) (older string) {
	t.Helper()
	s.shut(t)
	older = filepath.Join(t.TempDir(), "older")
	copyTo(t, s.folder, older)
	replica.Adopt(t, older)
	s.open(t)
	fill(t, s.Store, 10_000, 10_300)
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	return older
}

// fill makes claims with the numbers from one to another, and ends two thirds of them.
func fill(t *testing.T, s *replica.Store, from, to int) {
	t.Helper()
	for n := from; n < to; n += 100 {
		var commands []claim.Command
		for n := n; n < min(n+100, to); n++ {
			id := fmt.Sprintf("%d-%d", n*7919%10007, n) // in no order
			commands = append(commands, claim.Create{ID: id, Resource: fmt.Sprint("r", n), Owner: fmt.Sprint("o", n%7), TTL: time.Hour, UserData: fmt.Appendf(nil, "%d", n)})
			if n%3 != 0 {
				commands = append(commands, claim.End{ID: id, Reason: "done"})
			}
		}
		dbtest.Do(t, s, commands...)
	}
}

// send is an ask of a store's snapshot.
func send(t *testing.T, from *source) func([]byte, func([]byte) error) error {
	return func(request []byte, part func([]byte) error) error {
		return from.SendSnapshot(t.Context(), request, part)
	}
}

// TestReceiveSnapshot: a snapshot takes the place of nothing, and of an older state of the same log. The store then goes on
// after it.
func TestReceiveSnapshot(t *testing.T) {
	from := filled(t, 3000)
	older := from.goOn(t)
	want := from.Dump()
	for _, to := range []string{filepath.Join(t.TempDir(), "empty"), older} {
		if err := replica.ReceiveSnapshot(to, from.log(t), 0, send(t, from)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(dumpOf(t, to, nil), want) {
			t.Errorf("%s: the state is another one", filepath.Base(to))
		}
		var changed []byte
		dumpOf(t, to, func(s *replica.Store) {
			fill(t, s, 20_000, 20_010)
			if changed = s.Dump(); bytes.Equal(changed, want) {
				t.Error("nothing has changed")
			}
			if err := s.Snapshot(); err != nil {
				t.Error(err)
			}
		})
		if !bytes.Equal(dumpOf(t, to, nil), changed) {
			t.Errorf("%s: the state is another one after a restart", filepath.Base(to))
		}
	}
}

// dumpOf opens a store, calls do with it unless that is nil, and returns its state.
func dumpOf(t *testing.T, folder string, do func(*replica.Store)) []byte {
	t.Helper()
	s, err := replica.OpenWith(folder, replica.Options{Copied: true})
	if err != nil {
		t.Fatal(err)
	}
	if do != nil {
		do(s)
	}
	dump := s.Dump()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return dump
}

// TestCrashWhileInstalled: a crash after any step of an installation is followed by the rest of it, when the store is opened
// and when it receives a snapshot again.
func TestCrashWhileInstalled(t *testing.T) {
	from := filled(t, 300)
	older := from.goOn(t)
	want := from.Dump()
	for _, vacant := range []bool{true, false} {
		for steps, all := 0, 1; steps <= all; steps++ {
			to, again := filepath.Join(t.TempDir(), "to"), filepath.Join(t.TempDir(), "again")
			if !vacant {
				copyTo(t, older, to)
				replica.Adopt(t, to)
			}
			var err error
			if all, err = replica.InstallPartly(to, from.log(t), steps, send(t, from)); err != nil {
				t.Fatal(err)
			}
			copyTo(t, to, again)
			when := fmt.Sprintf("vacant: %t, after %d of %d steps", vacant, steps, all)
			if !bytes.Equal(dumpOf(t, to, nil), want) {
				t.Errorf("%s: it is another state", when)
			}
			if steps == all {
				continue
			}
			refuse := func([]byte, func([]byte) error) error { return errors.New("it is not needed") }
			if err := replica.ReceiveSnapshot(again, from.log(t), 0, refuse); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			if !bytes.Equal(dumpOf(t, again, nil), want) {
				t.Errorf("%s, and another attempt: it is another state", when)
			}
		}
	}
}

// TestFailureBeforeInstalled: a received snapshot whose installation cannot be noted changes nothing.
func TestFailureBeforeInstalled(t *testing.T) {
	from := filled(t, 300)
	to := from.goOn(t)
	want := dumpOf(t, to, nil)
	note := filepath.Join(to, "install")
	err := replica.ReceiveSnapshot(to, from.log(t), 0, func(request []byte, part func([]byte) error) error {
		return errors.Join(from.SendSnapshot(t.Context(), request, part), os.MkdirAll(filepath.Join(note, "in its place"), 0o700))
	})
	if err == nil {
		t.Fatal("there is no error")
	}
	if err := os.RemoveAll(note); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(dumpOf(t, to, nil), want) {
		t.Error("it is another state")
	}
}

func copyTo(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestReceiveRefused: a transfer that fails changes nothing, and neither does a snapshot of another log.
func TestReceiveRefused(t *testing.T) {
	from, other := filled(t, 300), filled(t, 300)
	log, otherLog, otherFolder := from.log(t), other.log(t), other.folder
	if err := replica.ReceiveSnapshot(otherFolder, log, 0, send(t, from)); !errors.Is(err, db.ErrInUse) {
		t.Errorf("a folder in use: %v", err)
	}
	want := other.Dump()
	other.shut(t)
	cut := errors.New("cut")
	for what, try := range map[string]func() error{
		"a folder of another log": func() error { return replica.ReceiveSnapshot(otherFolder, log, 0, send(t, from)) },
		"a snapshot of another log": func() error {
			return replica.ReceiveSnapshot(otherFolder, otherLog, 0, send(t, from))
		},
		"a lost connection": func() error {
			return replica.ReceiveSnapshot(otherFolder, otherLog, 0, func([]byte, func([]byte) error) error { return cut })
		},
		"no newer snapshot": func() error {
			return replica.ReceiveSnapshot(otherFolder, otherLog, 1<<40, send(t, from))
		},
	} {
		if err := try(); err == nil {
			t.Errorf("%s: there is no error", what)
		}
	}
	if !bytes.Equal(dumpOf(t, otherFolder, nil), want) {
		t.Error("the state has changed")
	}
	vacant := filepath.Join(t.TempDir(), "vacant")
	if err := replica.ReceiveSnapshot(vacant, log, 0, func([]byte, func([]byte) error) error { return cut }); !errors.Is(err, cut) {
		t.Error(err)
	}
	if _, err := replica.Open(vacant); !errors.Is(err, backup.ErrHalfRestored) {
		t.Errorf("a folder that was received in part opens: %v", err)
	}
	if is, err := replica.Vacant(vacant); !is || err != nil {
		t.Errorf("vacant: %t (%v)", is, err)
	}
	if err := from.SendSnapshot(t.Context(), []byte("garbage"), nil); err == nil {
		t.Error("a garbage request has no error")
	}
	none := open(t, filepath.Join(t.TempDir(), "no snapshot"))
	defer func() { _ = none.Close() }()
	if err := none.SendSnapshot(t.Context(), request(t), nil); !errors.Is(err, db.ErrUnavailable) || !errors.Is(err, snapshot.ErrNone) {
		t.Error(err)
	}
}

// request returns a request for a snapshot.
func request(t *testing.T) (asked []byte) {
	t.Helper()
	err := replica.ReceiveSnapshot(filepath.Join(t.TempDir(), "asks"), 1, 0, func(request []byte, _ func([]byte) error) error {
		asked = request
		return errors.New("enough")
	})
	if err == nil {
		t.Fatal("there is no error")
	}
	return asked
}
