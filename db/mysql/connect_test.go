package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/db"
)

// TestCodes: what each answer of a database means, for a statement and for a COMMIT.
func TestCodes(t *testing.T) {
	const again, away, fault = "again", "away", "fault"
	behind := []uint16{3781, 3797, 3798} // a member of a group that lags behind is asked again before it counts as away
	for code, want := range map[uint16]struct {
		statement string
		asks      bool // a COMMIT asks for its outcome
	}{
		1062: {again, false}, // another server has made the row
		1205: {again, false},
		1213: {again, false},
		3101: {again, true}, // another member's transaction came first, or this member left its group
		1180: {again, true},
		1047: {away, false}, // a Galera node without its cluster
		1053: {away, true},  // shutting down
		1290: {away, false}, // read-only: no longer the primary
		1317: {away, true},  // killed
		1792: {away, false},
		1836: {away, false},
		1226: {away, false}, // the user has as many connections as it may
		1130: {away, false}, // the user was dropped
		4150: {away, false}, // the user is blocked
		2006: {away, true},  // a proxy has lost its connection
		2013: {away, true},
		4031: {away, true}, // the connection was silent for too long
		1927: {away, true},
		3100: {away, true},
		3781: {away, false},
		3797: {away, false},
		3798: {away, false},
		3799: {away, false}, // a member cannot ask its group
		1044: {away, false}, // the rights were taken away
		1045: {away, false}, // the password was changed
		1049: {away, false}, // the database is gone
		1142: {away, false},
		1146: {away, false}, // a table is gone
		1969: {away, true},  // it took too long
		3024: {away, false}, // a read took too long
		1064: {fault, false},
		3098: {fault, false}, // a table that a group cannot replicate: ours all can
	} {
		err := fmt.Errorf("a statement: %w", &mysql.MySQLError{Number: code})
		got := fault
		switch translated := translate(context.Background(), err); {
		case errors.Is(translated, db.ErrConflict):
			got = again
		case errors.Is(translated, db.ErrUnavailable):
			got = away
		}
		if repeats := got == again || slices.Contains(behind, code); got != want.statement || conflict(err) != repeats {
			t.Errorf("%d: %s, want %s; it is repeated: %t, want %t", code, got, want.statement, conflict(err), repeats)
		}
		if asks := outcomeOpen(err); asks != want.asks {
			t.Errorf("COMMIT with %d asks for the outcome: %t, want %t", code, asks, want.asks)
		}
	}
}
