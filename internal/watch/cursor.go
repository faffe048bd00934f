package watch

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// Cursor is the place of a watcher in the feed, which all servers share.
type Cursor struct {
	// Position covers all commits that the watcher has seen.
	Position db.Position
	// the feed ended at Position at the database's time At or later.
	At claim.Time
}

// ErrCursor is returned for a text that is not a cursor of this version.
var ErrCursor = errors.New("not a cursor that a watch has given")

const (
	// cursorVersion is the first byte of a cursor.
	cursorVersion = 1
	// MaxCursor is the maximum length of a cursor as text, in bytes. It has about 40 bytes for each server that has
	// committed within the last 20 minutes.
	MaxCursor = 64 << 10
	// maxServers is how many servers a cursor has at most.
	maxServers = MaxCursor / 40
)

// String returns the cursor as text, of letters, digits, "-" and "_".
func (c Cursor) String() string {
	buf := binary.AppendVarint([]byte{cursorVersion}, int64(c.At))
	for _, server := range slices.Sorted(maps.Keys(c.Position)) {
		buf = binary.AppendUvarint(buf, uint64(len(server)))
		buf = append(buf, server...)
		buf = binary.AppendUvarint(buf, c.Position[server])
	}
	return base64.RawURLEncoding.EncodeToString(buf)
}

// ParseCursor returns the cursor that a text encodes, or ErrCursor.
func ParseCursor(text string) (Cursor, error) {
	if len(text) > MaxCursor {
		return Cursor{}, ErrCursor
	}
	buf, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(buf) == 0 || buf[0] != cursorVersion {
		return Cursor{}, ErrCursor
	}
	at, size := binary.Varint(buf[1:])
	if size <= 0 {
		return Cursor{}, ErrCursor
	}
	c := Cursor{Position: db.Position{}, At: claim.Time(at)}
	for buf = buf[1+size:]; len(buf) > 0; {
		length, size := binary.Uvarint(buf)
		if size <= 0 || length > uint64(len(buf)-size) {
			return Cursor{}, ErrCursor
		}
		server := string(buf[size : size+int(length)])
		buf = buf[size+int(length):]
		n, size := binary.Uvarint(buf)
		if _, again := c.Position[server]; size <= 0 || again || len(c.Position) == maxServers {
			return Cursor{}, ErrCursor
		}
		c.Position[server] = n
		buf = buf[size:]
	}
	return c, nil
}
