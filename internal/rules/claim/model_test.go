package claim_test

import (
	"math"
	"slices"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// model is the queue once more, as plainly as possible: all claims of the resource in order of arrival, every question
// answered by looking at each of them.
type model struct {
	version  uint64
	claims   []entry
	sessions sessions
}

// do carries out a command, and returns the answer that the queue must give.
func (m *model) do(cmd claim.Command, now claim.Instant) (entry, error) {
	switch cmd := cmd.(type) {
	case claim.Attach:
		return entry{}, m.attach(cmd, now)
	case claim.Detach:
		m.detach(cmd, now)
		return entry{}, nil
	case claim.EndSession:
		return entry{}, m.endSession(cmd, now)
	}
	if !m.has(cmd.Targets()) { // there is no queue to look at
		if _, ok := cmd.(claim.KeepWaiting); ok {
			return entry{}, nil
		}
		return entry{}, claim.ErrNotFound
	}
	m.passOn(now)
	e, err := m.apply(cmd, now)
	m.grant(now)
	if err != nil || e == nil {
		return entry{}, err
	}
	return *m.find(e.ID), nil
}

// passOn ends the holders that are due, if somebody waits for it.
func (m *model) passOn(now claim.Instant) {
	if m.count(claim.Waiting) > 0 {
		m.expire(now)
		m.grant(now)
	}
}

// has reports whether one of the targets is there.
func (m *model) has(targets []claim.Target) bool {
	return slices.ContainsFunc(targets, func(t claim.Target) bool { return t.Resource != "" || m.find(t.ID) != nil })
}

func (m *model) apply(cmd claim.Command, now claim.Instant) (*entry, error) {
	switch cmd := cmd.(type) {
	case claim.Create:
		return m.create(cmd, now)
	case claim.Acquire:
		return m.acquire(cmd, now)
	case claim.Release:
		return m.release(cmd, now)
	case claim.Renew:
		return m.renew(cmd, now)
	case claim.Activate:
		return m.activate(cmd, now)
	case claim.SetStatus:
		return m.setStatus(cmd, now)
	case claim.End:
		return m.end(cmd, now)
	case claim.KeepWaiting:
		for _, id := range cmd.IDs {
			m.keep(m.find(id), now, 0)
		}
		return nil, nil
	default:
		m.expire(now)
		for _, id := range cmd.(claim.Expire).Waiters {
			m.abandon(m.find(id), now)
		}
		return nil, nil
	}
}

func (m *model) create(cmd claim.Create, now claim.Instant) (*entry, error) {
	e := entry{
		ID: cmd.ID, Resource: cmd.Resource, Owner: cmd.Owner, Units: cmd.Units, Type: cmd.Type,
		TTL: cmd.TTL, WaitTTL: cmd.WaitTTL, UserData: string(cmd.UserData), Value: cmd.Value, Session: cmd.Session,
	}
	if cmd.Session != "" {
		if err := m.attached(cmd.Session, cmd.Server); err != nil {
			return nil, err
		}
	}
	first := m.find(cmd.ID)
	if first == nil {
		m.expire(now)
		if cmd.NoWait && (m.count(claim.Waiting) > 0 || m.conflicts(cmd.Units)) {
			return nil, m.collision()
		}
		if s := m.session(cmd.Session); s != nil {
			m.moveOn(s, now)
			s.now.Attached = max(s.now.Attached, now.Lease)
			s.claims = append(s.claims, cmd.ID)
		}
		return m.join(e, now), nil
	}
	neverHeld := cmd.NoWait && first.Token == 0
	if neverHeld || first.Session != e.Session || first.Owner != e.Owner || first.Units != e.Units || first.UserData != e.UserData {
		return nil, claim.ErrIDTaken
	}
	m.keep(first, now, 8)
	return first, nil
}

func (m *model) acquire(cmd claim.Acquire, now claim.Instant) (*entry, error) {
	h := m.holder()
	mine := h != nil && h.Owner == cmd.Owner && h.Session == ""
	switch {
	case cmd.Token == 0:
	case cmd.Token > m.version:
		return nil, &claim.AheadError{Resource: cmd.Resource, Known: cmd.Token, Version: m.version}
	case mine && h.Token != cmd.Token, m.count(claim.Active) == 0:
		return nil, claim.ErrNotFound
	case !mine:
		return nil, m.collision()
	}
	if mine {
		h.Type, h.Value = cmd.Type, cmd.Value
		return m.renew(claim.Renew{ID: h.ID, TTL: cmd.TTL}, now)
	}
	m.expire(now)
	if m.count(claim.Active)+m.count(claim.Waiting) > 0 {
		return nil, m.collision()
	}
	return m.join(entry{
		ID: cmd.ID, Resource: cmd.Resource, Owner: cmd.Owner, Type: cmd.Type,
		TTL: cmd.TTL, Value: cmd.Value,
	}, now), nil
}

func (m *model) release(cmd claim.Release, now claim.Instant) (*entry, error) {
	if m.count(claim.Active) == 0 {
		return nil, claim.ErrNotFound
	}
	h := m.holder()
	if h == nil || h.Owner != cmd.Owner || h.Session != "" {
		return nil, m.collision()
	}
	if cmd.Token != 0 && cmd.Token != h.Token {
		return nil, claim.ErrNotFound
	}
	return m.setStatus(claim.SetStatus{ID: h.ID, Status: claim.Released}, now)
}

func (m *model) renew(cmd claim.Renew, now claim.Instant) (*entry, error) {
	e := m.find(cmd.ID)
	switch {
	case e == nil:
		return nil, claim.ErrNotFound
	case e.Status != claim.Active:
		m.keep(e, now, 8)
		return nil, &claim.TransitionError{From: e.Status}
	case e.Session != "":
		return nil, claim.ErrSessionClaim
	}
	e.TTL, e.Deadline, e.Version = cmd.TTL, now.Lease.Add(cmd.TTL), m.next(now)
	return e, nil
}

func (m *model) activate(cmd claim.Activate, now claim.Instant) (*entry, error) {
	e := m.find(cmd.ID)
	switch {
	case e == nil:
		return nil, claim.ErrNotFound
	case e.Status == claim.Waiting:
		m.keep(e, now, 8)
		return nil, claim.ErrContention
	case e.Status != claim.Active:
		return nil, &claim.TransitionError{From: e.Status, To: claim.Active}
	case cmd.TTL == nil:
		return e, nil
	}
	return m.renew(claim.Renew{ID: cmd.ID, TTL: *cmd.TTL}, now)
}

// mayEnd has the changes of status that a client may ask for (the REST requirements).
var mayEnd = map[claim.Status][]claim.Status{
	claim.Waiting: {claim.Aborted, claim.Withdrawn, claim.Revoked},
	claim.Active:  {claim.Aborted, claim.Withdrawn, claim.Revoked, claim.Released},
}

func (m *model) setStatus(cmd claim.SetStatus, now claim.Instant) (*entry, error) {
	e := m.find(cmd.ID)
	switch {
	case e == nil:
		return nil, claim.ErrNotFound
	case isFinal(e.Status) && e.Status == cmd.Status:
		return e, nil
	case !slices.Contains(mayEnd[e.Status], cmd.Status):
		return nil, &claim.TransitionError{From: e.Status, To: cmd.Status}
	}
	e.Status, e.Reason = cmd.Status, cmd.Reason
	e.Finished, e.Version = now.Wall, m.next(now)
	return e, nil
}

func (m *model) end(cmd claim.End, now claim.Instant) (*entry, error) {
	end := claim.SetStatus{ID: cmd.ID, Reason: cmd.Reason}
	switch e := m.find(cmd.ID); {
	case e == nil:
		return nil, claim.ErrNotFound
	case e.Status == claim.Active:
		end.Status = claim.Released
	case e.Status == claim.Waiting:
		end.Status = claim.Withdrawn
	default:
		return e, nil
	}
	return m.setStatus(end, now)
}

func (m *model) join(e entry, now claim.Instant) *entry {
	e.Status, e.Created = claim.Waiting, now.Wall
	e.Version = m.next(now)
	e.Enqueued = e.Version
	if e.WaitTTL != 0 {
		e.Deadline = now.Lease.Add(e.WaitTTL)
	}
	m.claims = append(m.claims, e)
	return &m.claims[len(m.claims)-1]
}

// expire ends every holder that is due.
func (m *model) expire(now claim.Instant) {
	for i := range m.claims {
		if e := &m.claims[i]; e.Status == claim.Active && e.Deadline <= now.Lease {
			e.Status, e.Finished, e.Version = claim.Expired, now.Wall, m.next(now)
		}
	}
}

// keep extends a wait if at least one of parts equal parts of it has passed; with 0 always.
func (m *model) keep(e *entry, now claim.Instant, parts int) {
	if e == nil || e.Status != claim.Waiting || e.WaitTTL == 0 {
		return
	}
	if parts == 0 || time.Duration(parts)*(e.WaitTTL-e.Deadline.Sub(now.Lease)) >= e.WaitTTL {
		e.Deadline, e.Version = now.Lease.Add(e.WaitTTL), m.next(now)
	}
}

// abandon ends a claim whose wait is over, and reports whether it was.
func (m *model) abandon(e *entry, now claim.Instant) bool {
	if e == nil || e.Status != claim.Waiting || e.WaitTTL == 0 || e.Deadline > now.Lease {
		return false
	}
	e.Status, e.Reason, e.Finished, e.Version = claim.Aborted, claim.ReasonAbandoned, now.Wall, m.next(now)
	return true
}

// grant grants the queue's claims in order until one has to wait; none overtakes it.
func (m *model) grant(now claim.Instant) {
	for i := range m.claims {
		e := &m.claims[i]
		if e.Status != claim.Waiting {
			continue
		}
		if m.holder() != nil {
			return
		}
		if m.abandon(e, now) {
			continue
		}
		if m.conflicts(e.Units) {
			return
		}
		e.Status, e.Activated, e.Version = claim.Active, now.Wall, m.next(now)
		due := now.Lease.Add(e.TTL)
		if e.WaitTTL != 0 && e.Created != now.Wall {
			due = min(due, e.Deadline)
		}
		if e.Session != "" {
			due = claim.Forever
		}
		e.Token, e.Deadline = e.Version, due
	}
}

// conflicts reports whether the holders keep a claim out.
func (m *model) conflicts(units claim.Units) bool { return !fits(m.claims, units) }

// fits reports whether units are there for one more holder.
func fits(claims []entry, units claim.Units) bool {
	left := uint64(units.Of)
	if units.Of == 0 {
		left = math.MaxUint64
	}
	for _, e := range claims {
		switch {
		case e.Status != claim.Active:
		case units.Take == 0, e.Units.Take == 0, e.Units.Of != units.Of, uint64(e.Units.Take) > left:
			return false
		default:
			left -= uint64(e.Units.Take)
		}
	}
	return uint64(units.Take) <= left
}

func (m *model) next(now claim.Instant) uint64 {
	m.version++
	if now.Wall > 0 && uint64(now.Wall) > m.version {
		m.version = uint64(now.Wall)
	}
	return m.version
}

func (m *model) find(id string) *entry {
	for i := range m.claims {
		if m.claims[i].ID == id {
			return &m.claims[i]
		}
	}
	return nil
}

func (m *model) holder() *entry {
	for i := range m.claims {
		if e := &m.claims[i]; e.Status == claim.Active && e.Units.All() {
			return e
		}
	}
	return nil
}

func (m *model) collision() error {
	h := m.holder()
	if h == nil {
		return &claim.CollisionError{}
	}
	return &claim.CollisionError{Holder: h.claim()}
}

func (m *model) count(s claim.Status) int { return countIf(m.claims, s) }

// row is the resource's row, recounted.
func (m *model) row() claim.Row { return recount(m.version, m.claims) }

// prune forgets the claims that have ended.
func (m *model) prune() {
	m.claims = slices.DeleteFunc(m.claims, func(e entry) bool { return isFinal(e.Status) })
}

func recount(version uint64, claims []entry) claim.Row {
	row := claim.Row{Resource: "printer", Version: version, Waiting: countIf(claims, claim.Waiting)}
	for _, e := range claims {
		switch {
		case e.Status != claim.Active:
		case e.Units.Take > 0:
			row.Shared, row.Taken, row.Of = row.Shared+1, row.Taken+uint64(e.Units.Take), e.Units.Of
		default:
			row.Holder = e.ID
		}
	}
	return row
}

func countIf(claims []entry, s claim.Status) (n int) {
	for _, e := range claims {
		if e.Status == s {
			n++
		}
	}
	return n
}

func isFinal(s claim.Status) bool { return s != claim.Waiting && s != claim.Active }
