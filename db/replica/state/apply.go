package state

import (
	"errors"
	"fmt"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// ErrDiverged is returned for a record that does not fit the state: the two are not of one history.
var ErrDiverged = errors.New("the record does not fit the state")

// Apply applies a record. The claims before are the state's; parts that a claim afterwards lacks because it was read in
// part (claim.Claim.Brief) stay unchanged. It returns the changes of claims in order, or ErrDiverged, which makes the
// state useless.
func (s *State) Apply(r *record.Record) ([]claim.Transition, error) {
	made := make([]claim.Transition, 0, len(r.Claims))
	for _, t := range r.Claims {
		l, after := s.live(t.After.ID), t.After
		if after.Brief {
			after = completed(l, t)
		}
		change, err := s.change(l, t.Before != nil, after)
		if err != nil {
			return nil, err
		}
		made = append(made, change)
	}
	for _, c := range r.Sessions {
		if c.After == nil {
			s.endSession(c.Before.ID)
		} else {
			s.putSession(c.After)
		}
	}
	s.applyRest(r.Header, r.Servers, r.Rows, r.Floor, r.Quarantine)
	s.applyCuts(r.Cuts)
	if err := s.applyFormat(r.Format); err != nil {
		return nil, err
	}
	return made, s.applyBatches(r.Batches)
}

// ApplyDecoded is Apply for a record that was read.
func (s *State) ApplyDecoded(d *record.Decoded) ([]claim.Transition, error) {
	if err := s.applyFormat(d.Format); err != nil {
		return nil, err
	}
	made := make([]claim.Transition, 0, len(d.Claims))
	for i := range d.Claims {
		p := &d.Claims[i]
		l, after := s.live(p.Claim.ID), p.Claim
		if p.Fields&codec.Made == 0 {
			if l == nil || l.status != p.From {
				return nil, fmt.Errorf("%w: claim %.200q", ErrDiverged, p.Claim.ID)
			}
			l.unpack(&after)
			p.Apply(&after)
		}
		change, err := s.change(l, p.From != 0, &after)
		if err != nil {
			return nil, err
		}
		made = append(made, change)
	}
	for _, c := range d.Sessions {
		if err := s.applySession(c); err != nil {
			return nil, err
		}
	}
	s.applyRest(d.Header, d.Servers, d.Rows, d.Floor, d.Quarantine)
	s.applyCuts(d.Cuts)
	return made, s.applyBatches(d.Batches)
}

// ErrNewer is returned for a record of a cluster that uses a format which this locket does not know.
var ErrNewer = errors.New("the cluster uses a newer format")

func (s *State) applyFormat(format uint64) error {
	if format > s.Known {
		return fmt.Errorf("%w: %d, and this locket knows up to %d: install a newer one", ErrNewer, format, s.Known)
	}
	s.format = max(s.format, format)
	return nil
}

// Format is the format that the servers use.
func (s *State) Format() uint64 { return s.format }

func (s *State) applyCuts(cuts []record.Cut) {
	for _, c := range cuts {
		s.cuts.Add(c)
	}
}

// Cuts are the cuts of the history so far.
func (s *State) Cuts() record.Cuts { return s.cuts }

// applyBatches notes batches of other servers that were carried out. None is carried out twice, or after a later one.
func (s *State) applyBatches(batches []record.Batch) error {
	for _, b := range batches {
		if last, old := s.batches.Last(b.Origin); old || b.Seq == last.Seq {
			return fmt.Errorf("%w: batch %d of server %x comes after %d", ErrDiverged, b.Seq, b.Node, last.Seq)
		}
		s.batches.Add(b)
	}
	return nil
}

// LastBatch is record.Batches.Last.
func (s *State) LastBatch(of record.Origin) (last record.Batch, old bool) { return s.batches.Last(of) }

func (s *State) applySession(c record.Session) error {
	switch {
	case c.Ended:
		s.endSession(c.ID)
	case c.Put != nil:
		s.putSession(c.Put)
	default:
		known := s.sessions[c.ID]
		if known == nil {
			return fmt.Errorf("%w: session %.200q", ErrDiverged, c.ID)
		}
		after := *known.Session
		c.Renew(&after)
		s.putSession(&after)
	}
	return nil
}

func (s *State) applyRest(h record.Header, servers []record.Server, rows []record.Row, floor uint64, quarantine claim.Time) {
	s.Lease = max(s.Lease, h.Lease)
	s.floor = max(s.floor, floor)
	s.Quarantine = max(s.Quarantine, quarantine)
	for _, server := range servers {
		if server.Gone {
			delete(s.servers, server.Name)
		} else {
			s.servers[server.Name] = server.Seen
		}
	}
	for _, r := range rows {
		if r.Dropped {
			s.dropRow(r)
		} else {
			s.grow(s.rowSlab.At(s.row(r.Name)), r.Version)
		}
	}
}

// dropRow deletes a row that has no live claims. No row that comes after it gets a version that it has had.
func (s *State) dropRow(r record.Row) {
	s.floor = max(s.floor, r.Version)
	if known := s.rows.Find(r.Name); known != 0 && s.rowSlab.At(known).free() {
		*s.sums.of(r.Name) -= s.rowSlab.At(known).hash()
		s.rows.Delete(r.Name)
		s.names.Delete(known)
		s.rowSlab.Give(known)
	}
}

// completed completes a claim that was read in part from the live one, nil for none. A Value that has changed is its own.
func completed(l *live, t claim.Transition) *claim.Claim {
	whole := *t.After
	whole.Brief, whole.NewValue = false, false
	if l != nil {
		known := l.claim()
		whole.UserData = known.UserData
		if !t.SetsValue() {
			whole.Value = known.Value
		}
	}
	return &whole
}

// change puts a claim in the place of the live one with its id, nil for none. known says that there must be one.
func (s *State) change(l *live, known bool, after *claim.Claim) (claim.Transition, error) {
	if known != (l != nil) || !known && !after.Status.Live() {
		return claim.Transition{}, fmt.Errorf("%w: claim %.200q", ErrDiverged, after.ID)
	}
	if !known {
		l = s.take(after)
		l.row = s.row(after.Resource)
		s.grow(s.rowOf(l), after.Version)
		*s.sums.of(after.Resource) += l.hash()
		s.claims.Put(l.self)
		s.add(l)
		return claim.Transition{After: after}, nil
	}
	before := l.claim()
	s.grow(s.rowOf(l), after.Version)
	sum := s.sums.of(after.Resource)
	*sum -= l.hash()
	switch {
	case !after.Status.Live():
		s.remove(l)
		s.claims.Delete(after.ID)
		s.lives.Give(l.self)
	case before.Status == after.Status && before.Type == after.Type && before.TTL == after.TTL && before.Deadline == after.Deadline:
		l.packed, s.packing = pack(s.packing, after)
		s.created.Set(l.packed)
	default:
		s.remove(l)
		l.packed, s.packing = pack(s.packing, after)
		s.add(l)
	}
	if after.Status.Live() {
		*sum += l.hash()
	}
	return claim.Transition{Before: before, After: after}, nil
}
