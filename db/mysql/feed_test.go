package mysql

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// feedOf returns the commits of the feed after a position.
func feedOf(t *testing.T, s *Store, after db.Position) []db.Commit {
	t.Helper()
	commits, err := s.Changes(t.Context(), after, true)
	if err != nil {
		t.Fatal(err)
	}
	return commits
}

// numbers returns the numbers of a server's commits.
func numbers(commits []db.Commit, server string) (n []uint64) {
	for _, c := range commits {
		if c.Server == server {
			n = append(n, c.N)
		}
	}
	return n
}

func wantNumbers(t *testing.T, commits []db.Commit, server string, want ...uint64) {
	t.Helper()
	if got := numbers(commits, server); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("commits %v, want %v", got, want)
	}
}

// TestNumbersWithoutGaps: transactions that fail, or change nothing, leave no number out.
func TestNumbersWithoutGaps(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	results(t, s, acquires("a")...)
	failed := errors.New("no")
	for range 3 {
		if err := s.Update(t.Context(), func(tx db.Tx) error {
			if _, err := db.Execute(tx, acquires("b"), func(qs *claim.Queues) { _, _ = qs.Do(acquires("b")[0]) }); err != nil {
				return err
			}
			return failed
		}); !errors.Is(err, failed) {
			t.Fatal(err)
		}
		if err := s.Update(t.Context(), func(tx db.Tx) error { _, err := tx.Load(db.Wanted{Resources: []string{"a"}}); return err }); err != nil {
			t.Fatal(err)
		}
	}
	results(t, s, acquires("c")...)
	wantNumbers(t, feedOf(t, s, nil), s.name.get(), 1, 2)
}

// TestCommitsThatWereNotDone: the row that takes the place of a commit is an empty one.
func TestCommitsThatWereNotDone(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	results(t, s, acquires("a")...)
	_, n := s.name.next()
	if err := s.outcome(t.Context(), &tx{server: s.name.get(), n: n}, errors.New("broken")); !errors.Is(err, errUndone) {
		t.Fatal(err)
	}
	results(t, s, acquires("b")...)
	commits := feedOf(t, s, nil)
	wantNumbers(t, commits, s.name.get(), 1, 2, 3)
	if c := commits[1]; len(c.Changes) != 0 {
		t.Errorf("got %+v", c)
	}
}

// TestOutcomeUnknownInFeed: a server that does not know whether a commit was done goes on under
// another name, so a commit that is done later on is not out of order.
func TestOutcomeUnknownInFeed(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	results(t, s, acquires("a")...)
	first := s.name.get()
	s.name.change()
	results(t, s, acquires("b")...)
	commits := feedOf(t, s, nil)
	wantNumbers(t, commits, first, 1)
	wantNumbers(t, commits, s.name.get(), 1)
	if _, err := s.reader.Exec("INSERT INTO feed (server, n, at, changes) VALUES (?, 2, 0, '')", first); err != nil {
		t.Fatal(err)
	}
	wantNumbers(t, feedOf(t, s, db.Position{first: 1, s.name.get(): 1}), first, 2)
}

// TestUnreadableChanges: a row that cannot be read, for instance of another version, is a gap. Readers go on behind it.
func TestUnreadableChanges(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	if _, err := s.reader.Exec("INSERT INTO feed (server, n, at, changes) VALUES ('other', 1, 5, ?)", []byte{99, 1, 2}); err != nil {
		t.Fatal(err)
	}
	if commits, err := s.Changes(t.Context(), nil, true); !errors.Is(err, db.ErrFeedGap) || !strings.Contains(err.Error(), "commit 1 of other") {
		t.Errorf("got %+v, %v", commits, err)
	}
	end, _, err := s.End(t.Context(), true)
	if err != nil || end["other"] != 1 {
		t.Fatal(end, err)
	}
	results(t, s, acquires("a")...)
	wantNumbers(t, feedOf(t, s, end), s.name.get(), 1)
}

// old makes all that the store has committed older.
func (f *feedName) older(by time.Duration) {
	for i := range f.marks {
		f.marks[i].at = f.marks[i].at.Add(-by)
	}
	f.at = f.at.Add(-by)
}

func sweep(t *testing.T, s *Store) {
	t.Helper()
	if err := s.sweepFeedFor(t.Context(), hangs); err != nil {
		t.Fatal(err)
	}
}

// TestFeedAge: a server's own rows go when they are old, except for the last one.
func TestFeedAge(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	for i := range 5 {
		results(t, s, acquires(fmt.Sprint(i))...)
		s.name.older(db.FeedAge / 4)
	}
	sweep(t, s)
	wantNumbers(t, feedOf(t, s, nil), s.name.get(), 3, 4, 5)
	s.name.older(db.FeedAge)
	sweep(t, s)
	wantNumbers(t, feedOf(t, s, nil), s.name.get(), 5)
	results(t, s, acquires("6")...)
	wantNumbers(t, feedOf(t, s, nil), s.name.get(), 5, 6)
}

// TestFeedBytes: they go when there are too many bytes of them.
func TestFeedBytes(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	for i := range 5 {
		results(t, s, acquires(fmt.Sprint(i))...)
		s.name.mu.Lock()
		s.name.bytes += db.FeedBytes / 4
		s.name.mu.Unlock()
	}
	sweep(t, s)
	wantNumbers(t, feedOf(t, s, nil), s.name.get(), 3, 4, 5)
}

// TestFeedSteps: more rows than one step takes are deleted at once, if there is time.
func TestFeedSteps(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	var rows []string
	for n := range 3*feedStep + 1 {
		rows = append(rows, fmt.Sprintf("('other', %d, 0, '')", n+1))
	}
	if _, err := s.reader.Exec("INSERT INTO feed (server, n, at, changes) VALUES " + strings.Join(rows, ", ")); err != nil {
		t.Fatal(err)
	}
	s.feedPast = db.NewPast(0)
	sweep(t, s)
	wantNumbers(t, feedOf(t, s, nil), "other")
}

// TestServersThatAreGone: the rows of a server stay while it lives, and go when it is gone.
func TestServersThatAreGone(t *testing.T) {
	t.Parallel()
	dsn := fixtures.MySQL(t)
	s, other := open(t, dsn), open(t, dsn)
	results(t, other, acquires("a")...)
	age := func(by time.Duration) {
		t.Helper()
		if _, err := s.reader.Exec("UPDATE feed SET at = at - ?", by.Microseconds()); err != nil {
			t.Fatal(err)
		}
		other.name.older(by)
	}
	s.feedPast, other.feedPast = db.NewPast(0), db.NewPast(0) // as if they had run for long
	age(db.FeedAge)
	sweep(t, other)
	age(db.FeedAge + db.FeedAge/2)
	sweep(t, s)
	wantNumbers(t, feedOf(t, s, nil), other.name.get(), 1)
	age(db.FeedAge)
	sweep(t, s)
	wantNumbers(t, feedOf(t, s, nil), other.name.get())
	results(t, other, acquires("b")...)
	wantNumbers(t, feedOf(t, s, nil), other.name.get(), 2)
}

// TestFeedBehindStep: when the clock steps by a day, the rows of other servers look old, and still stay.
func TestFeedBehindStep(t *testing.T) {
	t.Parallel()
	dsn := fixtures.MySQL(t)
	s, other := open(t, dsn), open(t, dsn)
	results(t, other, acquires("a")...)
	sweep(t, s)
	if _, err := s.reader.Exec("UPDATE feed SET at = at - ?", (25 * time.Hour).Microseconds()); err != nil {
		t.Fatal(err)
	}
	sweep(t, s)
	wantNumbers(t, feedOf(t, s, nil), other.name.get(), 1)
}

// TestTooManyChanges: a read is bounded.
func TestTooManyChanges(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	const reason = "+"
	record := db.AppendRecord(nil, 1, []claim.Transition{{After: &claim.Claim{ID: "a", Resource: "r", Status: claim.Expired, Reason: strings.Repeat(reason, db.FeedBytes/8)}}})
	before, _, _ := bytes.Cut(record, []byte(reason))
	_, after, _ := bytes.Cut(record, []byte(strings.Repeat(reason, db.FeedBytes/8)))
	for n := range 9 {
		if _, err := s.reader.Exec("INSERT INTO feed (server, n, at, changes) VALUES ('other', ?, 0, CONCAT(?, REPEAT(?, ?), ?))", n+1, before, reason, db.FeedBytes/8, after); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Changes(t.Context(), nil, true); !errors.Is(err, db.ErrFeedGap) {
		t.Errorf("got %v", err)
	}
	wantNumbers(t, feedOf(t, s, db.Position{"other": 3}), "other", 4, 5, 6, 7, 8, 9)
}

// TestForeignPositions: positions that no server has given, as in a cursor that somebody has made up, are not an error of the database.
func TestForeignPositions(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	results(t, s, acquires("a")...)
	for _, server := range []string{"\xff", "a'b\\", "\x00", "\U0001f600"} {
		if commits, err := s.Changes(t.Context(), db.Position{server: 1}, true); err != nil || len(commits) != 1 {
			t.Errorf("%q: %d commits (%v)", server, len(commits), err)
		}
	}
}
