package sqlitefile

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

const (
	// newest is the last version of the schema that there is, which PRAGMA user_version holds. Files of all versions from 1 on are read.
	newest = 6
	// sessionsSince is the first version with the tables of sessions and servers.
	sessionsSince = 3
)

// schema reads the version of the schema.
func schema(conn *sqlite.Conn) (version int, err error) {
	err = sqlitex.ExecuteTransient(conn, "PRAGMA user_version", &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		version = row.ColumnInt(0)
		return nil
	}})
	switch {
	case err != nil:
		return 0, err
	case version > newest:
		return 0, fmt.Errorf("%w: it is at %d, and this locket knows %d", db.ErrNewerSchema, version, newest)
	case version == 0:
		return 0, errors.New("it is not a file of a Locket server")
	}
	return version, nil
}

// column is a column of a table, since a version of the schema; in older files it has a value.
type column struct {
	name  string
	since int
	value string
}

var claimColumns = append(always("id", "resource", "owner", "mode", "type", "ttl", "user_data", "value", "status", "position", "token", "version",
	"deadline", "created", "activated", "finished", "reason"),
	column{"session", 3, "''"}, column{"wait_ttl", 3, "0"}, column{"identity", 4, "''"}, column{"ended_by", 4, "''"})

var sessionColumns = append(always("id", "owner", "secret", "ttl", "server", "attached", "deadline", "created", "version"),
	column{"identity", 4, "''"}, column{"ending_active", 6, "0"}, column{"ending_waiting", 6, "0"}, column{"ending_reason", 6, "''"}, column{"ended_by", 6, "''"})

func always(names ...string) (list []column) {
	for _, name := range names {
		list = append(list, column{name: name})
	}
	return list
}

// columns are those of a file of a version.
func columns(list []column, version int) string {
	names := make([]string, len(list))
	for i, c := range list {
		if names[i] = c.name; c.since > version {
			names[i] = c.value
		}
	}
	return strings.Join(names, ", ")
}

// scanClaim reads a claim from a row of claimColumns.
func scanClaim(row *sqlite.Stmt) *claim.Claim {
	c := &claim.Claim{
		ID:        row.ColumnText(0),
		Resource:  row.ColumnText(1),
		Owner:     row.ColumnText(2),
		Mode:      claim.Mode(row.ColumnInt64(3)),
		Type:      claim.Type(row.ColumnInt64(4)),
		TTL:       time.Duration(row.ColumnInt64(5)) * time.Microsecond,
		Value:     row.ColumnText(7),
		Status:    claim.Status(row.ColumnInt64(8)),
		Enqueued:  uint64(row.ColumnInt64(9)),
		Token:     uint64(row.ColumnInt64(10)),
		Version:   uint64(row.ColumnInt64(11)),
		Deadline:  claim.Time(row.ColumnInt64(12)),
		Created:   claim.Time(row.ColumnInt64(13)),
		Activated: claim.Time(row.ColumnInt64(14)),
		Finished:  claim.Time(row.ColumnInt64(15)),
		Reason:    row.ColumnText(16),
		Session:   row.ColumnText(17),
		WaitTTL:   time.Duration(row.ColumnInt64(18)) * time.Microsecond,
		Identity:  row.ColumnText(19),
		EndedBy:   row.ColumnText(20),
	}
	if !row.ColumnIsNull(6) {
		c.UserData = []byte(row.ColumnText(6))
	}
	return c
}

// scanSession reads a session from a row of sessionColumns.
func scanSession(row *sqlite.Stmt) *claim.Session {
	s := &claim.Session{
		ID:       row.ColumnText(0),
		Owner:    row.ColumnText(1),
		Secret:   make([]byte, row.ColumnLen(2)),
		TTL:      time.Duration(row.ColumnInt64(3)) * time.Microsecond,
		Server:   row.ColumnText(4),
		Attached: claim.Time(row.ColumnInt64(5)),
		Deadline: claim.Time(row.ColumnInt64(6)),
		Created:  claim.Time(row.ColumnInt64(7)),
		Version:  uint64(row.ColumnInt64(8)),
		Identity: row.ColumnText(9),
		Ending: claim.Ending{
			Active: claim.Status(row.ColumnInt64(10)), Waiting: claim.Status(row.ColumnInt64(11)),
			Reason: row.ColumnText(12), By: row.ColumnText(13),
		},
	}
	row.ColumnBytes(2, s.Secret)
	return s
}
