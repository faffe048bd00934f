package mysql

import (
	"iter"
	"strings"
)

const (
	// packetBytes is about how much is sent to the database at once. The smallest limit of a
	// server (max_allowed_packet) that is in use is 1 MiB.
	packetBytes = 256 << 10
	// maxKeys is how many keys a statement names. MariaDB makes a subquery of a longer list
	// (in_predicate_conversion_threshold), which scans and locks more than the keys.
	maxKeys = 900
)

// chunks cuts a list of keys into parts that a statement can name.
func chunks(keys []string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for len(keys) > 0 {
			n, bytes := 0, 0
			for n < min(len(keys), maxKeys) && bytes < packetBytes {
				bytes += len(keys[n])
				n++
			}
			if !yield(keys[:n]) {
				return
			}
			keys = keys[n:]
		}
	}
}

// writer gathers rows into statements of many rows each.
type writer struct {
	tx     *tx
	bytes  int
	groups []*group
	byKey  map[any]*group
	err    error
}

// group is one statement with all of its rows.
type group struct {
	begin, row, end string
	args            []any
	rows            int
}

func newWriter(t *tx) *writer { return &writer{tx: t, byKey: make(map[any]*group)} }

// row writes a row of about so many bytes: begin is an INSERT up to VALUES, end is what
// follows its rows.
func (w *writer) row(begin, end string, bytes int, values ...any) {
	g := w.group(begin+end, func() *group {
		return &group{begin: begin, row: marks(len(values)) + ",", end: end}
	})
	w.add(g, bytes, values...)
}

// same changes the row with a key as update says, an UPDATE up to IN. Rows that get the
// same values, which kind tells apart, share a statement.
func (w *writer) same(update string, kind any, values []any, key string) {
	g := w.group([2]any{update, kind}, func() *group {
		return &group{begin: update + "(", row: "?,", end: ")", args: values}
	})
	w.add(g, len(key), key)
}

func (w *writer) group(key any, begin func() *group) *group {
	g := w.byKey[key]
	if g == nil || g.rows == maxKeys {
		g = begin()
		w.byKey[key] = g
		w.groups = append(w.groups, g)
	}
	return g
}

func (w *writer) add(g *group, bytes int, args ...any) {
	g.args = append(g.args, args...)
	g.rows++
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
	for _, g := range w.groups {
		rows := strings.TrimSuffix(strings.Repeat(g.row, g.rows), ",")
		w.tx.script.add(g.begin+rows+g.end, g.args...)
	}
	w.groups, w.bytes = nil, 0
	clear(w.byKey)
}
