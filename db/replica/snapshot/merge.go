package snapshot

import (
	"errors"
	"fmt"
	"strings"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Entries calls yield for the records of the log from one entry to another, both included.
type Entries func(from, to uint64, yield func(data []byte) error) error

// ErrDiverged is returned for records that do not follow one another.
var ErrDiverged = errors.New("the records do not follow one another")

// Merge makes the snapshot of a state after an entry, from the snapshot with the index old, 0 for none, and the records
// since. It sets the Sum and the Bytes of its result. The old one stays: Latest deletes it. goOn is asked from time to
// time: an error of it ends the work.
func Merge(d disk.Disk, old uint64, m Meta, entries Entries, goOn func() error) (Meta, error) {
	g, m, err := gather(d, old, m, entries)
	if err != nil {
		return m, err
	}
	if g.w, err = newWriter(d, m); err != nil {
		return m, err
	}
	g.put = func(r *record.Record) error {
		if err := goOn(); err != nil {
			return err
		}
		return g.w.block(r)
	}
	err = g.write(d, old, m.Index)
	m.Bytes = g.w.at
	return m, err
}

func newMerge() *merge {
	g := &merge{touched: map[string]uint64{}, ends: map[string]uint64{}}
	g.claims = newSection(g.changedClaim, g.claim)
	g.sessions = newSection(changedSession, g.session)
	g.servers = newSection(func(_ *record.Server, _ string, s *record.Server) (*record.Server, error) { return s, nil }, g.server)
	g.rows = newSection(changedRow, g.row)
	return g
}

// gather reads the records since a snapshot, and sets the Sum.
func gather(d disk.Disk, old uint64, m Meta, entries Entries) (*merge, Meta, error) {
	g := newMerge()
	m.Sum = 0
	if old != 0 {
		before, err := MetaOf(d, old)
		if err != nil {
			return nil, m, err
		}
		m.Sum = before.Sum
	}
	err := entries(old+1, m.Index, func(data []byte) error { return g.add(data, &m.Sum) })
	return g, m, err
}

// merge has the net changes of the records since the last snapshot, and merges that with them.
type merge struct {
	lease      claim.Time
	floor      uint64
	format     uint64
	quarantine claim.Time
	claims     section[claim.Claim, codec.Packed] // by the id, which is a part of the change
	sessions   section[claim.Session, *record.Session]
	servers    section[record.Server, *record.Server]
	rows       section[record.Row, *row]
	batches    record.Batches
	cuts       record.Cuts
	// touched are versions that rows have got by changes of claims of the last snapshot, unless the rows were dropped.
	touched map[string]uint64
	// ends are the last versions of claims of the last snapshot that have ended, and whose ids others have now.
	ends map[string]uint64

	read    record.Decoded // the record that is being added; its parts belong to the log
	packing []byte

	w *writer
	// put gets each block, and ended, unless it is nil, each claim that has ended since the last snapshot.
	put   func(*record.Record) error
	ended func(*claim.Claim) error
	// out is the block that is being filled, bytes about how large it is, and kind what is in it.
	out   record.Record
	bytes int
	kind  int
}

// row is the change of a resource's row.
type row struct {
	// dropped says that the last snapshot's row does not count, and there that there is a row.
	dropped, there bool
	version        uint64
}

// add adds a record.
func (g *merge) add(data []byte, sum *uint32) error {
	d := &g.read
	if err := record.ReadInto(d, data); err != nil {
		return err
	}
	next, ok := record.Checksum(*sum, data)
	if !ok {
		return ErrDiverged
	}
	*sum = next
	g.noteHead(d)
	for i := range d.Claims {
		g.addClaim(&d.Claims[i])
	}
	for _, s := range d.Sessions {
		g.addSession(&s)
	}
	for _, s := range d.Servers {
		g.servers.changes[s.Name] = &s
	}
	for _, r := range d.Rows {
		g.floor = max(g.floor, r.Version)
		g.rows.changes[strings.Clone(r.Name)] = &row{dropped: true}
	}
	return nil
}

func (g *merge) noteHead(d *record.Decoded) {
	g.lease, g.floor, g.quarantine = max(g.lease, d.Lease), max(g.floor, d.Floor), max(g.quarantine, d.Quarantine)
	g.format = max(g.format, d.Format)
	for _, b := range d.Batches {
		g.batches.Add(b)
	}
	for _, c := range d.Cuts {
		g.cuts.Add(c)
	}
}

func (g *merge) addClaim(p *codec.Patch) {
	all := *p // that is known of the claim
	if packed, is := g.claims.changes[p.Claim.ID]; is {
		known := packed.Patch()
		switch {
		case p.Fields&codec.Made == 0:
			all = known.Then(p)
		case known.Fields&codec.Made == 0: // the one before has ended, and its id is used again
			g.ends[strings.Clone(p.Claim.ID)] = known.Claim.Version
		}
	}
	var packed codec.Packed
	packed, g.packing = all.Pack(g.packing)
	g.claims.changes[packed.ID()] = packed
	if all.Fields&codec.Made == 0 {
		return // its resource is not known yet
	}
	r := g.rows.changes[all.Claim.Resource]
	if r == nil {
		r = &row{}
		g.rows.changes[strings.Clone(all.Claim.Resource)] = r
	}
	r.there, r.version = true, max(r.version, p.Claim.Version)
}

func (g *merge) addSession(s *record.Session) {
	known := g.sessions.changes[s.ID]
	switch {
	case s.Put != nil || s.Ended || known == nil:
		g.sessions.changes[s.ID] = s
	case known.Put != nil:
		put := *known.Put
		s.Renew(&put)
		g.sessions.changes[s.ID] = &record.Session{ID: s.ID, Put: &put}
	default:
		g.sessions.changes[s.ID] = s
	}
}

// write writes the new snapshot.
func (g *merge) write(d disk.Disk, old, index uint64) error {
	err := g.all(d, old)
	if err != nil {
		err = errors.Join(err, g.w.file.Close())
	} else {
		err = g.w.end(index)
	}
	if err != nil {
		return errors.Join(err, g.w.remove())
	}
	return nil
}

// all puts all blocks.
func (g *merge) all(d disk.Disk, old uint64) error {
	g.claims.begin()
	g.sessions.begin()
	g.servers.begin()
	g.rows.begin()
	if old != 0 {
		if _, err := Read(d, old, g.block); err != nil {
			return err
		}
	}
	if err := g.rest(kindRows + 1); err != nil {
		return err
	}
	for _, b := range g.batches.All() { // each in a block of its own
		if err := g.flush(); err != nil {
			return err
		}
		g.out.Batches = []record.Batch{b}
	}
	return g.flush()
}

// The kinds of records in a snapshot, in order.
const (
	kindClaims = iota
	kindSessions
	kindServers
	kindRows
)

// block merges a block of the old snapshot. A block has things of one kind.
func (g *merge) block(d *record.Decoded) error {
	g.noteHead(d)
	for i := range d.Claims {
		c := &d.Claims[i].Claim
		if err := g.claims.merge(c.ID, c); err != nil {
			return err
		}
	}
	for _, s := range d.Sessions {
		if err := errors.Join(g.rest(kindSessions), g.sessions.merge(s.ID, s.Put)); err != nil {
			return err
		}
	}
	for _, s := range d.Servers {
		if err := errors.Join(g.rest(kindServers), g.servers.merge(s.Name, &s)); err != nil {
			return err
		}
	}
	for _, r := range d.Rows {
		r.Version = max(r.Version, g.touched[r.Name])
		if err := errors.Join(g.rest(kindRows), g.rows.merge(r.Name, &r)); err != nil {
			return err
		}
	}
	return nil
}

// rest puts what is left of the kinds before one.
func (g *merge) rest(before int) error {
	for _, end := range []func() error{g.claims.end, g.sessions.end, g.servers.end, g.rows.end}[:before] {
		if err := end(); err != nil {
			return err
		}
	}
	return nil
}

func (g *merge) changedClaim(before *claim.Claim, id string, packed codec.Packed) (*claim.Claim, error) {
	p := packed.Patch()
	switch made := p.Fields&codec.Made != 0; {
	case before == nil && made:
		return &p.Claim, nil
	case before == nil:
		return nil, fmt.Errorf("%w: claim %.200q", ErrDiverged, id)
	case made:
		g.touched[before.Resource] = max(g.touched[before.Resource], g.ends[id])
	default:
		g.touched[before.Resource] = max(g.touched[before.Resource], p.Claim.Version)
	}
	p.Apply(before)
	return before, nil
}

func changedSession(before *claim.Session, id string, change *record.Session) (*claim.Session, error) {
	switch {
	case change.Ended:
		return nil, nil
	case change.Put != nil:
		return change.Put, nil
	case before == nil:
		return nil, fmt.Errorf("%w: session %.200q", ErrDiverged, id)
	}
	change.Renew(before)
	return before, nil
}

func changedRow(before *record.Row, name string, change *row) (*record.Row, error) {
	switch {
	case before != nil && !change.dropped:
		before.Version = max(before.Version, change.version)
		return before, nil
	case change.there:
		return &record.Row{Name: name, Version: change.version}, nil
	}
	return nil, nil
}

func (g *merge) claim(c *claim.Claim) error {
	switch {
	case c.Status.Live():
	case g.ended != nil:
		return g.ended(c)
	default:
		return nil
	}
	if err := g.begin(kindClaims); err != nil {
		return err
	}
	g.out.Claims = append(g.out.Claims, claim.Transition{After: c})
	return g.wrote(200 + len(c.UserData) + len(c.Value) + len(c.Resource) + len(c.Owner))
}

func (g *merge) session(s *claim.Session) error {
	if err := g.begin(kindSessions); err != nil {
		return err
	}
	g.out.Sessions = append(g.out.Sessions, claim.SessionChange{After: s})
	return g.wrote(200 + len(s.Owner))
}

func (g *merge) server(s *record.Server) error {
	if s.Gone {
		return nil
	}
	if err := g.begin(kindServers); err != nil {
		return err
	}
	g.out.Servers = append(g.out.Servers, *s)
	return g.wrote(50)
}

func (g *merge) row(r *record.Row) error {
	if err := g.begin(kindRows); err != nil {
		return err
	}
	g.out.Rows = append(g.out.Rows, *r)
	return g.wrote(20 + len(r.Name))
}

// begin writes the block if it has things of another kind.
func (g *merge) begin(kind int) error {
	if other := g.kind != kind && g.bytes > 0; other {
		if err := g.flush(); err != nil {
			return err
		}
	}
	g.kind = kind
	return nil
}

// blockBytes is how large a block becomes, its last thing apart.
const blockBytes = 64 << 10

// wrote counts what was put into the block, and writes it when it is large enough.
func (g *merge) wrote(bytes int) error {
	if g.bytes += bytes; g.bytes < blockBytes {
		return nil
	}
	return g.flush()
}

// flush writes the block. Lease time, floor and cuts stand in every one, so that the last one has the last.
func (g *merge) flush() error {
	g.out.Lease, g.out.Wall, g.out.Floor, g.out.Quarantine = g.lease, g.lease, g.floor, g.quarantine
	g.out.Cuts, g.out.Format = g.cuts, g.format
	err := g.put(&g.out)
	g.out, g.bytes = record.Record{}, 0
	return err
}
