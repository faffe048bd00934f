package snapshot

import (
	"errors"
	"fmt"

	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// View is the live state after an entry, as it would be in a snapshot.
type View struct {
	merge *merge
	disk  disk.Disk
	old   uint64
}

// Since returns the state after the entry with an index, from the snapshot with the index old, 0 for none, and the records since.
func Since(d disk.Disk, old, index uint64, entries Entries) (*View, error) {
	g, _, err := gather(d, old, Meta{Index: index}, entries)
	if err == nil && old != 0 {
		if _, err = Read(d, old, func(first *record.Decoded) error { g.noteHead(first); return errStop }); errors.Is(err, errStop) {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	return &View{g, d, old}, nil
}

var errStop = errors.New("enough is known")

// Head returns lease time, floor and quarantine. Write may find later ones in the old snapshot.
func (v *View) Head() (lease claim.Time, floor uint64, quarantine claim.Time) {
	return v.merge.lease, v.merge.floor, v.merge.quarantine
}

// Cuts are the cuts of the history so far.
func (v *View) Cuts() record.Cuts { return v.merge.cuts }

// Write calls put for each block that a snapshot would have, and ended for each claim that has ended since the old one.
func (v *View) Write(put func(*record.Record) error, ended func(*claim.Claim) error) error {
	v.merge.put, v.merge.ended = put, ended
	return v.merge.all(v.disk, v.old)
}

// Writer writes a snapshot from claims by id, then sessions, servers and rows, each by name.
type Writer struct {
	merge *merge
	index uint64
}

// NewWriter begins a snapshot with one lease time throughout.
func NewWriter(d disk.Disk, m Meta, lease claim.Time) (*Writer, error) {
	g := newMerge()
	g.lease = lease
	var err error
	if g.w, err = newWriter(d, m); err != nil {
		return nil, err
	}
	g.put = g.w.block
	return &Writer{g, m.Index}, nil
}

// Claim adds a live claim.
func (w *Writer) Claim(c *claim.Claim) error {
	if !c.Status.Live() {
		return fmt.Errorf("%w: claim %.200q has ended", ErrDiverged, c.ID)
	}
	return w.merge.claim(c)
}

// Session adds a session.
func (w *Writer) Session(s *claim.Session) error { return w.merge.session(s) }

// Server adds a server.
func (w *Writer) Server(s record.Server) error { return w.merge.server(&s) }

// Row adds the row of a resource.
func (w *Writer) Row(r record.Row) error { return w.merge.row(&r) }

// End completes the snapshot file, durably, with its floor and quarantine.
func (w *Writer) End(floor uint64, quarantine claim.Time) error {
	w.merge.floor, w.merge.quarantine = floor, quarantine
	if err := w.merge.flush(); err != nil {
		return err
	}
	return w.merge.w.end(w.index)
}

// Close gives up a snapshot that has not ended.
func (w *Writer) Close() error { return w.merge.w.file.Close() }
