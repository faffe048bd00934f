package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/internal/claim"
)

// crowded returns a store with a few thousand claims, in every state.
func crowded(t testing.TB) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "locket.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	dbtest.Crowd(t, s)
	return s
}

// plan returns what SQLite will do for a query, a step a line.
func (s *Store) plan(t *testing.T, sql string, args ...any) string {
	t.Helper()
	var steps []string
	err := s.read(t.Context(), "EXPLAIN QUERY PLAN "+sql, func(row *sqlite.Stmt) { steps = append(steps, row.ColumnText(3)) }, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(steps, "\n")
}

// statement returns the SQL of the writing connection that begins so.
func (s *Store) statement(t *testing.T, start string) string {
	t.Helper()
	for _, stmt := range s.writer.all {
		// The package does not say what the SQL of a statement is.
		if query := reflect.ValueOf(stmt).Elem().FieldByName("query").String(); strings.HasPrefix(query, start) {
			return query
		}
	}
	t.Fatalf("no statement %q", start)
	return ""
}

// bareLimit is what limitSQL is there to avoid.
var bareLimit = regexp.MustCompile(`LIMIT \?\d*($|[^+\d])`)

// TestPlans keeps each query on its index. A query that sorts must say so here.
func TestPlans(t *testing.T) {
	s := crowded(t)
	claims := "SELECT " + shortColumns + " FROM claims WHERE "
	for name, c := range map[string]struct {
		sql  string
		want []string // parts of the plan
		sort bool
	}{
		"get": {sql: getSQL, want: []string{"SEARCH claims USING PRIMARY KEY"}},
		"resources": {sql: resourcesSQL, want: []string{
			"SEARCH resources USING PRIMARY KEY (name>? AND name<?)", "SEARCH claims USING PRIMARY KEY (id=?)",
			"SEARCH h USING COVERING INDEX claims_holding (resource=?)", "SEARCH w USING INDEX claims_waiting (resource=?)",
		}},
		"last resource": {sql: lastResourceSQL, want: []string{"SEARCH resources USING PRIMARY KEY (name>? AND name<?)"}},
		"contended": {sql: contendedSQL, sort: true, want: []string{
			"SEARCH claims USING COVERING INDEX claims_waiting (resource>? AND resource<?)", "SEARCH resources USING PRIMARY KEY (name=?)",
			"SEARCH claims USING PRIMARY KEY (id=?)", "SEARCH h USING COVERING INDEX claims_holding (resource=?)", "SEARCH w USING INDEX claims_waiting (resource=?)",
		}},
		"count contended":    {sql: countContendedSQL, want: []string{"SEARCH claims USING COVERING INDEX claims_waiting (resource>? AND resource<?)"}},
		"rows of a prefix":   {sql: countOfPrefixSQL, want: []string{"SEARCH resources USING PRIMARY KEY (name>? AND name<?)", "COVERING INDEX claims_waiting (resource>? AND resource<?)", "COVERING INDEX claims_holding (resource>? AND resource<?)"}},
		"holder":             {sql: holderSQL, want: []string{"SEARCH claims USING PRIMARY KEY", "SEARCH resources USING PRIMARY KEY", "USING COVERING INDEX claims_holding (resource=?)"}},
		"exclusive":          {sql: exclusiveSQL, want: []string{"SEARCH claims USING PRIMARY KEY (id=?)"}},
		"sharing":            {sql: sharingSQL, want: []string{"USING INDEX claims_holding (resource=?)"}},
		"waiters":            {sql: waitersSQL, want: []string{"USING INDEX claims_waiting (resource=?)"}},
		"ahead":              {sql: aheadSQL, want: []string{"USING COVERING INDEX claims_waiting (resource=? AND position<?)"}},
		"held":               {sql: heldSQL, want: []string{"SEARCH claims USING INDEX claims_held (type=?)"}},
		"held page":          {sql: heldPageSQL, want: []string{"SEARCH claims USING PRIMARY KEY (id=?)", "USING COVERING INDEX claims_held (type=?)"}, sort: true},
		"live page":          {sql: livePageSQL, want: []string{"SEARCH claims USING PRIMARY KEY (id>?)"}},
		"few live":           {sql: fewLivePageSQL, want: []string{"SEARCH claims USING PRIMARY KEY (id=?)", "COVERING INDEX claims_waiting", "COVERING INDEX claims_held"}},
		"live of one":        {sql: liveOfResourcePageSQL, want: []string{"SEARCH resources USING PRIMARY KEY", "COVERING INDEX claims_waiting (resource=?)", "COVERING INDEX claims_holding (resource=?)"}, sort: true},
		"are few":            {sql: countAllLiveSQL, want: []string{"COVERING INDEX claims_waiting", "COVERING INDEX claims_held"}},
		"due":                {sql: dueSQL, want: []string{"SEARCH c USING INDEX claims_held (type=? AND deadline<?)", "SEARCH r USING PRIMARY KEY"}, sort: true},
		"next due":           {sql: nextDueSQL, want: []string{"SEARCH claims USING COVERING INDEX claims_held (type=?)", "SEARCH claims USING COVERING INDEX claims_held (type=? AND deadline>?)"}},
		"abandoned":          {sql: abandonedSQL, want: []string{"SEARCH claims USING COVERING INDEX claims_patience (deadline>? AND deadline<?)"}},
		"waits of an owner":  {sql: ownerWaitsSQL, want: []string{"SEARCH claims USING INDEX claims_waiter (owner=?)"}},
		"waits of a session": {sql: sessionWaitsSQL, want: []string{"SEARCH claims USING INDEX claims_session (session=? AND status=?)"}},
		"cutoff":             {sql: cutoffSQL, want: []string{"USING COVERING INDEX claims_finished"}},
		"count":              {sql: countSQL, want: []string{"COVERING INDEX claims_waiting", "COVERING INDEX claims_held", "COVERING INDEX claims_finished"}},
		"oldest waiting":     {sql: oldestWaitingSQL, want: []string{"USING COVERING INDEX claims_waiting"}},
		"count of identity":  {sql: countOfSQL, want: []string{"SEARCH i USING PRIMARY KEY (identity=?)", "SEARCH c USING PRIMARY KEY (id=?)"}},
		"forget ended":       {sql: forgetOfSQL, want: []string{"SEARCH identity_claims USING PRIMARY KEY (identity=?)", "SEARCH claims USING PRIMARY KEY (id=?)"}},
		"prune of identity":  {sql: pruneOfSQL, want: []string{"SEARCH identity_claims USING PRIMARY KEY (identity=? AND claim=?)", "claims_finished"}},
		"resource":           {sql: s.statement(t, "SELECT version, holder"), want: []string{"SEARCH resources USING PRIMARY KEY (name=?)"}},
		"waiting":            {sql: s.statement(t, claims+"resource = ? AND status = 1"), want: []string{"USING INDEX claims_waiting (resource=? AND position>?)"}},
		"shared due":         {sql: s.statement(t, claims+"resource = ? AND status = 2"), want: []string{"USING INDEX claims_shared (resource=? AND deadline<?)"}},
		"ends of a session":  {sql: s.statement(t, "SELECT id, octet_length"), want: []string{"SEARCH claims USING INDEX claims_session (session=? AND status<?)"}},
		"update resource":    {sql: s.statement(t, "UPDATE resources"), want: []string{"SEARCH resources USING PRIMARY KEY (name=?)"}},
		"update claim":       {sql: s.statement(t, "UPDATE claims"), want: []string{"SEARCH claims USING PRIMARY KEY (id=?)"}},
		"prune":              {sql: s.statement(t, "DELETE FROM claims"), want: []string{"SEARCH claims USING PRIMARY KEY (id=?)", "COVERING INDEX claims_finished (finished<?)"}},
		"walk":               {sql: s.statement(t, "SELECT name"), want: []string{"SEARCH resources USING PRIMARY KEY (name>?)"}},
		"delete resource":    {sql: s.statement(t, "DELETE FROM resources"), want: []string{"SEARCH resources USING PRIMARY KEY (name=?)"}},
	} {
		check(t, name, s.plan(t, c.sql), c.sort, c.want...)
		if bareLimit.MatchString(c.sql) {
			t.Errorf("%s is planned anew each time: %s", name, c.sql)
		}
	}
}

// BenchmarkLimit shows what limitSQL is good for.
func BenchmarkLimit(b *testing.B) {
	s := crowded(b)
	for name, sql := range map[string]string{"expression": aheadSQL, "parameter": strings.Replace(aheadSQL, limitSQL, " LIMIT ?", 1)} {
		b.Run(name, func(b *testing.B) {
			err := s.reading(b.Context(), func(conn *sqlite.Conn) (err error) {
				for b.Loop() {
					err = errors.Join(err, each(conn, sql, func(*sqlite.Stmt) {}, "shared 1", int64(1), 20))
				}
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

func TestListPlans(t *testing.T) {
	s := crowded(t)
	r, o := "shared 1", "o1"
	at := claim.Time(1)
	after := &db.Cursor{Created: 1, ID: "a"}
	live := []claim.Status{claim.Waiting, claim.Active}
	for name, c := range map[string]struct {
		f    db.Filter
		few  bool
		sort bool
		want []string
	}{
		"all":     {f: db.Filter{}, want: []string{"USING INDEX claims_created"}},
		"after":   {f: db.Filter{After: after}, want: []string{"SEARCH claims USING INDEX claims_created (created>?)"}},
		"created": {f: db.Filter{MinCreated: &at, MaxCreated: &at}, want: []string{"SEARCH claims USING INDEX claims_created (created>? AND created<?)"}},
		"live of a resource": {f: db.Filter{Resource: &r, Statuses: []claim.Status{claim.Active}}, sort: true, want: []string{
			"SEARCH claims USING PRIMARY KEY (id=?)", "SEARCH resources USING PRIMARY KEY (name=?)",
			"SEARCH claims USING COVERING INDEX claims_waiting (resource=?)", "SEARCH claims USING COVERING INDEX claims_holding (resource=?)",
		}},
		// Resource and owner are compared in the index; the table is read for what passes.
		"resource": {f: db.Filter{Resource: &r}, sort: true, want: []string{
			"SEARCH claims USING PRIMARY KEY (id=?)", "SCAN claims USING COVERING INDEX claims_created",
		}},
		"owner": {f: db.Filter{Owner: &o}, sort: true, want: []string{
			"SEARCH claims USING PRIMARY KEY (id=?)", "SCAN claims USING COVERING INDEX claims_created",
		}},
		"released":         {f: db.Filter{Statuses: []claim.Status{claim.Released}}, want: []string{"SEARCH claims USING INDEX claims_ended (status=?)"}},
		"aborted, after":   {f: db.Filter{Statuses: []claim.Status{claim.Aborted}, After: after}, want: []string{"SEARCH claims USING INDEX claims_ended (status=? AND created>?)"}},
		"expired, created": {f: db.Filter{Statuses: []claim.Status{claim.Expired}, MinCreated: &at, MaxCreated: &at}, want: []string{"USING INDEX claims_ended (status=? AND created>? AND created<?)"}},
		"aborted of an owner": {f: db.Filter{Statuses: []claim.Status{claim.Aborted}, Owner: &o}, sort: true, want: []string{
			"SEARCH claims USING PRIMARY KEY (id=?)", "SCAN claims USING COVERING INDEX claims_created",
		}},
		"live":            {f: db.Filter{Statuses: live}, want: []string{"USING INDEX claims_created"}},
		"few live":        {f: db.Filter{Statuses: live}, few: true, sort: true, want: []string{"USING INDEX claims_held", "USING INDEX claims_waiting"}},
		"newest":          {f: db.Filter{Newest: true}, want: []string{"USING INDEX claims_created"}},
		"newest, after":   {f: db.Filter{Newest: true, After: after}, want: []string{"SEARCH claims USING INDEX claims_created (created<?)"}},
		"newest released": {f: db.Filter{Newest: true, Statuses: []claim.Status{claim.Released}}, want: []string{"SEARCH claims USING INDEX claims_ended (status=?)"}},
		"several ended":   {f: db.Filter{Statuses: []claim.Status{claim.Released, claim.Expired}}, want: []string{"USING INDEX claims_created"}},
		"prefix":          {f: db.Filter{Prefix: "shared"}, want: []string{"USING INDEX claims_created"}},
		"few of a prefix": {f: db.Filter{Prefix: "shared", Statuses: live}, few: true, sort: true, want: []string{
			"SEARCH claims USING PRIMARY KEY (id=?)", "SEARCH resources USING PRIMARY KEY (name>? AND name<?)",
			"COVERING INDEX claims_waiting (resource>? AND resource<?)", "COVERING INDEX claims_holding (resource>? AND resource<?)",
		}},
		"few waiting":       {f: db.Filter{Statuses: []claim.Status{claim.Waiting}}, few: true, sort: true, want: []string{"USING INDEX claims_waiting"}},
		"few active":        {f: db.Filter{Statuses: []claim.Status{claim.Active}}, few: true, sort: true, want: []string{"USING INDEX claims_held"}},
		"few active, after": {f: db.Filter{Statuses: []claim.Status{claim.Active}, After: after}, few: true, sort: true, want: []string{"USING INDEX claims_held"}},
		"few of an owner":   {f: db.Filter{Statuses: []claim.Status{claim.Active}, Owner: &o}, few: true, sort: true, want: []string{"USING INDEX claims_held"}},
		"waiting":           {f: db.Filter{Statuses: []claim.Status{claim.Waiting}}, want: []string{"USING INDEX claims_created"}},
		"active":            {f: db.Filter{Statuses: []claim.Status{claim.Active}}, want: []string{"USING INDEX claims_created"}},
		"active, after":     {f: db.Filter{Statuses: []claim.Status{claim.Active}, After: after}, want: []string{"SEARCH claims USING INDEX claims_created (created>?)"}},
		"active of an owner": {f: db.Filter{Statuses: []claim.Status{claim.Active}, Owner: &o}, sort: true, want: []string{
			"SEARCH claims USING PRIMARY KEY (id=?)", "SCAN claims USING COVERING INDEX claims_created",
		}},
	} {
		for _, c.f.Limit = range []int{10, 1001} {
			sql, args := listSQL(c.f, c.few, claim.Instant{Wall: 1, Lease: 1})
			plan := strings.ReplaceAll(s.plan(t, sql, args...), "SCAN claims USING INDEX", "USING INDEX")
			check(t, fmt.Sprintf("%s, limit %d", name, c.f.Limit), plan, c.sort, c.want...)
		}
	}
}

// TestFewLive: few live claims and many are listed alike.
func TestFewLive(t *testing.T) {
	s := crowded(t)
	f := db.Filter{Statuses: []claim.Status{claim.Active}, Limit: 1001}
	list := func(want bool) []claim.Claim {
		t.Helper()
		if few, err := s.few(t.Context(), f); err != nil || few != want {
			t.Fatalf("few: %t (%v), want %t", few, err, want)
		}
		claims, _, err := s.List(t.Context(), f)
		if err != nil || len(claims) != f.Limit {
			t.Fatalf("%d claims (%v)", len(claims), err)
		}
		return claims
	}
	few := list(true)
	// Copies that were created later.
	columns := strings.Replace(strings.Replace(claimColumns, "id", "id || '/' || n", 1), "created", "created + n", 1)
	sql := "INSERT INTO claims (" + claimColumns + ") SELECT " + columns + ` FROM claims,
		(WITH RECURSIVE c (n) AS (SELECT 3600000000 UNION ALL SELECT n + 1 FROM c LIMIT 10) SELECT n FROM c) WHERE status = 2`
	if err := sqlitex.ExecuteTransient(s.conn, sql, nil); err != nil {
		t.Fatal(err)
	}
	if many := list(false); !reflect.DeepEqual(many, few) {
		t.Errorf("got %v, want %v", many, few)
	}
}

func check(t *testing.T, name, plan string, mayBeSorted bool, want ...string) {
	t.Helper()
	for _, part := range want {
		if !strings.Contains(plan, part) {
			t.Errorf("%s: the plan lacks %q:\n%s", name, part, plan)
		}
	}
	for line := range strings.Lines(plan) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "B-TREE") && !mayBeSorted ||
			strings.HasPrefix(line, "SCAN claims") && !strings.Contains(line, "COVERING INDEX") {
			t.Errorf("%s: %s, in\n%s", name, line, plan)
		}
	}
}

// TestLivePages: where many claims are live, a page is the same as where they are few.
func TestLivePages(t *testing.T) {
	s := crowded(t)
	few, err := s.readPage(t.Context(), 0, fewLivePageSQL, "5", 100)
	if err != nil {
		t.Fatal(err)
	}
	many, err := s.readPage(t.Context(), 0, livePageSQL, "5", 100)
	if err != nil || len(many) != 100 || !reflect.DeepEqual(many, few) {
		t.Errorf("got %d claims, and %d where they are few (%v)", len(many), len(few), err)
	}
}
