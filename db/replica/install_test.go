package replica_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
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
	replica.AdoptMember(t, older)
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
	empty := filepath.Join(t.TempDir(), "empty")
	replica.NewMember(t, empty, from.log(t))
	for _, to := range []string{empty, older} {
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

// TestCrashWhileInstalled: the new log behind a received snapshot is made when the store is opened. A crash at any moment of that is
// followed by another attempt.
func TestCrashWhileInstalled(t *testing.T) {
	from := filled(t, 300)
	to := from.goOn(t)
	want := from.Dump()
	if err := replica.ReceiveSnapshot(to, from.log(t), 0, send(t, from)); err != nil {
		t.Fatal(err)
	}
	opened := filepath.Join(t.TempDir(), "opened")
	copyTo(t, to, opened)
	if !bytes.Equal(dumpOf(t, opened, nil), want) {
		t.Error("it is another state")
	}
	old, made := logFiles(t, to), logFiles(t, opened)
	crashes := map[string][]string{"the log is made, and its end is not": made[:1], "the end is made, and not written": {made[0], "end"}, "a file is begun": {"next"}}
	for n := range len(old) + 1 {
		crashes[fmt.Sprintf("%d files are deleted", n)] = old[n:]
	}
	for when, files := range crashes {
		crashed := filepath.Join(t.TempDir(), "crashed")
		copyTo(t, to, crashed)
		log, of := filepath.Join(crashed, "log"), to
		if strings.HasPrefix(when, "the ") {
			of = opened
		}
		if err := errors.Join(os.RemoveAll(log), os.Mkdir(log, 0o700)); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(of, "log", file))
			if when == "the end is made, and not written" && file == "end" || file == "next" {
				text, err = nil, nil
			}
			if err = errors.Join(err, os.WriteFile(filepath.Join(log, file), text, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if !bytes.Equal(dumpOf(t, crashed, nil), want) {
				t.Errorf("%s: it is another state", when)
			}
		}
	}
}

func logFiles(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestFailureBeforeInstalled: a received snapshot that cannot be moved to its place changes nothing.
func TestFailureBeforeInstalled(t *testing.T) {
	from := filled(t, 300)
	to := from.goOn(t)
	want := dumpOf(t, to, nil)
	var place string
	err := replica.ReceiveSnapshot(to, from.log(t), 0, func(request []byte, part func([]byte) error) error {
		err := from.SendSnapshot(t.Context(), request, part)
		received, unread := filepath.Glob(filepath.Join(to, "received", "*"))
		if unread != nil || len(received) != 1 {
			t.Fatalf("received are %q (%v)", received, unread)
		}
		place = filepath.Join(to, "snapshots", filepath.Base(received[0]))
		return errors.Join(err, os.MkdirAll(filepath.Join(place, "in its place"), 0o700))
	})
	if err == nil {
		t.Fatal("there is no error")
	}
	if err := os.RemoveAll(place); err != nil {
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
	log, otherLog, otherFolder, alone := from.log(t), other.log(t), other.folder, filepath.Join(t.TempDir(), "alone")
	if err := replica.ReceiveSnapshot(otherFolder, log, 0, send(t, from)); !errors.Is(err, db.ErrInUse) {
		t.Errorf("a folder in use: %v", err)
	}
	want := other.Dump()
	other.shut(t)
	copyTo(t, otherFolder, alone)
	replica.AdoptMember(t, otherFolder)
	cut := errors.New("cut")
	for what, try := range map[string]func() error{
		"a folder of a server by itself": func() error { return replica.ReceiveSnapshot(alone, otherLog, 0, send(t, from)) },
		"a folder of another log":        func() error { return replica.ReceiveSnapshot(otherFolder, log, 0, send(t, from)) },
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
	if err := replica.ReceiveSnapshot(filepath.Join(t.TempDir(), "vacant"), log, 0, send(t, from)); err == nil {
		t.Error("a folder that is not there gets a snapshot")
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
	folder := filepath.Join(t.TempDir(), "asks")
	replica.NewMember(t, folder, 1)
	err := replica.ReceiveSnapshot(folder, 1, 0, func(request []byte, _ func([]byte) error) error {
		asked = request
		return errors.New("enough")
	})
	if err == nil {
		t.Fatal("there is no error")
	}
	return asked
}
