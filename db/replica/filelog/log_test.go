package filelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/filelog"
)

const id = 0x1234_5678_9abc_def0

var small = filelog.Options{SegmentBytes: 4096}

func create(t testing.TB, d disk.Disk) *filelog.Log {
	t.Helper()
	l, err := filelog.Create(d, id, 0, small)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func open(t testing.TB, d disk.Disk) *filelog.Log {
	t.Helper()
	l, err := filelog.Open(d, id, 0, small)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// contents is the expected content of a log.
type contents struct {
	before  uint64 // the index of the last entry that is not in it
	entries [][]byte
}

func (c contents) last() uint64 { return c.before + uint64(len(c.entries)) }

// with returns the contents after an append.
func (c contents) with(data []byte) contents {
	return contents{c.before, append(slices.Clip(c.entries), data)}
}

// of reads a whole log, in steps of some bytes.
func of(t testing.TB, l *filelog.Log, bytes int) (c contents) {
	t.Helper()
	c.before = l.First() - 1
	for at := l.First(); at <= l.Last(); {
		some, err := l.Entries(at, l.Last()+1, bytes)
		if err != nil {
			t.Fatal(err)
		}
		c.entries = append(c.entries, some...)
		at += uint64(len(some))
	}
	return c
}

// suffix reports whether a log has the expected content, where Compact may have deleted the begin.
func (c contents) suffix(got contents) bool {
	if got.before < c.before || got.last() != c.last() {
		return false
	}
	return slices.EqualFunc(got.entries, c.entries[got.before-c.before:], bytes.Equal)
}

// writer writes a log, and knows what should be in it.
type writer struct {
	*rand.Rand
	l     *filelog.Log
	acked contents
	// tried is the content if the last append, whose outcome is unknown, was done.
	tried *contents
}

func (w *writer) data() []byte {
	data := make([]byte, w.IntN(40))
	if w.IntN(8) == 0 {
		data = make([]byte, w.IntN(3000))
	}
	for i := range data {
		data[i] = byte(w.Uint32())
	}
	return data
}

// do does something to the log, and reports whether that went well.
func (w *writer) do() bool {
	switch w.IntN(12) {
	case 0:
		return w.l.SaveEnd() == nil
	case 1:
		return w.l.Compact(w.acked.before+uint64(w.IntN(len(w.acked.entries)+1))) == nil
	}
	data := w.data()
	return w.try(w.acked.with(data), w.l.Append(data))
}

func (w *writer) try(next contents, err error) bool {
	if err != nil {
		w.tried = &next
		return false
	}
	w.acked = next
	return true
}

// check compares a log with its expected content after a crash.
func (w *writer) check(t *testing.T) {
	t.Helper()
	got := of(t, w.l, 500)
	switch {
	case w.acked.suffix(got):
	case w.tried != nil && w.tried.suffix(got):
		w.acked = *w.tried
	default:
		t.Fatalf("the log has entries %d to %d; acknowledged were %d to %d", got.before+1, got.last(), w.acked.before+1, w.acked.last())
	}
	w.tried = nil
}

// TestCrash writes a log on a disk that fails at any operation, and loses random unsynced data; once more while the log
// is opened after that. Acknowledged entries are there afterwards, and besides them at most the ones being written.
func TestCrash(t *testing.T) {
	for seed := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		d := disktest.New()
		w := &writer{Rand: rnd, l: create(t, d)}
		for range 6 {
			left, boom := rnd.IntN(60), errors.New("boom")
			var mu sync.Mutex
			d.SetFault(func(string) error {
				mu.Lock()
				defer mu.Unlock()
				if left--; left < 0 {
					return boom
				}
				return nil
			})
			for w.do() {
			}
			w.stop()
			if d.SetFault(nil); rnd.IntN(4) == 0 {
				d = d.Kill()
			} else {
				d = d.Crash(rnd)
			}
			opening := rnd.IntN(12)
			d.SetFault(func(string) error {
				if opening--; opening < 0 {
					return boom
				}
				return nil
			})
			if l, err := filelog.Open(d, id, 0, small); err == nil {
				_ = l.Close() // it may fail
			} else if !errors.Is(err, boom) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			d.SetFault(nil)
			d = d.Crash(rnd)
			l, err := filelog.Open(d, id, 0, small)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			w.l = l
			w.check(t)
		}
		w.stop()
	}
}

// stop waits for background work.
func (w *writer) stop() { _ = w.l.Close() }

// fill returns a disk with a log of a few segments that was closed or, without an end, killed.
func fill(t testing.TB, closed bool) (*disktest.Disk, contents) {
	t.Helper()
	d := disktest.New()
	w := &writer{Rand: rand.New(rand.NewPCG(7, 7)), l: create(t, d)}
	for d.Content("0000000000000002.log") == nil || w.l.Bytes() < 5500 {
		data := w.data()
		if !w.try(w.acked.with(data), w.l.Append(data)) {
			t.Fatal("it does not append")
		}
	}
	if closed {
		if err := w.l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return d, w.acked
}

// refused opens a log that must be refused, and returns why.
func refused(t testing.TB, what string, d *disktest.Disk) error {
	t.Helper()
	l, err := filelog.Open(d, id, 0, small)
	if err == nil {
		_ = l.Close()
		t.Fatalf("%s: it was opened, with entries up to %d", what, l.Last())
	}
	if !errors.Is(err, filelog.ErrDamaged) && !errors.Is(err, filelog.ErrMissing) && !errors.Is(err, filelog.ErrAlien) {
		t.Fatalf("%s: %v", what, err)
	}
	return err
}

// TestFlippedBits: no acknowledged bit changes unnoticed, not even in the last frame of a log whose end is not known.
func TestFlippedBits(t *testing.T) {
	for _, closed := range []bool{true, false} {
		d, want := fill(t, closed)
		for _, name := range []string{"0000000000000001.log", "0000000000000002.log"} {
			used := len(strings.TrimRight(string(d.Content(name)), "\x00"))
			for bit := 0; bit < 8*used; bit += stride {
				flipped := d.Kill()
				flipped.Content(name)[bit/8] ^= 1 << (bit % 8)
				if err := refused(t, fmt.Sprintf("%s: bit %d", name, bit), flipped); !strings.Contains(err.Error(), name) {
					t.Fatalf("the file %s is not named: %v", name, err)
				}
			}
		}
		if got := of(t, open(t, d), 1<<20); !want.suffix(got) {
			t.Error("it has changed without a flipped bit")
		}
	}
}

// TestFlippedEnd: the file that says how long the log is holds while one of its places does.
func TestFlippedEnd(t *testing.T) {
	const second, length = 4096, 44
	d, want := fill(t, true)
	flip := func(d *disktest.Disk, at, bit int) { d.Content("end")[at+bit/8] ^= 1 << (bit % 8) }
	for bit := range 8 * length {
		for _, at := range []int{0, second} {
			flipped := d.Kill()
			flip(flipped, at, bit)
			if got := of(t, open(t, flipped), 1<<20); !want.suffix(got) {
				t.Fatalf("bit %d at %d: the log has entries up to %d", bit, at, got.last())
			}
		}
		both := d.Kill()
		flip(both, 0, bit)
		flip(both, second, bit)
		if err := refused(t, fmt.Sprint("bit ", bit), both); !strings.Contains(err.Error(), "end") {
			t.Fatalf("the file is not named: %v", err)
		}
	}
}

// TestCut: a file that was cut at any byte is noticed.
func TestCut(t *testing.T) {
	for _, closed := range []bool{true, false} {
		d, _ := fill(t, closed)
		for _, name := range []string{"0000000000000001.log", "0000000000000002.log"} {
			for n := 0; n < len(d.Content(name)); n += 13 {
				cut := d.Kill()
				cut.Cut(name, n)
				refused(t, fmt.Sprintf("%s cut to %d bytes", name, n), cut)
			}
		}
	}
}

// TestLost: zeros at the end of the written part are noticed if the end was known.
func TestLost(t *testing.T) {
	d, _ := fill(t, true)
	const name = "0000000000000002.log"
	used := len(strings.TrimRight(string(d.Content(name)), "\x00"))
	for from := 0; from < used; from += 7 {
		lost := d.Kill()
		clear(lost.Content(name)[from:])
		refused(t, fmt.Sprint("zeros from ", from), lost)
	}
}

// TestLostSectors: if the log is known to have been longer, a sector of zeros is not taken for an unfinished write.
func TestLostSectors(t *testing.T) {
	d, _ := fill(t, true)
	for _, name := range []string{"0000000000000001.log", "0000000000000002.log"} {
		used := len(strings.TrimRight(string(d.Content(name)), "\x00"))
		for from := 0; from < used; from += 512 {
			lost := d.Kill()
			clear(lost.Content(name)[from:min(from+512, used)])
			refused(t, fmt.Sprintf("%s with zeros at %d", name, from), lost)
		}
	}
}

func TestMissingAndAlien(t *testing.T) {
	d, _ := fill(t, true)
	for name, change := range map[string]func(*disktest.Disk) error{
		"0000000000000002.log":  func(d *disktest.Disk) error { return d.Remove("0000000000000002.log") },
		"end":                   func(d *disktest.Disk) error { return d.Remove("end") },
		"0000000000000003.log":  func(d *disktest.Disk) error { return d.Rename("0000000000000002.log", "0000000000000003.log") },
		"notes.txt":             func(d *disktest.Disk) error { _, err := d.Create("notes.txt"); return err },
		"0000000000000003.log ": func(d *disktest.Disk) error { _, err := d.Create("0000000000000003.log "); return err },
	} {
		changed := d.Kill()
		if err := change(changed); err != nil {
			t.Fatal(err)
		}
		if err := refused(t, name, changed); name != "0000000000000003.log" && name != "0000000000000002.log" && !strings.Contains(err.Error(), name) {
			t.Errorf("the file %s is not named: %v", name, err)
		}
	}
	for _, name := range []string{"0000000000000001.log", "0000000000000002.log"} {
		gone := d.Kill()
		if err := gone.Remove(name); err != nil {
			t.Fatal(err)
		}
		if l, err := filelog.Open(gone, id, 0, small); err == nil && (l.First() == 1 || name != "0000000000000001.log") {
			t.Errorf("without %s it was opened", name)
		}
	}
	if _, err := filelog.Open(d.Kill(), id+1, 0, small); err == nil {
		t.Error("a log with another id was opened")
	}
	last := open(t, d.Kill()).Last()
	if _, err := filelog.Open(d.Kill(), id, last+1, small); !errors.Is(err, filelog.ErrMissing) {
		t.Errorf("a log that is known to have been longer: %v", err)
	}
}

// TestFull: when there is no room for the next segment, nothing is written; when there is room again, writes continue.
func TestFull(t *testing.T) {
	d := disktest.New()
	l := create(t, d)
	d.SetFault(func(operation string) error {
		if operation == "create next" {
			return syscall.ENOSPC
		}
		return nil
	})
	at := uint64(0)
	append1 := func() error {
		err := l.Append(make([]byte, 600))
		if err == nil {
			at++
		}
		return err
	}
	err := error(nil)
	for n := 0; err == nil && n < 100; n++ {
		err = append1()
	}
	if !errors.Is(err, filelog.ErrFull) || errors.Is(err, filelog.ErrBroken) {
		t.Fatalf("full: %v", err)
	}
	if got := of(t, open(t, d.Kill()), 1<<20); got.last() != at {
		t.Errorf("it has entries up to %d, of %d", got.last(), at)
	}
	if err := append1(); !errors.Is(err, filelog.ErrFull) {
		t.Errorf("still full: %v", err)
	}
	d.SetFault(nil)
	for range 20 {
		if err := append1(); err != nil {
			t.Fatal(err)
		}
	}
	if got := of(t, l, 1<<20); got.last() != at {
		t.Errorf("it has entries up to %d, of %d", got.last(), at)
	}
}

// TestBroken: after a write or a sync has failed there is no other one.
func TestBroken(t *testing.T) {
	for _, operation := range []string{"write", "sync"} {
		d := disktest.New()
		l := create(t, d)
		writes := 0
		d.SetFault(func(o string) error {
			if writes++; writes == 1 || operation == "sync" && writes == 2 {
				if strings.HasPrefix(o, operation) {
					return syscall.EIO
				}
			}
			return nil
		})
		for range 3 {
			if err := l.Append(nil); !errors.Is(err, filelog.ErrBroken) || !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: %v", operation, err)
			}
		}
		if l.Last() != 0 || writes > 2 {
			t.Errorf("%s: it has entries up to %d, after %d operations", operation, l.Last(), writes)
		}
	}
}

// TestCompactThatFails: segments that could not be deleted are deleted by the next Compact, before later ones: a gap
// would make the log unreadable.
func TestCompactThatFails(t *testing.T) {
	for _, operation := range []string{"remove", "sync names"} {
		d := disktest.New()
		l := create(t, d)
		grow := func() {
			for range 10 {
				if err := l.Append(make([]byte, 3000)); err != nil {
					t.Fatal(err)
				}
			}
		}
		grow()
		boom, failed := errors.New("boom"), false
		d.SetFault(func(what string) error {
			if !strings.HasPrefix(what, operation) || failed {
				return nil
			}
			failed = true
			return boom
		})
		if err := l.Compact(l.Last() - 1); !errors.Is(err, boom) {
			t.Fatalf("%s fails: %v", operation, err)
		}
		grow()
		if err := l.Compact(l.Last() - 1); err != nil {
			t.Fatalf("%s has failed before: %v", operation, err)
		}
		if names, err := d.List(); err != nil || len(names) > 4 { // of segments two, the spare one, and the end
			t.Errorf("%s has failed before: left are %q (%v)", operation, names, err)
		}
		want := of(t, l, 500)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := of(t, open(t, d.Kill()), 500); !reflect.DeepEqual(got, want) {
			t.Errorf("%s has failed before: the log has entries from %d on, not %d", operation, got.before+1, want.before+1)
		}
	}
}

// tearing is a disk that fails each write of the end while it is set, and leaves nothing valid in its place.
type tearing struct {
	*disktest.Disk
	tears bool
}

func (d *tearing) Create(name string) (disk.File, error) {
	f, err := d.Disk.Create(name)
	return tearingFile{f, d, name}, err
}

type tearingFile struct {
	disk.File
	disk *tearing
	name string
}

func (f tearingFile) WriteAt(b []byte, at int64) (int, error) {
	if !f.disk.tears || f.name != "end" {
		return f.File.WriteAt(b, at)
	}
	_, err := f.File.WriteAt(make([]byte, len(b)), at)
	return 0, errors.Join(err, syscall.EIO)
}

// TestEndAfterFailures: however often a write of the end fails, and leaves nothing valid, the end before it stays.
func TestEndAfterFailures(t *testing.T) {
	for failures := range 5 {
		d := &tearing{Disk: disktest.New()}
		l := create(t, d)
		for n := range 6 {
			d.tears = n >= 6-failures
			if err := l.Append([]byte("data")); err != nil {
				t.Fatal(err)
			}
			if err := l.SaveEnd(); (err != nil) != d.tears {
				t.Fatalf("end %d: %v", n, err)
			}
		}
		if last := open(t, d.Kill()).Last(); last != 6 {
			t.Errorf("after %d failures the log ends at %d", failures, last)
		}
	}
}

// TestFolder uses a folder of the operating system.
func TestFolder(t *testing.T) {
	d := disktest.Folder(t.TempDir())
	w := &writer{Rand: rand.New(rand.NewPCG(1, 2)), l: create(t, d)}
	for range 3 {
		for range 100 {
			if !w.do() {
				t.Fatal("it does not append")
			}
		}
		if err := w.l.Close(); err != nil {
			t.Fatal(err)
		}
		w.l = open(t, d)
		w.check(t)
	}
	if err := w.l.Close(); err != nil {
		t.Fatal(err)
	}
}
