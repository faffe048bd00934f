package mysql

import (
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// crowded returns a store with a few thousand claims, in every state.
func crowded(t *testing.T) *Store {
	t.Helper()
	s := open(t, fixtures.MySQL(t))
	dbtest.Crowd(t, s)
	if _, err := s.reader.Exec("ANALYZE TABLE claims, resources"); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPlans keeps each statement on its index.
func TestPlans(t *testing.T) {
	s := crowded(t)
	for name, c := range map[string]struct {
		sql  string
		want []string // the key of each table, in order
	}{
		"last commits":      {feedLastSQL, []string{"PRIMARY"}},
		"lock":              {fmt.Sprintf(lockSQL, "('r1','r2')"), []string{"PRIMARY"}},
		"whole claims":      {fmt.Sprintf(wholeClaimsSQL, "('1','2')"), []string{"PRIMARY"}},
		"claims":            {fmt.Sprintf(shortClaimsSQL, "('1','2')"), []string{"PRIMARY"}},
		"claims of session": {fmt.Sprintf(claimsOfSQL, "('s1','s2')"), []string{"session_claims_session", "PRIMARY"}},
		"boundary":          {fmt.Sprintf(boundarySQL, "('s1','s2')"), []string{"session_claims_session"}},
		"free":              {freeResources + "('r1','r2')", []string{"PRIMARY"}},
		"end":               {endClaims + "('1','2')", []string{"PRIMARY"}},
		"waiters":           {waitersSQL, []string{"claims_line"}},
		"shared":            {sharedDueSQL, []string{"claims_sharing"}},
		"get":               {getSQL, []string{"PRIMARY", "PRIMARY"}},
		"holder":            {holderSQL, []string{"PRIMARY", "claims_line", "PRIMARY"}},
		"queue":             {queueSQL, []string{"PRIMARY", "PRIMARY", "PRIMARY", "PRIMARY", "claims_line", "claims_line", ""}},
		"place":             {strings.ReplaceAll(placeSQL, "id = ?", "id = '0-8'"), []string{"PRIMARY", "PRIMARY", "", "PRIMARY", "claims_line"}},
		"held":              {heldSQL, []string{"claims_phase"}},
		"next due":          {nextDueSQL, slices.Repeat([]string{"claims_phase"}, 8)},
		"abandoned":         {abandonedSQL, []string{"claims_phase"}},
		"heldpage":          {heldPageSQL, []string{"", "PRIMARY", "claims_phase"}},
		"live page":         {livePageSQL, []string{"PRIMARY"}},
		"few live":          {fewLivePageSQL, []string{"", "PRIMARY", "claims_phase"}},
		"are few":           {countAllLiveSQL, []string{"", "claims_phase"}},
		"due":               {dueSQL, []string{"claims_phase", "PRIMARY"}},
		"waits of owners":   {strings.Replace(ownerWaitsSQL, "%s", "('o1')", 1), []string{"PRIMARY", "PRIMARY"}},
		"waits of sessions": {strings.Replace(sessionWaitsSQL, "%s", "('o1')", 1), []string{"session_claims_session", "PRIMARY"}},
		"usage":             {strings.ReplaceAll(fmt.Sprintf(usageSQL, " AND id NOT IN ('1')"), "IN (?, ?)", "IN ('ai', 'wi')"), []string{"claims_live_of"}},
		"delete resources":  {"DELETE FROM resources WHERE (name, version) IN (('r1',1),('r2',2))", []string{"PRIMARY"}},
		"sessions of":       {strings.Replace(attachedBeforeSQL, "?", "'s1'", 1) + " FOR UPDATE" + skipLocked, []string{"sessions_server"}},
		"detach":            {detachSQL + "('s1','s2')", []string{"PRIMARY"}},
		"prune":             {pruneSQL, []string{"claims_phase"}},
		"prune, skipping":   {pruneSQL + " FOR UPDATE" + skipLocked, []string{"claims_phase"}},
		"count":             {countSQL, []string{"claims_phase", "sessions_deadline"}},
		"oldest waiting":    {oldestWaitingSQL, []string{"claims_line", "claims_line"}},
		"cutoff":            {cutoffSQL, []string{"claims_phase"}},

		"count waiting": {countFew(claim.Waiting), []string{"PRIMARY", "", "claims_phase"}},
		"count active":  {countFew(claim.Active), []string{"PRIMARY", "", "claims_phase"}},
		"count live":    {countFew(claim.Waiting, claim.Active), []string{"PRIMARY", "", "claims_phase"}},
	} {
		if keys := plan(t, s.reader, c.sql); strings.Join(keys, " ") != strings.Join(c.want, " ") {
			t.Errorf("%s uses %v, want %v", name, keys, c.want)
		}
	}
}

func countFew(statuses ...claim.Status) string {
	query, _ := countFewSQL(db.Filter{Statuses: statuses})
	return query
}

// plan returns the keys that the database uses for a statement, in the order of its tables.
func plan(t *testing.T, pool rowsQuerier, statement string) (keys []string) {
	t.Helper()
	statement = strings.NewReplacer(
		"id = ?", "id = '0-4'", "name = ?", "name = 'shared 0'", "line = ?", "line = 'shared 0'", "sharing = ?", "sharing = 'shared 0'", "?", "1",
	).Replace(statement)
	for _, step := range explain(t, pool, statement) {
		keys = append(keys, step["key"])
	}
	return keys
}

// explain returns the database's plan for each table in a statement.
func explain(t *testing.T, pool rowsQuerier, statement string, args ...any) (steps []map[string]string) {
	t.Helper()
	err := each(t.Context(), pool, "EXPLAIN FORMAT = TRADITIONAL "+statement, args, func(rows *sql.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		err = rows.Scan(into...)
		step := make(map[string]string)
		for i, column := range columns {
			step[column] = values[i].String
		}
		steps = append(steps, step)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return steps
}

func TestListPlans(t *testing.T) {
	s := crowded(t)
	r, o := "shared 1", "o1"
	after := &db.Cursor{Created: 1, ID: "a"}
	live := []claim.Status{claim.Waiting, claim.Active}
	byCreation := []string{"range claims_created"}
	byPhase, waiting := []string{"range claims_phase sorted"}, []string{"ref claims_phase sorted"}
	for name, c := range map[string]struct {
		f    db.Filter
		few  bool
		want []string
	}{
		"all":                {db.Filter{}, false, byCreation},
		"after":              {db.Filter{After: after}, false, byCreation},
		"resource":           {db.Filter{Resource: &r}, false, byCreation},
		"owner":              {db.Filter{Owner: &o}, false, byCreation},
		"released":           {db.Filter{Statuses: []claim.Status{claim.Released}}, false, byCreation},
		"waiting":            {db.Filter{Statuses: []claim.Status{claim.Waiting}}, false, byCreation},
		"active":             {db.Filter{Statuses: []claim.Status{claim.Active}}, false, byCreation},
		"active, after":      {db.Filter{Statuses: []claim.Status{claim.Active}, After: after}, false, byCreation},
		"active of an owner": {db.Filter{Statuses: []claim.Status{claim.Active}, Owner: &o}, false, byCreation},
		"live":               {db.Filter{Statuses: live}, false, byCreation},
		"few live":           {db.Filter{Statuses: live}, true, byPhase},
		"newest":             {db.Filter{Newest: true}, false, byCreation},
		"newest, after":      {db.Filter{Newest: true, After: after}, false, byCreation},
		"prefix":             {db.Filter{Prefix: "shared"}, false, byCreation},
		"few of a prefix": {db.Filter{Prefix: "shared", Statuses: live}, true, []string{
			"ALL  sorted", "eq_ref PRIMARY", "range PRIMARY", "range claims_line", "range claims_line",
		}},
		"few waiting":       {db.Filter{Statuses: []claim.Status{claim.Waiting}}, true, waiting},
		"few active":        {db.Filter{Statuses: []claim.Status{claim.Active}}, true, byPhase},
		"few active, after": {db.Filter{Statuses: []claim.Status{claim.Active}, After: after}, true, byPhase},
		"few of an owner":   {db.Filter{Statuses: []claim.Status{claim.Active}, Owner: &o}, true, byPhase},
		"live of a resource": {db.Filter{Resource: &r, Statuses: []claim.Status{claim.Active}}, false, []string{
			"ALL  sorted", "eq_ref PRIMARY", "const PRIMARY", "ref claims_line", "ref claims_line",
		}},
	} {
		for _, c.f.Limit = range []int{10, 1001} {
			query, args := listSQL(c.f, c.few, claim.Instant{Wall: 1, Lease: 1})
			var got []string
			for _, step := range explain(t, s.reader, query, args...) {
				line := step["type"] + " " + step["key"]
				if strings.Contains(step["Extra"], "filesort") {
					line += " sorted"
				}
				got = append(got, line)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, limit %d: %q, want %q", name, c.f.Limit, got, c.want)
			}
		}
	}
}

// TestFewLive: few live claims and many are listed alike.
func TestFewLive(t *testing.T) {
	s := crowded(t)
	f := db.Filter{Statuses: []claim.Status{claim.Active}, Limit: 1001}
	list := func(want bool) []claim.Claim {
		t.Helper()
		if _, few, err := s.few(t.Context(), f); err != nil || few != want {
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
	columns := strings.Replace(strings.Replace(claimColumns, "id", "CONCAT(id, '/', n)", 1), "created", "created + n", 1)
	query := "INSERT INTO claims (" + claimColumns + ") SELECT " + columns + " FROM claims, (SELECT 3600000000 + ? AS n) copy WHERE status = 2 AND id NOT LIKE '%/%'"
	for n := range 10 { // a statement may not take long
		if _, err := s.reader.Exec(query, n); err != nil {
			t.Fatal(err)
		}
	}
	if many := list(false); !reflect.DeepEqual(many, few) {
		t.Errorf("got %v, want %v", many, few)
	}
}

// TestRowsTouched counts what the database touches to hand a resource on: the same in a
// short queue and in a long one.
func TestRowsTouched(t *testing.T) {
	s := openSteady(t)
	short, long := rowsTouched(t, s, "short", 40), rowsTouched(t, s, "long", 2000)
	if long > short {
		t.Errorf("%d rows are touched in a queue of 2,000, and %d in one of 40", long, short)
	}
}

func rowsTouched(t *testing.T, s *Store, resource string, waiters int) int {
	t.Helper()
	var commands []claim.Command
	for i := range waiters {
		commands = append(commands, claim.Create{ID: fmt.Sprint(resource, i), Resource: resource, TTL: time.Hour})
	}
	dbtest.Do(t, s, commands...)
	before := handlerCalls(t, s)
	dbtest.Do(t, s, claim.SetStatus{ID: resource + "0", Status: claim.Released})
	return handlerCalls(t, s) - before
}

// TestRowsRead counts what the database touches to show a queue, its first holder and a place
// in it: the same where few share and wait and where many do.
func TestRowsRead(t *testing.T) {
	s := openSteady(t)
	rows := func(resource string, n int) int {
		var commands []claim.Command
		for i := range 2 * n {
			mode := claim.Shared
			if i >= n {
				mode = claim.Exclusive
			}
			commands = append(commands, claim.Create{ID: fmt.Sprint(resource, i), Resource: resource, Units: mode, TTL: time.Hour})
		}
		dbtest.Do(t, s, commands...)
		before := handlerCalls(t, s)
		skip := func(*sql.Rows) error { return nil }
		for query, args := range map[string][]any{
			queueSQL:  {resource, resource, resource, 20, resource, 20},
			placeSQL:  {fmt.Sprint(resource, 2*n-1), 20, fmt.Sprint(resource, 2*n-1)},
			holderSQL: {resource, resource},
		} {
			if err := each(t.Context(), s.writer, query, args, skip); err != nil {
				t.Fatal(err)
			}
		}
		return handlerCalls(t, s) - before
	}
	if short, long := rows("short", 40), rows("long", 2000); long > short || short == 0 {
		t.Errorf("%d rows are read where 2,000 share and wait, and %d where 40 do", long, short)
	}
}

// TestRowsReadOfResources counts what the database touches to list resources: the same where few claims wait for them and
// where many do.
func TestRowsReadOfResources(t *testing.T) {
	s := openSteady(t)
	rows := func(prefix string, waiters int) int {
		const resources = 10
		var commands []claim.Command
		for r := range resources {
			for i := range 2 + waiters {
				mode := claim.Shared
				if r%2 == 0 || i > 1 {
					mode = claim.Exclusive
				}
				commands = append(commands, claim.Create{ID: fmt.Sprint(prefix, r, "-", i), Resource: fmt.Sprint(prefix, r), Units: mode, TTL: time.Hour})
			}
		}
		dbtest.Do(t, s, commands...)
		if _, err := s.reader.Exec("ANALYZE TABLE claims, resources"); err != nil {
			t.Fatal(err)
		}
		before := handlerCalls(t, s)
		found := 0
		count := func(*sql.Rows) error { found++; return nil }
		end := db.PrefixEnd(prefix)
		for query, args := range map[string][]any{
			resourcesSQL:      {prefix, end, ""},
			lastResourceSQL:   {prefix, end, "", 5},
			contendedSQL:      {prefix, end, 1000, 1 << 30, 1 << 30, "", 1000},
			countContendedSQL: {prefix, end, 1000},
		} {
			if err := each(t.Context(), s.writer, query, args, count); err != nil {
				t.Fatal(err)
			}
		}
		if found != 2*resources+2 {
			t.Errorf("%d rows", found)
		}
		return handlerCalls(t, s) - before
	}
	if short, long := rows("short", 2), rows("long", 400); long > short+short/10 || short == 0 {
		t.Errorf("%d rows are read where 400 wait for each, and %d where 2 do", long, short)
	}
}

// openSteady opens a store that writes over one connection: each counts for itself.
func openSteady(t *testing.T) *Store {
	t.Helper()
	dsn := fixtures.MySQL(t)
	s := open(t, dsn)
	reconnect(t, &s.writer, dsn, steady())
	return s
}

// handlerCalls is how many rows the connection that writes has read and written so far.
func handlerCalls(t *testing.T, s *Store) (sum int) {
	t.Helper()
	const query = `SHOW SESSION STATUS WHERE Variable_name IN ('Handler_read_key', 'Handler_read_next',
		'Handler_read_first', 'Handler_read_rnd', 'Handler_read_rnd_next', 'Handler_write', 'Handler_update', 'Handler_delete')`
	err := each(t.Context(), s.writer, query, nil, func(rows *sql.Rows) error {
		var name string
		var n int
		err := rows.Scan(&name, &n)
		sum += n
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
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
