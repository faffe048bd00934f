package history

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
)

// ErrIncomplete is returned for a file that does not have all claims, or not yet.
var ErrIncomplete = errors.New("the history does not have all claims that have ended")

// transferVersion is the version of the messages of a transfer.
const transferVersion = 1

// request asks for the claims of a gap with ids after one.
type request struct {
	after, entry uint64
	id           string
}

func (r *request) code(c *codec.Coder) {
	c.Format(transferVersion)
	c.Unsigned(&r.after)
	c.Unsigned(&r.entry)
	c.Text(&r.id)
}

// batch is a range of claims, by id. Its checksum follows it.
type batch struct {
	claims []Ended
	// last is the id up to where the claims are complete. whole says that none follow.
	last  string
	whole bool
}

func (b *batch) write() []byte {
	c := codec.Writer(nil)
	c.Format(transferVersion)
	c.Text(&b.last)
	c.Flag(&b.whole)
	for _, e := range b.claims {
		c.Unsigned(&e.Entry)
		c.Claim(e.Claim)
	}
	return binary.LittleEndian.AppendUint32(c.Buffer(), crc32.Checksum(c.Buffer(), castagnoli))
}

func (b *batch) read(data []byte) error {
	at := len(data) - crc32.Size
	if at < 0 || crc32.Checksum(data[:at], castagnoli) != binary.LittleEndian.Uint32(data[at:]) {
		return fmt.Errorf("%w: the checksum of a range is wrong", codec.ErrFormat)
	}
	c := codec.Reader(data[:at])
	c.Format(transferVersion)
	c.Text(&b.last)
	for c.Flag(&b.whole); c.Err() == nil && c.More(); {
		e := Ended{Claim: new(claim.Claim)}
		c.Unsigned(&e.Entry)
		c.Claim(e.Claim)
		b.claims = append(b.claims, e)
	}
	return c.End()
}

// rangeClaims and rangeBytes bound a range, but for its last claim.
const (
	rangeClaims = 1000
	rangeBytes  = 1 << 20
)

// Send answers the request of a Receive on another server. It calls send for each range. No reader waits for one who takes them slowly. It
// returns ErrIncomplete, ErrUnreadable, or an error of send.
func (h *History) Send(ctx context.Context, asked []byte, send func(part []byte) error) error {
	var want request
	c := codec.Reader(asked)
	if want.code(&c); c.End() != nil {
		return c.End()
	}
	for {
		if h.Entry() < want.entry || h.lacks(want.after, want.entry) {
			return ErrIncomplete
		}
		b, err := h.page(ctx, want)
		if err != nil {
			return err
		}
		if len(b.claims) > 0 || b.whole {
			if err := send(b.write()); err != nil || b.whole {
				return err
			}
		}
		want.id = b.last
	}
}

// page reads the next range. It may have no claims: a page has claims that ended in other entries too.
func (h *History) page(ctx context.Context, want request) (b batch, err error) {
	sql := "SELECT " + columns + ", " + intact + ", rowid, entry FROM claims INDEXED BY claims_id WHERE id > ? ORDER BY id LIMIT ?"
	var wrong error
	n, bytes := 0, 0
	b.last = want.id
	err = h.read(ctx, sql, []any{want.id, rangeClaims}, func(row *sqlite.Stmt) bool {
		var c *claim.Claim
		if c, wrong = scan(row); wrong == nil && !row.ColumnBool(intactColumn) {
			wrong = ErrDamaged
		}
		if wrong != nil {
			wrong = fmt.Errorf("row %d: %w", row.ColumnInt64(intactColumn+1), wrong)
			return false
		}
		n, b.last = n+1, c.ID
		if entry := uint64(row.ColumnInt64(intactColumn + 2)); entry > want.after && entry <= want.entry {
			b.claims = append(b.claims, Ended{Entry: entry, Claim: c})
			bytes += row.ColumnLen(restColumn) + len(c.ID) + len(c.Resource) + len(c.Owner)
		}
		return bytes < rangeBytes
	})
	if err == nil && wrong != nil {
		err = h.unreadable(wrong)
	}
	b.whole = n < rangeClaims && bytes < rangeBytes
	return b, err
}

// Receive fills the first gap, if there is one. ask sends a request to another server's Send, and calls part for each
// part of the answer. write calls a function with the right to Write. After an error the next call continues with the
// claims that are missing still.
func (h *History) Receive(ask func(request []byte, part func([]byte) error) error, write func(func() error) error) (gap bool, err error) {
	h.mu.Lock()
	gaps := h.gaps
	h.mu.Unlock()
	if len(gaps) == 0 {
		return false, nil
	}
	g, whole := gaps[0], false
	want := request{after: g.After, entry: g.Entry, id: g.id}
	c := codec.Writer(nil)
	want.code(&c)
	err = ask(c.Buffer(), func(data []byte) error {
		var b batch
		if err := b.read(data); err != nil {
			return err
		}
		if err := b.follows(g, whole); err != nil {
			return err
		}
		if err := write(func() error { return h.fill(g, b) }); err != nil {
			return err
		}
		g.id, whole = b.last, b.whole
		return nil
	})
	if err == nil && !whole {
		err = fmt.Errorf("it has ended early: %w", io.ErrUnexpectedEOF)
	}
	if err != nil {
		err = fmt.Errorf("receive ended claims: %w", err)
	}
	return true, err
}

// follows returns an error unless a range may be the next one of a gap.
func (b *batch) follows(g noted, whole bool) error {
	last := g.id
	for _, e := range b.claims {
		if e.Entry <= g.After || e.Entry > g.Entry || e.Claim.ID <= last || !e.Claim.Status.Final() {
			return fmt.Errorf("%w: claim %.200q of entry %d is not one of the gap after claim %.200q", codec.ErrFormat, e.Claim.ID, e.Entry, last)
		}
		last = e.Claim.ID
	}
	if whole || b.last < last || b.last == g.id && !b.whole {
		return fmt.Errorf("%w: a range up to claim %.200q cannot follow claim %.200q", codec.ErrFormat, b.last, last)
	}
	return nil
}

// fill adds a range of a gap. The other server may not have deleted all that is cut off.
func (h *History) fill(g noted, b batch) error {
	if err := h.Tidy(); err != nil {
		return err
	}
	added := 0
	err := h.transaction(func() (err error) {
		if added, err = h.insert(b.claims); err != nil {
			return err
		}
		return h.noteFilled(g, b.last, b.whole)
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", h.path, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count += int64(added)
	h.hidden = slices.Clone(h.cuts)
	h.gaps = slices.Clone(h.gaps)
	if g.id = b.last; b.whole {
		h.gaps = h.gaps[1:]
	} else {
		h.gaps[0] = g
	}
	return nil
}
