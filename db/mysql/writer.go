package mysql

import (
	"iter"
	"strings"
)

const (
	// packetBytes is how much is sent to the database at once, a statement with a single row of claims apart:
	// that has less than half as much. Both hold when each byte of a text has to be escaped.
	packetBytes = 512 << 10
	// minPacket is the smallest limit of the server (max_allowed_packet) that suffices for all of this.
	minPacket = 1 << 20
	// keyBytes is how many bytes of keys a statement names.
	keyBytes = packetBytes / 4
	// maxKeys is how many keys a statement names. MariaDB makes a subquery of a longer list
	// (in_predicate_conversion_threshold), which scans and locks more than the keys.
	maxKeys = 900
)

// chunks cuts a list of keys into parts that a statement can name.
func chunks(keys []string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for len(keys) > 0 {
			n, bytes := 0, 0
			for n < min(len(keys), maxKeys) && bytes < keyBytes {
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
	script *script      // gets the statements
	send   func() error // sends the script and empties it
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

func newWriter(to *script, send func() error) *writer {
	return &writer{script: to, send: send, byKey: make(map[any]*group)}
}

// row writes a row: begin is an INSERT up to VALUES, end follows its rows.
func (w *writer) row(begin, end string, values ...any) {
	g := w.group(begin+end, func() *group {
		return &group{begin: begin, row: marks(len(values)) + ",", end: end}
	})
	w.add(g, values...)
}

// same changes the row with a key as update says, an UPDATE up to IN. Rows that get the
// same values, which kind tells apart, share a statement.
func (w *writer) same(update string, kind any, values []any, key string) {
	g := w.group([2]any{update, kind}, func() *group {
		return &group{begin: update + "(", row: "?,", end: ")", args: values}
	})
	w.add(g, key)
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

func (w *writer) add(g *group, args ...any) {
	g.args = append(g.args, args...)
	g.rows++
	w.bytes += len(g.row) + argBytes(args)
	if w.bytes >= packetBytes && w.err == nil {
		w.collect()
		w.err = w.send()
	}
}

// flush leaves what is not sent yet in the script.
func (w *writer) flush() error {
	w.collect()
	return w.err
}

func (w *writer) collect() {
	for _, g := range w.groups {
		rows := strings.TrimSuffix(strings.Repeat(g.row, g.rows), ",")
		w.script.add(g.begin+rows+g.end, g.args...)
	}
	w.groups, w.bytes = nil, 0
	clear(w.byKey)
}
