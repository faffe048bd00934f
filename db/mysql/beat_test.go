package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestBeatsBesideLockedRows: somebody else's lock on the row that beats write in keeps no server from its beats, and a
// lock on all rows does.
func TestBeatsBesideLockedRows(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"resources WHERE name", "claims WHERE id"} {
		for _, row := range beatNames {
			t.Run(fmt.Sprintf("%s = %s", table, row), func(t *testing.T) {
				t.Parallel()
				dsn := fixtures.MySQL(t)
				s := open(t, dsn)
				lock(t, s, fmt.Sprintf("SELECT 1 FROM %s = %s FOR UPDATE", table, row))
				for range 3 {
					if err := s.Beat(t.Context(), false); err != nil {
						t.Errorf("a beat: %v", err)
					}
				}
				if err := open(t, dsn).Beat(t.Context(), false); err != nil {
					t.Errorf("a beat of a server that has just started: %v", err)
				}
			})
		}
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s := open(t, fixtures.MySQL(t))
			lock(t, s, fmt.Sprintf("SELECT 1 FROM %s IN (%s, %s) FOR UPDATE", table, beatNames[0], beatNames[1]))
			if err := s.Beat(t.Context(), false); err == nil {
				t.Error("a beat was committed while all rows were locked")
			}
		})
	}
}

// TestBeatRowsAreMadeOnce: a server that starts changes nothing in the rows that beats write in before its first beat: on a cluster, the transactions of
// servers at other nodes would end.
func TestBeatRowsAreMadeOnce(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	changes := func() (n int) {
		must(t, s.scanner.QueryRow("SELECT (SELECT SUM(version) FROM resources) + (SELECT SUM(version) FROM claims)").Scan(&n))
		return n
	}
	before := changes()
	must(t, s.makeBeatRows(t.Context()))
	if after := changes(); after != before {
		t.Errorf("%d changes were made", after-before)
	}
	must(t, s.Beat(t.Context(), false))
	if after := changes(); after != before+2 {
		t.Errorf("a beat made %d changes, want 2", after-before)
	}
}

// TestBeatsNeedTheFeed: a server does not beat while somebody else's lock keeps commits from adding rows to the feed.
func TestBeatsNeedTheFeed(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	must(t, acquire(t.Context(), s, "r"))
	must(t, s.Beat(t.Context(), false))
	other, err := s.scanner.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	must(t, err)
	defer func() { _ = other.Rollback() }()
	_, err = other.ExecContext(t.Context(), "SELECT n FROM feed FOR UPDATE")
	must(t, err)
	if err := s.Beat(t.Context(), false); err == nil {
		t.Error("a beat was committed while no commit could add its row")
	}
	must(t, other.Rollback())
	must(t, s.Beat(t.Context(), false))
	must(t, acquire(t.Context(), s, "q"))
}

// TestBeatBesideLostBeat: on a cluster a beat is several statements. A beat that loses its connection in the middle
// keeps its rows locked for some seconds, including its feed row. That prevents no other beat of the server, and no
// commit.
func TestBeatBesideLostBeat(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	must(t, s.Beat(t.Context(), false))
	lost, err := s.scanner.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = lost.Rollback() }()
	for _, statement := range []string{
		fmt.Sprintf(beatResourceSQL, beatNames[0]), fmt.Sprintf(beatClaimSQL, beatNames[0]),
		"INSERT INTO feed (server, n, at, changes) VALUES ('" + s.name.get() + "', 9223372036854775807, 0, '')",
	} {
		_, err := lost.ExecContext(t.Context(), statement)
		must(t, err)
	}
	for range 2 {
		if err := s.Beat(t.Context(), false); err != nil {
			t.Errorf("a beat: %v", err)
		}
		must(t, acquire(t.Context(), s, "r"))
	}
}

// TestBeatsNeedAllTables: a server does not beat, so that lease time stands still, while one of the tables is away that commands write in.
func TestBeatsNeedAllTables(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	must(t, s.Register(t.Context(), "s"))
	for _, table := range []string{"resources", "claims", "feed", "meta", "servers", "sessions", "session_claims", "owner_waits"} {
		_, err := s.reader.Exec("RENAME TABLE " + table + " TO away")
		must(t, err)
		if err := s.Beat(t.Context(), false); !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("a beat without %s: %v", table, err)
		}
		_, err = s.reader.Exec("RENAME TABLE away TO " + table)
		must(t, err)
		must(t, s.Beat(t.Context(), false))
	}
}

// TestResumeBesideBeat: another server beats after this one has read the time and before it reads the row, so the last
// beat is later than that time. A resuming beat does not move the last beat back, which would advance lease time.
func TestResumeBesideBeat(t *testing.T) {
	dsn := fixtures.MySQL(t)
	s := open(t, dsn)
	reconnect(t, &s.writer, dsn, steady(longTableWait)) // the row may be read for any time until that is seen
	other, err := s.scanner.Conn(t.Context())
	must(t, err)
	defer func() { _ = other.Close() }()
	exec := func(statement string) {
		t.Helper()
		_, err := other.ExecContext(t.Context(), statement)
		must(t, err)
	}
	clock := func() (c db.Clock) {
		m, err := scanMeta(other.QueryRowContext(t.Context(), metaSQL))
		must(t, err)
		return m.clock
	}
	exec("LOCK TABLES meta WRITE")
	resumed := make(chan error, 1)
	go func() { resumed <- s.Beat(context.Background(), true) }()
	eventually(t, "the row is being read", func() bool {
		var n int
		const query = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'SELECT TIMESTAMPDIFF%' AND state LIKE 'Waiting for table%'"
		must(t, s.control.QueryRow(query).Scan(&n))
		return n > 0
	})
	exec("UPDATE meta SET seen = " + nowSQL)
	beaten := clock()
	exec("UNLOCK TABLES")
	must(t, <-resumed)
	if c := clock(); c.Seen < beaten.Seen || c.Seen.Add(-c.Outage) != beaten.Seen.Add(-beaten.Outage) {
		t.Errorf("%+v after %+v", c, beaten)
	}
}

// lock keeps a statement's locks until the test ends.
func lock(t *testing.T, s *Store, statement string) {
	t.Helper()
	tx, err := s.scanner.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	var one int
	if err := tx.QueryRow(statement).Scan(&one); err != nil {
		t.Fatal(err)
	}
}

// TestBeatRowsAreNoResources: no list has the beats' rows, even if a claim has the name that once was their holder's.
func TestBeatRowsAreNoResources(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	if err := s.Beat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	results(t, s, claim.Acquire{ID: "beats", Resource: "r", Owner: "o"})
	live, _, _, err := s.Resources(t.Context(), "", "", 100)
	if err != nil || len(live) != 1 || live[0].Resource != "r" {
		t.Errorf("resources: %v, %v", live, err)
	}
	var page []db.Resource
	for after := ""; ; {
		some, next, _, err := s.Resources(t.Context(), "", after, 1)
		if err != nil {
			t.Fatal(err)
		}
		page = append(page, some...)
		if after = next; after == "" {
			break
		}
	}
	if len(page) != 1 || page[0].Resource != "r" {
		t.Errorf("resources, one at a time: %v", page)
	}
}
