package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sync"

	"zombiezen.com/go/sqlite"
)

// ErrDamaged is returned, wrapped in ErrUnreadable, for data that has changed since it was written.
var ErrDamaged = errors.New("it has changed since it was written")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the CRC-32C of values. It is stored: what it is made of never changes. Each value has its type, and its length or its number,
// before it.
func checksum(values []sqlite.Value) uint32 {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	all := (*buffer)[:0]
	for _, v := range values {
		all = append(all, byte(v.Type()))
		switch v.Type() {
		case sqlite.TypeNull:
			all = binary.LittleEndian.AppendUint64(all, 0)
		case sqlite.TypeInteger:
			all = binary.LittleEndian.AppendUint64(all, uint64(v.Int64()))
		case sqlite.TypeText:
			all = appendSized(all, v.Text())
		default:
			all = appendSized(all, v.Blob())
		}
	}
	*buffer = all
	return crc32.Checksum(all, castagnoli)
}

func appendSized[T string | []byte](all []byte, text T) []byte {
	return append(binary.LittleEndian.AppendUint64(all, uint64(len(text))), text...)
}

// buffers are of checksum.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// intact is the condition that a row of claims has not changed since it was written: see addIntact. It reads the whole
// row, so it should come last.
const intact = "intact(rowid, sum, entry, " + columns + ")"

// addIntact adds the function of intact to a connection. damaged is called with the number of each changed row, and the
// id in it.
func addIntact(conn *sqlite.Conn, damaged func(row int64, id string)) error {
	return conn.CreateFunction("intact", &sqlite.FunctionImpl{NArgs: -1, Scalar: func(_ sqlite.Context, args []sqlite.Value) (sqlite.Value, error) {
		row, sum, rest := args[0].Int64(), args[1], args[2:]
		if sum.Type() == sqlite.TypeInteger && sum.Int64() == int64(checksum(rest)) {
			return sqlite.IntegerValue(1), nil
		}
		damaged(row, rest[1].Text())
		return sqlite.IntegerValue(0), nil
	}})
}

// damage says of a row that it is damaged, and what to do.
func damage(path string, row int64, id string) string {
	return fmt.Sprintf("%s: the claim %.200q in row %d has changed since it was written, or an index has; it is not shown, and is deleted with the retention. "+
		"`sqlite3 %[1]s REINDEX` mends an index; where `locket check` still finds the row: sqlite3 %[1]s 'DELETE FROM claims WHERE rowid = %[3]d'", path, id, row)
}

// maxDamage is how many damaged rows are remembered.
const maxDamage = 100

// noteDamage remembers a damaged row, and reports it to OnDamage the first time.
func (h *History) noteDamage(row int64, id string) {
	h.mu.Lock()
	_, known := h.damaged[row]
	tell := !known && len(h.damaged) < maxDamage
	if tell {
		h.damaged[row] = id
	}
	h.mu.Unlock()
	if tell && h.OnDamage != nil {
		h.OnDamage(damage(h.path, row, id))
	}
}

// Damage describes the damaged rows that were read, and what to do about each: up to 100.
func (h *History) Damage() (problems []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, row := range slices.Sorted(maps.Keys(h.damaged)) {
		problems = append(problems, damage(h.path, row, h.damaged[row]))
	}
	return problems
}

// forgetDamage forgets the damaged rows that are not there any more.
func (h *History) forgetDamage() error {
	h.mu.Lock()
	rows := slices.Collect(maps.Keys(h.damaged))
	h.mu.Unlock()
	for _, row := range rows {
		there := false
		err := query(h.writer, "SELECT 1 FROM claims WHERE rowid = ?", []any{row}, func(*sqlite.Stmt) bool { there = true; return false })
		if err != nil {
			return err
		}
		if !there {
			h.mu.Lock()
			delete(h.damaged, row)
			h.mu.Unlock()
		}
	}
	return nil
}
