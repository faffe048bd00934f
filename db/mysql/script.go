package mysql

import (
	"context"
	"database/sql"
	"strings"
)

// script is a list of statements that belong together.
type script []statement

type statement struct {
	text string
	args []any
}

// bytes is how long a statement is at most when its arguments have been put into it.
func (s statement) bytes() int { return len(s.text) + argBytes(s.args) }

// argBytes is how long arguments are at most within a statement.
func argBytes(args []any) (n int) {
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			n += 2*len(arg) + 2
		case []byte:
			n += 2*len(arg) + len("_binary''")
		default:
			n += len("-9223372036854775808")
		}
	}
	return n
}

func (s *script) add(text string, args ...any) { *s = append(*s, statement{text, args}) }

// packets splits a script into packets: as large as packetBytes allows where that is safe, and one statement each elsewhere.
//
// It is safe where the database stops at the first statement that fails. A node of a cluster
// may roll a transaction back between two statements, in favor of another node's; in the
// middle of a packet Galera continues after that, and a COMMIT at the end would commit the
// second half.
func (s script) packets(together bool) script {
	if !together {
		return s
	}
	var packets script
	for len(s) > 0 {
		n, bytes := 1, s[0].bytes()
		for n < len(s) && bytes+s[n].bytes() < packetBytes {
			bytes += s[n].bytes()
			n++
		}
		packets = append(packets, s[:n].joined())
		s = s[n:]
	}
	return packets
}

// joined returns the statements as one.
func (s script) joined() statement {
	if len(s) == 1 {
		return s[0]
	}
	var text strings.Builder
	var args []any
	for i, statement := range s {
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(statement.text)
		args = append(args, statement.args...)
	}
	return statement{text.String(), args}
}

func (s script) exec(ctx context.Context, conn *sql.Conn, together bool) error {
	for _, packet := range s.packets(together) {
		if _, err := conn.ExecContext(ctx, packet.text, packet.args...); err != nil {
			return err
		}
	}
	return nil
}

// query carries out a script of SELECTs, and calls row for each row of the n-th of them with
// n.
func (s script) query(ctx context.Context, conn *sql.Conn, together bool, row func(n int, rows *sql.Rows) error) error {
	n := 0
	for _, packet := range s.packets(together) {
		rows, err := conn.QueryContext(ctx, packet.text, packet.args...)
		if err != nil {
			return err
		}
		if err := scanSets(rows, &n, row); err != nil {
			return err
		}
	}
	return nil
}

// scanSets reads all result sets of a packet; n counts the sets.
func scanSets(rows *sql.Rows, n *int, row func(n int, rows *sql.Rows) error) error {
	defer func() { _ = rows.Close() }()
	for more := true; more; more = rows.NextResultSet() {
		for rows.Next() {
			if err := row(*n, rows); err != nil {
				return err
			}
		}
		*n++
	}
	return rows.Err()
}
