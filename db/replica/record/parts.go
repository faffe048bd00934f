package record

import "fmt"

// A shared log takes entries up to a size. A larger record is several entries, one after the other. The first byte of an
// entry names its kind; a whole record begins with the version of its format.
const (
	partFirst  = 0xf1 // the first part of a record
	partMiddle = 0xf2
	partLast   = 0xf3
)

// Split returns the entries of a record, each of up to most bytes.
func Split(record []byte, most int) (entries [][]byte) {
	if len(record) <= most {
		return [][]byte{record}
	}
	kind := byte(partFirst)
	for len(record) > 0 {
		n := min(len(record), most-1)
		if n == len(record) {
			kind = partLast
		}
		entries = append(entries, append([]byte{kind}, record[:n]...))
		kind, record = partMiddle, record[n:]
	}
	return entries
}

// GoesOn reports whether an entry is part of a record that the entry before it belongs to.
func GoesOn(entry []byte) bool {
	return len(entry) > 0 && (entry[0] == partMiddle || entry[0] == partLast)
}

// Joiner makes records from entries.
type Joiner struct {
	parts []byte // nil between two records
}

// Add adds the next entry. It returns a record when that is complete, and nil before. Parts without a last one were left
// by a decider that was deposed: the next record replaces them. It returns ErrFormat for a part without the first one.
func (j *Joiner) Add(entry []byte) (record []byte, err error) {
	if len(entry) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrFormat)
	}
	kind := entry[0]
	switch {
	case kind == partFirst:
		j.parts = append([]byte{}, entry[1:]...)
		return nil, nil
	case kind != partMiddle && kind != partLast:
		j.parts = nil
		return entry, nil
	case j.parts == nil:
		return nil, fmt.Errorf("%w: a part has no beginning", ErrFormat)
	}
	j.parts = append(j.parts, entry[1:]...)
	if kind == partMiddle {
		return nil, nil
	}
	record, j.parts = j.parts, nil
	return record, nil
}
