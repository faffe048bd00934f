package mysql

import "strings"

// packetBytes is about how much is sent to the database at once. The smallest limit of a
// server (max_allowed_packet) that is in use is 1 MiB.
const packetBytes = 256 << 10

// writer gathers rows into statements of many rows each.
type writer struct {
	tx         *tx
	bytes      int
	statements []*statement
	byKey      map[any]*statement
	err        error
}

// statement is one statement with all of its rows.
type statement struct {
	begin, row, end string
	args            []any
	rows            int
}

func newWriter(t *tx) *writer { return &writer{tx: t, byKey: make(map[any]*statement)} }

// row writes a row of about so many bytes: begin is an INSERT up to VALUES, end is what
// follows its rows.
func (w *writer) row(begin, end string, bytes int, values ...any) {
	s := w.statement(begin+end, func() *statement {
		return &statement{begin: begin, row: marks(len(values)) + ",", end: end}
	})
	w.add(s, bytes, values...)
}

// same changes the row with a key as update says, an UPDATE up to IN. Rows that get the
// same values, which kind tells apart, share a statement.
func (w *writer) same(update string, kind any, values []any, key string) {
	s := w.statement([2]any{update, kind}, func() *statement {
		return &statement{begin: update + "(", row: "?,", end: ")", args: values}
	})
	w.add(s, len(key), key)
}

func (w *writer) statement(key any, begin func() *statement) *statement {
	s := w.byKey[key]
	if s == nil {
		s = begin()
		w.byKey[key] = s
		w.statements = append(w.statements, s)
	}
	return s
}

func (w *writer) add(s *statement, bytes int, args ...any) {
	s.args = append(s.args, args...)
	s.rows++
	w.bytes += bytes
	if w.bytes >= packetBytes && w.err == nil {
		w.collect()
		w.err = w.tx.send()
	}
}

// flush leaves what is not sent yet in the script of the transaction.
func (w *writer) flush() error {
	w.collect()
	return w.err
}

func (w *writer) collect() {
	for _, s := range w.statements {
		rows := strings.TrimSuffix(strings.Repeat(s.row, s.rows), ",")
		w.tx.script.add(s.begin+rows+s.end, s.args...)
	}
	w.statements, w.bytes = nil, 0
	clear(w.byKey)
}
