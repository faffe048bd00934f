package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/snapshot"
	"github.com/locket-service/locket/internal/rules/claim"
)

// write writes the snapshot of an entry, of some parts.
func write(t *testing.T, d disk.Disk, index uint64, parts int) {
	t.Helper()
	w, err := snapshot.NewWriter(d, snapshot.Meta{Log: 1 << 40, Index: index}, 1)
	if err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("v", 64<<10)
	for n := range 4*parts - 1 {
		if err := w.Claim(&claim.Claim{ID: fmt.Sprint(1000 + n), Resource: fmt.Sprint(n), Status: claim.Active, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(1, 0); err != nil {
		t.Fatal(err)
	}
}

// sender sends the snapshots of a disk, and counts the parts.
type sender struct {
	disk  disk.Disk
	parts int
	// cut is after how many parts the transfer is cut off, 0 for never.
	cut int
}

var errCut = errors.New("the connection is lost")

func (s *sender) ask(request []byte, part func([]byte) error) error {
	n := 0
	return snapshot.Send(s.disk, request, func(data []byte) error {
		if n++; s.cut != 0 && n > s.cut {
			return errCut
		}
		s.parts++
		return part(data)
	})
}

func equal(t *testing.T, when string, from, to *disktest.Disk, index uint64) {
	t.Helper()
	if !bytes.Equal(from.Content(snapshot.Name(index)), to.Content(snapshot.Name(index))) {
		t.Errorf("%s: the snapshot is another one", when)
	}
	if names, err := to.List(); len(names) != 1 || err != nil {
		t.Errorf("%s: the files are %v (%v)", when, names, err)
	}
}

// TestReceive: a transfer that is cut off continues where it has ended. One of a newer snapshot begins anew.
func TestReceive(t *testing.T) {
	from, to := disktest.New(), disktest.New()
	s := &sender{disk: from, cut: 2}
	if _, err := snapshot.Receive(to, 0, s.ask); !errors.Is(err, snapshot.ErrNone) {
		t.Error(err)
	}
	write(t, from, 7, 5)
	for range 2 {
		if _, err := snapshot.Receive(to, 6, s.ask); !errors.Is(err, errCut) {
			t.Fatal(err)
		}
	}
	m, err := snapshot.Receive(to, 6, s.ask)
	if err != nil || m.Index != 7 || m.Log != 1<<40 || s.parts != 5 {
		t.Fatalf("%+v, after %d parts (%v)", m, s.parts, err)
	}
	equal(t, "after two cuts", from, to, 7)
	to.SetFault(func(operation string) error {
		if strings.HasPrefix(operation, "sync") {
			return errCut
		}
		return nil
	})
	if _, err := snapshot.Receive(to, 6, nil); !errors.Is(err, errCut) { // all is there, and may not be durable
		t.Error(err)
	}
	to.SetFault(nil)
	if _, err := snapshot.Receive(to, 6, nil); err != nil {
		t.Error(err)
	}
	if _, err := snapshot.Receive(to, 7, s.ask); !errors.Is(err, snapshot.ErrNone) {
		t.Errorf("a snapshot that is not newer: %v", err)
	}
	if _, err := snapshot.Receive(to, 6, s.ask); !errors.Is(err, errCut) {
		t.Error(err)
	}
	write(t, from, 8, 3)
	s.cut = 0
	if m, err := snapshot.Receive(to, 6, s.ask); err != nil || m.Index != 8 {
		t.Errorf("%+v (%v)", m, err)
	}
	equal(t, "after a newer one", from, to, 8)
}

// TestReplacedWhileSent: a snapshot is sent whole even if a newer one replaces it meanwhile.
func TestReplacedWhileSent(t *testing.T) {
	from, to := disktest.Folder(t.TempDir()), disktest.New()
	write(t, from, 7, 5)
	m, err := snapshot.Receive(to, 0, func(request []byte, part func([]byte) error) error {
		return snapshot.Send(from, request, func(data []byte) error {
			if index, err := snapshot.Latest(from); err != nil || index == 7 {
				write(t, from, 8, 5)
			}
			return part(data)
		})
	})
	if err != nil || m.Index != 7 {
		t.Errorf("%+v (%v)", m, err)
	}
}

// TestCrashWhileReceived: whatever operation of the disk a crash of the machine or of the server interrupts, the next transfer
// ends with the whole snapshot.
func TestCrashWhileReceived(t *testing.T) {
	from := disktest.New()
	write(t, from, 7, 4)
	rnd := rand.New(rand.NewPCG(1, 2))
	for what, crash := range map[string]func(*disktest.Disk) *disktest.Disk{
		"machine": func(d *disktest.Disk) *disktest.Disk { return d.Crash(rnd) },
		"server":  (*disktest.Disk).Kill,
	} {
		for n := 1; ; n++ {
			to, operation, err := interrupted(from, n)
			if err == nil {
				if n < 8 {
					t.Errorf("only %d operations", n)
				}
				break
			}
			when := fmt.Sprintf("after a crash of the %s at %s", what, operation)
			to = crash(to)
			if _, err := snapshot.Receive(to, 0, (&sender{disk: from}).ask); err != nil {
				t.Errorf("%s: %v", when, err)
				continue
			}
			equal(t, when, from, to.Crash(rnd), 7)
		}
	}
}

// interrupted receives a snapshot, and fails from the n-th operation of the disk on.
func interrupted(from *disktest.Disk, n int) (to *disktest.Disk, operation string, err error) {
	to = disktest.New()
	to.SetFault(func(of string) error {
		if n--; n > 0 {
			return nil
		}
		if n == 0 {
			operation = of
		}
		return errors.New("a crash")
	})
	_, err = snapshot.Receive(to, 0, (&sender{disk: from}).ask)
	return to, operation, err
}

// TestFullWhileReceived: a transfer that fills the disk gives the room back.
func TestFullWhileReceived(t *testing.T) {
	from, to := disktest.New(), disktest.New()
	write(t, from, 7, 4)
	writes := 0
	to.SetFault(func(operation string) error {
		if strings.HasPrefix(operation, "write") {
			if writes++; writes == 3 {
				return syscall.ENOSPC
			}
		}
		return nil
	})
	if _, err := snapshot.Receive(to, 0, (&sender{disk: from}).ask); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if names, err := to.List(); len(names) != 0 || err != nil {
		t.Errorf("the files are %v (%v)", names, err)
	}
}

// wirePart encodes a part of a snapshot.
func wirePart(index, bytes, offset uint64, data []byte) []byte {
	c := codec.Writer([]byte{1})
	for _, n := range [...]*uint64{&index, &bytes, &offset} {
		c.Unsigned(n)
	}
	c.Data(&data)
	return c.Buffer()
}

// TestStrangeParts: parts that do not follow one another, or are something else, are refused, and nothing of them is used.
func TestStrangeParts(t *testing.T) {
	from := disktest.New()
	write(t, from, 7, 1)
	whole := from.Content(snapshot.Name(7))
	size := uint64(len(whole))
	flipped := bytes.Clone(whole)
	flipped[size/2] ^= 1
	for what, parts := range map[string][][]byte{
		"none":                   {},
		"an empty message":       {nil},
		"garbage":                {[]byte("garbage")},
		"another version":        {append([]byte{2}, wirePart(7, size, 0, whole)[1:]...)},
		"half":                   {wirePart(7, size, 0, whole[:size/2])},
		"a hole":                 {wirePart(7, size, 0, whole[:10]), wirePart(7, size, 11, whole[11:])},
		"the second half":        {wirePart(7, size, size/2, whole[size/2:])},
		"another length":         {wirePart(7, size, 0, whole[:10]), wirePart(7, size+1, 10, whole[10:])},
		"more than its length":   {wirePart(7, 10, 0, whole)},
		"a length of 0":          {wirePart(7, 0, 0, whole)},
		"too little":             {wirePart(7, size-1, 0, whole[:size-1])},
		"another snapshot":       {wirePart(8, size, 0, whole)},
		"a change of snapshots":  {wirePart(7, size, 0, whole[:10]), wirePart(8, size, 10, whole[10:])},
		"an older snapshot":      {wirePart(2, size, 0, whole)},
		"a flipped bit":          {wirePart(7, size, 0, flipped)},
		"more behind it":         {wirePart(7, size+1, 0, append(bytes.Clone(whole), 0))},
		"an offset without end":  {wirePart(7, 1<<63, 1<<63, whole)},
		"more than is announced": {wirePart(7, size, 0, whole), wirePart(7, size, size, []byte("more"))},
	} {
		to := disktest.New()
		_, err := snapshot.Receive(to, 2, func(_ []byte, part func([]byte) error) error {
			for _, p := range parts {
				if err := part(p); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			t.Errorf("%s: there is no error", what)
		}
		if _, err := snapshot.Receive(to, 2, (&sender{disk: from}).ask); err != nil {
			t.Errorf("after %s: %v", what, err)
		}
	}
	for _, request := range []string{"", "x", "\x01", "\x01\x00\x00\x00\x00more"} {
		if err := snapshot.Send(from, []byte(request), func([]byte) error { return nil }); !errors.Is(err, codec.ErrFormat) {
			t.Errorf("the request %q: %v", request, err)
		}
	}
}
