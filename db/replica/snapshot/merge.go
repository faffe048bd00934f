package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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
	return &merge{
		claims: map[string]codec.Packed{}, sessions: map[string]*record.Session{}, servers: map[string]record.Server{}, rows: map[string]*row{},
		touched: map[string]uint64{}, ends: map[string]uint64{},
	}
}

// gather reads the records since a snapshot, and sets the Sum.
func gather(d disk.Disk, old uint64, m Meta, entries Entries) (*merge, Meta, error) {
	g := newMerge()
	before := Meta{Sum: 0}
	if old != 0 {
		var err error
		if before, err = Read(d, old, func(*record.Decoded) error { return errStop }); err != nil && !errors.Is(err, errStop) {
			return nil, m, err
		}
	}
	m.Sum = before.Sum
	err := entries(max(old, before.Index)+1, m.Index, func(data []byte) error { return g.add(data, &m.Sum) })
	return g, m, err
}

var errStop = errors.New("enough is known")

// merge has the net changes of the records since the last snapshot.
type merge struct {
	lease      claim.Time
	floor      uint64
	format     uint64
	quarantine claim.Time
	claims     map[string]codec.Packed // by the id, which is a part of it
	sessions   map[string]*record.Session
	servers    map[string]record.Server
	rows       map[string]*row
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
	// out is the block that is being filled, and bytes about how large it is.
	out   record.Record
	bytes int
	// What is left to write, in order.
	claimIDs, sessionIDs, serverNames, rowNames []string
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
		g.servers[s.Name] = s
	}
	for _, r := range d.Rows {
		g.floor = max(g.floor, r.Version)
		g.rows[strings.Clone(r.Name)] = &row{dropped: true}
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
	if packed, is := g.claims[p.Claim.ID]; is {
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
	g.claims[packed.ID()] = packed
	if all.Fields&codec.Made == 0 {
		return // its resource is not known yet
	}
	r := g.rows[all.Claim.Resource]
	if r == nil {
		r = &row{}
		g.rows[strings.Clone(all.Claim.Resource)] = r
	}
	r.there, r.version = true, max(r.version, p.Claim.Version)
}

func (g *merge) addSession(s *record.Session) {
	known := g.sessions[s.ID]
	switch {
	case s.Put != nil || s.Ended || known == nil:
		g.sessions[s.ID] = s
	case known.Put != nil:
		put := *known.Put
		s.Renew(&put)
		g.sessions[s.ID] = &record.Session{ID: s.ID, Put: &put}
	default:
		g.sessions[s.ID] = s
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
	g.claimIDs = slices.Sorted(maps.Keys(g.claims))
	g.sessionIDs = slices.Sorted(maps.Keys(g.sessions))
	g.serverNames = slices.Sorted(maps.Keys(g.servers))
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
		if err := g.oldClaim(&d.Claims[i].Claim); err != nil {
			return err
		}
	}
	for _, s := range d.Sessions {
		if err := errors.Join(g.rest(kindSessions), g.oldSession(s.Put)); err != nil {
			return err
		}
	}
	for _, s := range d.Servers {
		if err := errors.Join(g.rest(kindServers), g.oldServer(s)); err != nil {
			return err
		}
	}
	for _, r := range d.Rows {
		if err := errors.Join(g.rest(kindRows), g.oldRow(r)); err != nil {
			return err
		}
	}
	return nil
}

// rest writes what is left of the kinds before one.
func (g *merge) rest(before int) error {
	for kind := range before {
		var err error
		switch {
		case kind == kindClaims && len(g.claimIDs) > 0:
			err = g.newClaims("", true)
		case kind == kindSessions && len(g.sessionIDs) > 0:
			err = g.newSessions("", true)
		case kind == kindServers && len(g.serverNames) > 0:
			err = g.newServers("", true)
		case kind == kindRows:
			err = g.newRows("", true)
		}
		if err != nil {
			return err
		}
		if kind == kindClaims && g.rowNames == nil { // by now all rows are known that were touched
			g.rowNames = slices.AppendSeq(make([]string, 0, len(g.rows)), maps.Keys(g.rows))
			slices.Sort(g.rowNames)
		}
	}
	return nil
}

func (g *merge) oldClaim(c *claim.Claim) error {
	if err := g.newClaims(c.ID, false); err != nil {
		return err
	}
	if len(g.claimIDs) == 0 || g.claimIDs[0] != c.ID {
		return g.claim(c)
	}
	p := g.claims[c.ID].Patch()
	g.claimIDs = g.claimIDs[1:]
	last := g.ends[c.ID]
	if p.Fields&codec.Made == 0 {
		last = p.Claim.Version
	}
	g.touched[c.Resource] = max(g.touched[c.Resource], last)
	p.Apply(c)
	return g.claim(c)
}

// newClaims writes the claims that the old snapshot does not have, before an id or all.
func (g *merge) newClaims(before string, all bool) error {
	for len(g.claimIDs) > 0 && (all || g.claimIDs[0] < before) {
		p := g.claims[g.claimIDs[0]].Patch()
		if p.Fields&codec.Made == 0 {
			return fmt.Errorf("%w: claim %.200q", ErrDiverged, p.Claim.ID)
		}
		g.claimIDs = g.claimIDs[1:]
		if err := g.claim(&p.Claim); err != nil {
			return err
		}
	}
	return nil
}

func (g *merge) claim(c *claim.Claim) error {
	if !c.Status.Live() {
		if g.ended != nil {
			return g.ended(c)
		}
		return nil
	}
	g.out.Claims = append(g.out.Claims, claim.Transition{After: c})
	return g.wrote(200 + len(c.UserData) + len(c.Value) + len(c.Resource) + len(c.Owner))
}

func (g *merge) oldSession(s *claim.Session) error {
	if err := g.newSessions(s.ID, false); err != nil {
		return err
	}
	if len(g.sessionIDs) > 0 && g.sessionIDs[0] == s.ID {
		changed := g.sessions[s.ID]
		g.sessionIDs = g.sessionIDs[1:]
		switch {
		case changed.Ended:
			return nil
		case changed.Put != nil:
			s = changed.Put
		default:
			changed.Renew(s)
		}
	}
	return g.session(s)
}

func (g *merge) newSessions(before string, all bool) error {
	for len(g.sessionIDs) > 0 && (all || g.sessionIDs[0] < before) {
		s := g.sessions[g.sessionIDs[0]]
		g.sessionIDs = g.sessionIDs[1:]
		if s.Put == nil && !s.Ended {
			return fmt.Errorf("%w: session %.200q", ErrDiverged, s.ID)
		}
		if s.Put != nil {
			if err := g.session(s.Put); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *merge) session(s *claim.Session) error {
	if len(g.out.Claims) > 0 {
		if err := g.flush(); err != nil {
			return err
		}
	}
	g.out.Sessions = append(g.out.Sessions, claim.SessionChange{After: s})
	return g.wrote(200 + len(s.Owner))
}

func (g *merge) oldServer(s record.Server) error {
	if err := g.newServers(s.Name, false); err != nil {
		return err
	}
	if len(g.serverNames) > 0 && g.serverNames[0] == s.Name {
		s = g.servers[s.Name]
		g.serverNames = g.serverNames[1:]
	}
	return g.server(s)
}

func (g *merge) newServers(before string, all bool) error {
	for len(g.serverNames) > 0 && (all || g.serverNames[0] < before) {
		s := g.servers[g.serverNames[0]]
		g.serverNames = g.serverNames[1:]
		if err := g.server(s); err != nil {
			return err
		}
	}
	return nil
}

func (g *merge) server(s record.Server) error {
	if s.Gone {
		return nil
	}
	if len(g.out.Claims)+len(g.out.Sessions) > 0 {
		if err := g.flush(); err != nil {
			return err
		}
	}
	g.out.Servers = append(g.out.Servers, s)
	return g.wrote(50)
}

func (g *merge) oldRow(r record.Row) error {
	if err := g.newRows(r.Name, false); err != nil {
		return err
	}
	if len(g.rowNames) > 0 && g.rowNames[0] == r.Name {
		changed := g.rows[r.Name]
		g.rowNames = g.rowNames[1:]
		if changed.dropped {
			return g.newRow(r.Name, changed)
		}
		r.Version = max(r.Version, changed.version)
	}
	r.Version = max(r.Version, g.touched[r.Name])
	return g.row(r)
}

func (g *merge) newRows(before string, all bool) error {
	for len(g.rowNames) > 0 && (all || g.rowNames[0] < before) {
		name := g.rowNames[0]
		g.rowNames = g.rowNames[1:]
		if err := g.newRow(name, g.rows[name]); err != nil {
			return err
		}
	}
	return nil
}

func (g *merge) newRow(name string, r *row) error {
	if !r.there {
		return nil
	}
	return g.row(record.Row{Name: name, Version: r.version})
}

func (g *merge) row(r record.Row) error {
	if len(g.out.Claims)+len(g.out.Sessions)+len(g.out.Servers) > 0 {
		if err := g.flush(); err != nil {
			return err
		}
	}
	g.out.Rows = append(g.out.Rows, r)
	return g.wrote(20 + len(r.Name))
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
