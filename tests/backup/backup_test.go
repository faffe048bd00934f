package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/internal/rules/claim"
)

// A backup that is taken while a server uses the store has everything that the store returns, and a check finds no problem.
func TestBackup(t *testing.T) {
	onEachEngine(t, func(t *testing.T, p place) {
		s := p.open(t)
		defer func() { must(t, s.Close()) }()
		fill(t, s)
		file := filepath.Join(t.TempDir(), "backup")
		must(t, backup.Write(file, p.dump, unchecked))
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("the file has mode %v, %v", info.Mode(), err)
		}
		has := read(t, inFile(file))
		claims := 0
		for _, kept := range []map[string]claim.Claim{has.claims, has.ended} {
			for id, c := range kept {
				claims++
				stored, _, _, err := s.Get(t.Context(), id, 0)
				must(t, err)
				if !reflect.DeepEqual(c, stored) {
					t.Errorf("claim %s is %+v, and the store has %+v", id, c, stored)
				}
			}
		}
		if claims != 15 || len(has.ended) != 4 {
			t.Errorf("%d claims are in the backup, %d of them have ended", claims, len(has.ended))
		}
		for _, id := range []string{"s1", "s2"} {
			stored, _, err := s.Session(t.Context(), id)
			must(t, err)
			if !reflect.DeepEqual(has.sessions[id], stored) {
				t.Errorf("session %+v, and the store has %+v", has.sessions[id], stored)
			}
		}
		of, in := check(t, p.dump), check(t, inFile(file))
		for _, k := range []*backup.Checker{of, in} {
			if k.Found != 0 || k.Active != 6 || k.Waiting != 5 || k.History != 4 || k.Sessions != 2 {
				t.Errorf("the check says %+v", k)
			}
		}
		if of.State() != in.State() {
			t.Errorf("the state is %s in the store, and %s in the backup", of.State(), in.State())
		}
	})
}

// A backup has the state of one position, however fast a server writes meanwhile: a check finds no inconsistency.
func TestBackupUnderLoad(t *testing.T) {
	onEachEngine(t, func(t *testing.T, p place) {
		s := p.open(t)
		defer func() { must(t, s.Close()) }()
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for n, stopping := 0, false; n < 10 || !stopping; n++ {
				select {
				case <-stop:
					stopping = true
				default:
				}
				var commands []claim.Command
				for i := range 20 {
					id := fmt.Sprintf("%d-%d", n, i)
					commands = append(commands, claim.Create{ID: id, Resource: fmt.Sprint("r", i%7), Units: dbtest.EitherUnits(i), TTL: time.Hour, Value: strings.Repeat("v", 300)})
					if n >= 3 {
						commands = append(commands, claim.End{ID: fmt.Sprintf("%d-%d", n-3, i)})
					}
				}
				dbtest.Do(t, s, commands...)
			}
		}()
		for range 8 {
			k := check(t, p.dump)
			if k.Found != 0 {
				t.Error(k.Problems)
			}
		}
		close(stop)
		<-stopped
		last := check(t, p.dump)
		if last.Found != 0 || last.History == 0 {
			t.Errorf("%d have ended: %v", last.History, last.Problems)
		}
	})
}

// A backup with any byte changed, truncated anywhere, or with bytes after its end is refused. The error has its name.
func TestDamagedBackup(t *testing.T) {
	t.Parallel()
	flips := []byte{1, 0x80, 0xff}
	damagedBackup(t, func(at int) []byte { return flips[at%len(flips):][:1] })
}

// damagedBackup changes each byte of a backup in some ways, and cuts the backup there.
func damagedBackup(t *testing.T, flips func(at int) []byte) {
	t.Helper()
	p := filled(t, "embedded")
	folder := t.TempDir()
	file := filepath.Join(folder, "whole")
	must(t, backup.Write(file, p.dump, unchecked))
	whole, err := os.ReadFile(file)
	must(t, err)
	damaged := filepath.Join(folder, "damaged")
	refused := func(what string, content []byte, wants ...error) {
		t.Helper()
		// To write a new file is faster than to replace the content of one, which some file systems then write to the disk at once.
		must(t, os.RemoveAll(damaged))
		must(t, os.WriteFile(damaged, content, 0o600))
		err := backup.Read(damaged, backup.NewChecker())
		for _, want := range wants {
			if errors.Is(err, want) && strings.Contains(err.Error(), damaged) {
				return
			}
		}
		t.Fatalf("%s: %v", what, err)
	}
	for at := range whole {
		for _, flip := range flips(at) {
			changed := append([]byte{}, whole...)
			changed[at] ^= flip
			refused(fmt.Sprintf("byte %d is another", at), changed, backup.ErrDamaged, backup.ErrAlien, backup.ErrVersion)
		}
		refused(fmt.Sprintf("it ends at %d", at), whole[:at], backup.ErrDamaged, backup.ErrAlien)
	}
	refused("it goes on", append(append([]byte{}, whole...), 0), backup.ErrDamaged)
	refused("another file", []byte("#!/bin/sh\nexit 0\n# and so on\n"), backup.ErrAlien)
	other := append([]byte{}, whole...)
	other[len("locket backup\x00")] = 2
	refused("another version", other, backup.ErrVersion)
}

// A failed backup leaves no file and keeps an existing one; a file that is not a backup is not replaced.
func TestHalfWrittenBackup(t *testing.T) {
	t.Parallel()
	p := filled(t, "embedded")
	folder := t.TempDir()
	file := filepath.Join(folder, "backup")
	must(t, backup.Write(file, p.dump, unchecked))
	before, err := os.ReadFile(file)
	must(t, err)
	full := errors.New("the disk is full")
	err = backup.Write(file, func(to backup.Sink) error {
		if err := p.dump(to); err != nil {
			return err
		}
		return full
	}, unchecked)
	if !errors.Is(err, full) || !strings.Contains(err.Error(), file) {
		t.Errorf("the error is %v", err)
	}
	after, err := os.ReadFile(file)
	must(t, err)
	entries, err := os.ReadDir(folder)
	must(t, err)
	if string(after) != string(before) || len(entries) != 1 {
		t.Errorf("the file has changed, or left others: %v", entries)
	}
	must(t, os.WriteFile(file, []byte("something else"), 0o600))
	if err := backup.Write(file, p.dump, unchecked); err == nil {
		t.Error("a file that is no backup was replaced")
	}
}
