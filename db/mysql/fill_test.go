package mysql

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestFillInSteps: no statement of a restore changes more rows than a server's statements do, however many claims there
// are: a group takes no transaction of more than 150 MB.
func TestFillInSteps(t *testing.T) {
	t.Parallel()
	dsn := patient(t, fixtures.MySQL(t))
	s := open(t, dsn)
	_, err := s.reader.Exec("CREATE TABLE steps (at DATETIME(6) NOT NULL PRIMARY KEY, changed INT NOT NULL)")
	must(t, err)
	for _, event := range []string{"INSERT", "UPDATE"} { // NOW is when the statement began
		_, err := s.reader.Exec("CREATE TRIGGER count_" + event + " AFTER " + event + " ON resources FOR EACH ROW INSERT INTO steps VALUES (NOW(6), 1) ON DUPLICATE KEY UPDATE changed = changed + 1")
		must(t, err)
	}
	const resources = 3 * maxKeys
	must(t, Fill(t.Context(), dsn, func(to backup.Sink) error {
		var head backup.Head
		must(t, to.Begin(head))
		name := func(i int) string { return fmt.Sprintf("r%05d", i) }
		for i := range resources {
			c := claim.Claim{ID: "a" + name(i), Resource: name(i), Owner: "o", TTL: time.Hour, Status: claim.Active, Token: 1, Version: 1, Deadline: 1}
			if i%2 == 1 {
				c.Units = claim.Shared
			}
			must(t, to.Claim(&c))
		}
		for i := range resources {
			must(t, to.Claim(&claim.Claim{ID: "w" + name(i), Resource: name(i), Owner: "p", Status: claim.Waiting, Enqueued: 2, Version: 2}))
		}
		for i := range resources {
			must(t, to.Row(backup.Row{Row: claim.Row{Resource: name(i), Version: 2}}))
		}
		return to.End(head)
	}))
	var changed, right int
	must(t, s.reader.QueryRow("SELECT MAX(changed) FROM steps").Scan(&changed))
	if changed > maxKeys {
		t.Errorf("a statement changed %d rows", changed)
	}
	const query = "SELECT COUNT(*) FROM resources WHERE waiting = 1 AND (holder = CONCAT('a', name) AND shared = 0 OR holder = '' AND shared = 1)"
	must(t, s.reader.QueryRow(query).Scan(&right))
	if right != resources {
		t.Errorf("%d of %d resources are as their claims say", right, resources)
	}
	if held, err := s.Live(t.Context(), db.LiveOf{Held: new(claim.Untyped)}, db.Page{}); err != nil || len(held) != resources {
		t.Errorf("%d are held (%v)", len(held), err)
	}
}

// TestFillFenced: a restore that has stopped until another had its turn writes nothing more, even after the other has
// ended.
func TestFillFenced(t *testing.T) {
	t.Parallel()
	for name, until := range map[string]string{"the other one goes on": nowSQL + " + 3600000000", "the other one has ended": "0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := patient(t, fixtures.MySQL(t))
			s := open(t, dsn)
			err := Fill(t.Context(), dsn, func(to backup.Sink) error {
				must(t, to.Begin(backup.Head{}))
				_, err := s.control.Exec("UPDATE locket_turn SET server = 'another', until = " + until)
				must(t, err)
				time.Sleep(migrateLease/2 + time.Second) // real time: it would take its turn again by now
				for i := range maxKeys {
					if err := to.Ended(&claim.Claim{ID: fmt.Sprint(i), Resource: "r", Status: claim.Released, Version: 1}); err != nil {
						return err
					}
				}
				return to.End(backup.Head{})
			})
			if err == nil || !strings.Contains(err.Error(), "another restore") {
				t.Errorf("got %v", err)
			}
			var n int
			must(t, s.reader.QueryRow("SELECT COUNT(*) FROM claims").Scan(&n))
			if n != 0 {
				t.Errorf("it has written %d claims", n)
			}
			if at, err := schemaVersion(t.Context(), s.control); err != nil || at != schemaRestoring {
				t.Errorf("the schema is at %d (%v)", at, err)
			}
		})
	}
}
