package replica_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/internal/rules/claim"
)

// rowsOf returns the rows of the claims in the history of a folder, by id.
func rowsOf(t testing.TB, folder string) (rows []string) {
	t.Helper()
	conn, err := sqlite.OpenConn(filepath.Join(folder, historyFile), sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	sql := "SELECT entry, id, resource, owner, take, units, status, created, activated, finished, hex(rest), sum FROM claims ORDER BY id"
	err = sqlitex.ExecuteTransient(conn, sql, &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		text := ""
		for n := range row.ColumnCount() {
			text += row.ColumnText(n) + " "
		}
		rows = append(rows, text)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// received returns a store that has a snapshot of another one, and an empty history.
func received(t *testing.T, from *source) *source {
	t.Helper()
	to := &source{folder: filepath.Join(t.TempDir(), "received")}
	replica.NewMember(t, to.folder, from.log(t))
	if err := replica.ReceiveSnapshot(to.folder, from.log(t), 0, send(t, from)); err != nil {
		t.Fatal(err)
	}
	to.open(t)
	return to
}

// sendHistory is an ask of a store's history, which is cut off after some ranges.
func sendHistory(t *testing.T, from *source, cut int, ranges *int) func([]byte, func([]byte) error) error {
	return func(request []byte, part func([]byte) error) error {
		return from.SendHistory(t.Context(), request, func(data []byte) error {
			if cut--; cut < 0 {
				return errCutOff
			}
			*ranges++
			return part(data)
		})
	}
}

var errCutOff = errors.New("the connection is lost")

// TestReceiveHistory: a store with another one's snapshot gets its history in ranges. A transfer that is cut off continues, also after
// a restart, while both stores change. In the end both histories are the same.
func TestReceiveHistory(t *testing.T) {
	from := filled(t, 3600)
	to := received(t, from)
	if to.HistoryComplete() || !from.HistoryComplete() {
		t.Error("it is not known which history is complete")
	}
	if err := inspect(to.folder).err; !errors.Is(err, history.ErrIncomplete) {
		t.Errorf("a folder without the history can be backed up: %v", err)
	}
	has := len(rowsOf(t, to.folder))
	ranges := 0
	for n := 0; !to.HistoryComplete(); n++ {
		err := to.ReceiveHistory(t.Context(), sendHistory(t, from, n%2, &ranges))
		if err != nil && !errors.Is(err, errCutOff) {
			t.Fatal(err)
		}
		if n%3 == 0 {
			to.shut(t)
			to.open(t)
		}
		if n > 100 {
			t.Fatal("it does not end")
		}
	}
	fill(t, from.Store, 10_000, 10_100) // are not in the snapshot
	if err := to.ReceiveHistory(t.Context(), func([]byte, func([]byte) error) error { return errors.New("nothing is missing") }); err != nil {
		t.Error(err)
	}
	if err := from.WriteHistory(); err != nil {
		t.Fatal(err)
	}
	all, got := rowsOf(t, from.folder), rowsOf(t, to.folder)
	if has != 0 || len(got) != 2400 || len(all) != 2467 || ranges < 3 {
		t.Errorf("%d rows, then %d of %d, in %d ranges", has, len(got), len(all), ranges)
	}
	for _, row := range got {
		if !slices.Contains(all, row) {
			t.Errorf("the other store does not have the row %s", row)
		}
	}
	if found := inspect(to.folder); found.finds() || found.History != 2400 {
		t.Errorf("%d ended claims: %s", found.History, found.says())
	}
}

// TestSameHistory: the rows are the same, byte by byte.
func TestSameHistory(t *testing.T) {
	from := filled(t, 1500)
	to := received(t, from)
	ranges := 0
	if err := to.ReceiveHistory(t.Context(), sendHistory(t, from, 1<<30, &ranges)); err != nil {
		t.Fatal(err)
	}
	if want, got := rowsOf(t, from.folder), rowsOf(t, to.folder); !reflect.DeepEqual(want, got) || len(got) != 1000 {
		t.Errorf("%d rows, and %d in the other store", len(got), len(want))
	}
	for n := range 1500 {
		id := fmt.Sprintf("%d-%d", n*7919%10007, n)
		want, _, _, err1 := from.Get(t.Context(), id, 0)
		got, _, _, err2 := to.Get(t.Context(), id, 0)
		if err := errors.Join(err1, err2); err != nil || !reflect.DeepEqual(want, got) {
			t.Fatalf("%s: %v, want %v (%v)", id, got, want, err)
		}
	}
	if !bytes.Equal(from.Dump(), to.Dump()) {
		t.Error("the states differ")
	}
}

// TestGapOfOlderStore: a store whose history ends before the snapshot that it gets has a gap between the two. It keeps its claims.
func TestGapOfOlderStore(t *testing.T) {
	from := filled(t, 600)
	older := from.goOn(t)
	if err := replica.ReceiveSnapshot(older, from.log(t), 0, send(t, from)); err != nil {
		t.Fatal(err)
	}
	to := &source{folder: older}
	to.open(t)
	before := len(rowsOf(t, older))
	if _, err := to.Prune(t.Context(), 1, 100); err != nil {
		t.Error(err)
	}
	ranges := 0
	if err := to.ReceiveHistory(t.Context(), sendHistory(t, from, 1<<30, &ranges)); err != nil {
		t.Fatal(err)
	}
	if want, got := rowsOf(t, from.folder), rowsOf(t, to.folder); !reflect.DeepEqual(want, got) || before != 400 || len(got) != 600 {
		t.Errorf("%d rows, then %d, and %d in the other store", before, len(got), len(want))
	}
}

// TestIncompleteHistory: a store does not send a history with a gap, or one that has not got so far.
func TestIncompleteHistory(t *testing.T) {
	from := filled(t, 300)
	one, two := received(t, from), received(t, from)
	ranges := 0
	if err := two.ReceiveHistory(t.Context(), sendHistory(t, one, 1<<30, &ranges)); !errors.Is(err, db.ErrUnavailable) || ranges != 0 {
		t.Errorf("%v, after %d ranges", err, ranges)
	}
	if err := two.ReceiveHistory(t.Context(), sendHistory(t, from, 1<<30, &ranges)); err != nil || !two.HistoryComplete() {
		t.Errorf("complete: %t (%v)", two.HistoryComplete(), err)
	}
	behind := &source{folder: from.goOn(t)}
	behind.open(t)
	ahead := received(t, from)
	if err := ahead.ReceiveHistory(t.Context(), sendHistory(t, behind, 1<<30, &ranges)); !errors.Is(err, db.ErrUnavailable) {
		t.Error(err)
	}
	for _, request := range []string{"", "x", "\x01"} {
		if err := from.SendHistory(t.Context(), []byte(request), func([]byte) error { return nil }); err == nil {
			t.Errorf("the request %q has no error", request)
		}
	}
}

// TestIdleHistory: a store whose claims have not ended for a while sends its history, although the file covers only the
// entries before.
func TestIdleHistory(t *testing.T) {
	from := filled(t, 300)
	idle := &source{folder: from.goOn(t)}
	idle.open(t)
	for n := range 20 {
		dbtest.Do(t, idle.Store, claim.Create{ID: fmt.Sprint(n), Resource: fmt.Sprint("live", n), TTL: time.Hour})
	}
	to := received(t, from)
	ranges := 0
	if err := to.ReceiveHistory(t.Context(), sendHistory(t, idle, 1<<30, &ranges)); err != nil || ranges != 1 {
		t.Errorf("%d ranges (%v)", ranges, err)
	}
}

// TestStrangeRanges: ranges that do not follow one another, or have changed on the way, are refused.
func TestStrangeRanges(t *testing.T) {
	from := filled(t, 3600)
	to := received(t, from)
	var parts [][]byte
	err := to.ReceiveHistory(t.Context(), func(request []byte, _ func([]byte) error) error {
		err := from.SendHistory(t.Context(), request, func(data []byte) error { parts = append(parts, data); return nil })
		return errors.Join(err, errCutOff)
	})
	if !errors.Is(err, errCutOff) || len(parts) < 3 {
		t.Fatalf("%d ranges (%v)", len(parts), err)
	}
	flipped := bytes.Clone(parts[0])
	flipped[len(flipped)/2] ^= 1
	for what, parts := range map[string][][]byte{
		"none":                {},
		"an empty message":    {nil},
		"garbage":             {[]byte("garbage")},
		"a flipped bit":       {flipped},
		"a part of a range":   {parts[0][:100]},
		"the first one twice": {parts[0], parts[0]},
	} {
		err := to.ReceiveHistory(t.Context(), func(_ []byte, part func([]byte) error) error {
			for _, data := range parts {
				if err := part(data); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil || to.HistoryComplete() {
			t.Errorf("%s: complete: %t (%v)", what, to.HistoryComplete(), err)
		}
	}
	ranges := 0
	if err := to.ReceiveHistory(t.Context(), sendHistory(t, from, 1<<30, &ranges)); err != nil {
		t.Error(err)
	}
	if want, got := rowsOf(t, from.folder), rowsOf(t, to.folder); !reflect.DeepEqual(want, got) {
		t.Errorf("%d rows, and %d in the other store", len(got), len(want))
	}
}
