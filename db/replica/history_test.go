package replica_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/internal/rules/claim"
)

const historyFile = "history.db"

// ended returns a folder whose history has claims, small ones and large ones, and those claims by id.
func ended(t *testing.T) (folder string, claims map[string]claim.Claim) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "data")
	s := open(t, folder)
	claims = make(map[string]claim.Claim)
	for n := range 40 {
		id := fmt.Sprint("claim-", n)
		made := claim.Create{ID: id, Resource: fmt.Sprint("resource-", n), Owner: fmt.Sprint("owner-", n), TTL: time.Hour, Value: fmt.Sprint("value-", n)}
		if n%10 == 0 {
			made.UserData = []byte(`"` + strings.Repeat("u", 9000) + `"`) // more than a page of the file
		}
		dbtest.Do(t, s, made, claim.End{ID: id, Reason: "done"})
		c, _, _, err := s.Get(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		claims[id] = c
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return folder, claims
}

// inspection is the result of `locket check` for a history.
type inspection struct {
	*backup.Checker
	claims map[string]claim.Claim
	err    error
}

func (i *inspection) Ended(c *claim.Claim) error {
	i.claims[c.ID] = *c
	return i.Checker.Ended(c)
}

func inspect(folder string) *inspection {
	i := &inspection{Checker: backup.NewChecker(), claims: make(map[string]claim.Claim)}
	i.err = replica.Dump(folder, i)
	return i
}

// finds reports whether the check has found anything.
func (i *inspection) finds() bool { return i.err != nil || i.Found > 0 }

// says returns all that the check has said.
func (i *inspection) says() string { return fmt.Sprint(i.Problems, i.err) }

// TestFlippedBitsOfHistory: wherever a bit of the history flips, no claim is shown as another one than it was; what cannot be read is unavailable,
// and the check names the file; locks are taken and renewed as before.
func TestFlippedBitsOfHistory(t *testing.T) {
	folder, truth := ended(t)
	good, err := os.ReadFile(filepath.Join(folder, historyFile))
	if err != nil {
		t.Fatal(err)
	}
	named, bit := 0, 0
	for ; bit < 8*len(good); bit += 1 + len(good)/flips {
		damaged := copyOf(t, folder)
		flipped := bytes.Clone(good)
		flipped[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(filepath.Join(damaged, historyFile), flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		found := inspect(damaged)
		if found.finds() && !strings.Contains(found.says(), historyFile) {
			t.Errorf("bit %d: the check does not name the file: %s", bit, found.says())
		}
		same(t, bit, found.claims, truth, !found.finds())
		if strings.Contains(found.says(), "has changed since it was written") {
			named++
		}
		serves(t, bit, damaged, truth, found)
	}
	if named == 0 {
		t.Error("no flipped bit has damaged a row")
	}
}

// same checks that claims are unchanged, and all of them there.
func same(t *testing.T, bit int, claims, truth map[string]claim.Claim, all bool) {
	t.Helper()
	for id, c := range claims {
		if !reflect.DeepEqual(c, truth[id]) {
			t.Errorf("bit %d: the claim %q is %+v, and was %+v", bit, id, c, truth[id])
		}
	}
	if all && len(claims) != len(truth) {
		t.Errorf("bit %d: %d claims are there, and nothing is said of %d others", bit, len(claims), len(truth)-len(claims))
	}
}

// serves opens a folder with a flipped bit, and checks what a server says on it.
func serves(t *testing.T, bit int, folder string, truth map[string]claim.Claim, found *inspection) {
	t.Helper()
	s, err := openSmall(folder)
	if err != nil {
		if !found.finds() || !strings.Contains(err.Error(), historyFile) {
			t.Errorf("bit %d: it was refused, and the check says %s: %v", bit, found.says(), err)
		}
		return
	}
	defer func() { _ = s.Close() }() // it may not be able to write the history
	for range 2 {                    // it is taken, and renewed
		dbtest.Do(t, s, claim.Acquire{ID: "lock", Resource: "lock", Owner: "o", TTL: time.Hour})
	}
	got, missing := make(map[string]claim.Claim), false
	for id := range truth {
		switch c, _, _, err := s.Get(t.Context(), id, 0); {
		case err == nil:
			got[id] = c
		case errors.Is(err, claim.ErrNotFound):
			missing = true
		case !errors.Is(err, db.ErrUnavailable) || !strings.Contains(err.Error(), historyFile):
			t.Errorf("bit %d: claim %q: %v", bit, id, err)
		case errors.Is(err, history.ErrDamaged) && !strings.Contains(fmt.Sprint(s.About().Warnings), historyFile):
			t.Errorf("bit %d: claim %q is damaged, and the warnings are %q", bit, id, s.About().Warnings)
		}
	}
	same(t, bit, got, truth, false)
	listed := make(map[string]claim.Claim)
	for _, f := range []db.Filter{{}, {Statuses: []claim.Status{claim.Released}}, {Newest: true, Limit: 100}} {
		claims, _, err := s.List(t.Context(), f)
		if err != nil && (!errors.Is(err, db.ErrUnavailable) || !found.finds()) {
			t.Errorf("bit %d: a list: %v", bit, err)
		}
		for _, c := range claims {
			if _, is := truth[c.ID]; is || strings.HasPrefix(c.Resource, "resource") {
				listed[c.ID] = c
			}
		}
	}
	same(t, bit, listed, truth, !found.finds())
	if missing && !found.finds() {
		t.Errorf("bit %d: claims are not found, and the check says nothing", bit)
	}
}

// change changes a row of a history as a bug or a person would.
func change(t *testing.T, folder, sql string) {
	t.Helper()
	conn, err := sqlite.OpenConn(filepath.Join(folder, historyFile), sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sqlitex.ExecuteTransient(conn, sql, nil), conn.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedRow: a changed row is named, is in no list (pages are as full as before), and cannot be asked for; a
// backup ends with it; the warning ends when the row is deleted with the others.
func TestDamagedRow(t *testing.T) {
	folder, truth := ended(t)
	change(t, folder, "UPDATE claims SET owner = 'another' WHERE id = 'claim-3'")
	change(t, folder, "UPDATE claims SET sum = 0 WHERE id = 'claim-4'")
	for _, says := range []string{`the claim "claim-3" in row 4 has changed`, `the claim "claim-4" in row 5 has changed`} {
		if found := inspect(folder); !strings.Contains(found.says(), says) || found.err != nil {
			t.Errorf("the check says %s, want %s", found.says(), says)
		}
	}
	err := backup.Write(filepath.Join(t.TempDir(), "backup"), func(to backup.Sink) error { return replica.Dump(folder, to) }, func(string) error { return nil })
	if err == nil || !strings.Contains(err.Error(), `"claim-3"`) {
		t.Errorf("a backup: %v", err)
	}
	s := open(t, folder)
	defer func() { _ = s.Close() }()
	page := db.Filter{Limit: 3}
	for n := 0; n < 38; n += page.Limit {
		claims, _, err := s.List(t.Context(), page)
		if err != nil || len(claims) != min(page.Limit, 38-n) {
			t.Fatalf("after %d: %d claims (%v)", n, len(claims), err)
		}
		for _, c := range claims {
			page.After = &db.Cursor{Created: c.Created, ID: c.ID}
			delete(truth, c.ID)
		}
	}
	if len(truth) != 2 {
		t.Errorf("not listed: %v", truth)
	}
	for id := range truth {
		if _, _, _, err := s.Get(t.Context(), id, 0); !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("claim %q: %v", id, err)
		}
	}
	if warnings := fmt.Sprint(s.About().Warnings); len(s.About().Warnings) != 2 || !strings.Contains(warnings, "claim-3") || !strings.Contains(warnings, "claim-4") {
		t.Errorf("the warnings are %s", warnings)
	}
	if n, err := s.Prune(t.Context(), claim.Forever, 100); n != 40 || err != nil || len(s.About().Warnings) != 0 {
		t.Errorf("%d are deleted (%v), and the warnings are %q", n, err, s.About().Warnings)
	}
}

// TestDamagedRowIsDeleted: a row whose content its indexes do not have is deleted with the others.
func TestDamagedRowIsDeleted(t *testing.T) {
	folder, _ := ended(t)
	path := filepath.Join(folder, historyFile)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := 0
	for at := 0; ; flipped++ { // the row, and remains of it where it was before
		next := bytes.Index(file[at:], []byte("value-17")) // in no index
		if next < 0 {
			break
		}
		at += next + 1
		file[bytes.LastIndex(file[:at], []byte("resource-17"))+len("resource-1")] ^= 1 // resource-16
	}
	if flipped == 0 {
		t.Fatal("the row is not in the file")
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, folder)
	defer func() { _ = s.Close() }()
	if _, _, _, err := s.Get(t.Context(), "claim-17", 0); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("the damaged claim: %v", err)
	}
	if n, err := s.Prune(t.Context(), claim.Forever, 100); n != 40 || err != nil {
		t.Errorf("%d are deleted (%v)", n, err)
	}
	if claims, _, err := s.List(t.Context(), db.Filter{}); err != nil || len(claims) != 0 {
		t.Errorf("left are %d (%v)", len(claims), err)
	}
}

// TestHistoryBegunAnew: a server does not start on an unreadable history, and the error says how to go on without it.
func TestHistoryBegunAnew(t *testing.T) {
	folder, _ := ended(t)
	s := open(t, folder)
	dbtest.Do(t, s, create(1))
	if err := errors.Join(s.Snapshot(), s.Close()); err != nil { // what has ended is not in the log any more
		t.Fatal(err)
	}
	path := filepath.Join(folder, historyFile)
	if err := os.WriteFile(path, bytes.Repeat([]byte("rot"), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openSmall(folder); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "make an empty one in its place") {
		t.Fatalf("it is opened: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, folder)
	defer func() { _ = s.Close() }()
	if found := inspect(folder); found.finds() || found.Active != 1 { // nothing has ended since
		t.Errorf("%d claims are there: %s", found.Active, found.says())
	}
	dbtest.Do(t, s, claim.Renew{ID: "1", TTL: time.Hour}, claim.End{ID: "1"})
	if err := s.WriteHistory(); err != nil {
		t.Error(err)
	}
	if claims, _, err := s.List(t.Context(), db.Filter{}); err != nil || len(claims) != 1 {
		t.Errorf("listed are %d (%v)", len(claims), err)
	}
}

// TestOtherVersionOfHistory: a history of another version is refused, and the error names both versions.
func TestOtherVersionOfHistory(t *testing.T) {
	folder, _ := ended(t)
	for _, version := range []string{"-1", "2", "1000"} {
		change(t, folder, "PRAGMA user_version = "+version)
		refused(t, "version "+version, folder, historyFile)
		if _, err := openSmall(folder); err == nil || !strings.Contains(err.Error(), "it is of version "+version+", and this locket reads 1") {
			t.Errorf("version %s: %v", version, err)
		}
	}
}
