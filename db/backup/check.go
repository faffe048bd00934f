package backup

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// maxProblems is how many problems a report names. The others are counted.
const maxProblems = 100

// settling is how much lease time after a quarantine claims may still wait for free resources.
const settling = claim.Time(10 * 60 * 1e6)

// Checker is a Sink that finds inconsistencies. It needs some hundred bytes of memory for each live claim, and for each
// resource.
type Checker struct {
	// Head is the head of the checked store.
	Head Head
	// Active, Waiting, Sessions, Resources and History count live claims by status, sessions, rows of resources, and
	// ended claims.
	Active, Waiting, Sessions, Resources, History int
	// Found is how many problems there are, and Problems are the first of them.
	Found    int
	Problems []string

	state   *stateHash
	last    string // the last id or name of an ordered part
	ids     map[string]struct{}
	tallies map[string]*tally
	bound   map[string]int // live claims by session
	// settled is how many claims were granted, and are active, or were abandoned, by the time of the transaction.
	settled map[claim.Time]int
}

// If a transaction has left claims for the next one to settle, it has settled at least manyGrants: claim.MaxGrants,
// less claims released since.
const manyGrants = claim.MaxGrants / 2

// tally compares a resource's claims with its row.
type tally struct {
	row     *Row
	has     claim.Row // what the claims say, of several exclusive holders the last one
	holders int       // that are exclusive
	lines   []uint64  // Enqueued of waiting claims
	head    claim.Units
	first   uint64     // the head's
	newest  uint64     // Enqueued of the holder that came last
	granted claim.Time // the time of the last grant
	version uint64     // the highest of a claim
	claim   string     // whose it is
}

// NewChecker returns a Checker without problems.
func NewChecker() *Checker {
	return &Checker{state: newStateHash(), ids: make(map[string]struct{}), tallies: make(map[string]*tally), bound: make(map[string]int), settled: make(map[claim.Time]int)}
}

// State is a hash of the live state: two stores that hold the same have the same.
func (k *Checker) State() string { return hex.EncodeToString(k.state.sum()) }

// Problem implements Inspector.
func (k *Checker) Problem(text string) {
	if k.Found++; k.Found <= maxProblems {
		k.Problems = append(k.Problems, text)
	}
}

func (k *Checker) problemf(format string, args ...any) { k.Problem(fmt.Sprintf(format, args...)) }

func (k *Checker) Begin(h Head) error {
	k.Head = h
	return nil
}

// order reports a name that does not come after the one before.
func (k *Checker) order(what, name string) {
	if name <= k.last {
		k.problemf("%s %.200q is there twice, or out of order", what, name)
	}
	k.last = name
}

func (k *Checker) tally(resource string) *tally {
	t := k.tallies[resource]
	if t == nil {
		t = &tally{}
		k.tallies[resource] = t
	}
	return t
}

func (t *tally) saw(c *claim.Claim) {
	if c.Version > t.version {
		t.version, t.claim = c.Version, c.ID
	}
}

func (k *Checker) Claim(c *claim.Claim) error {
	k.state.claim(c)
	k.order("claim", c.ID)
	k.ids[c.ID] = struct{}{}
	k.checkClaim(c)
	t := k.tally(c.Resource)
	t.saw(c)
	if c.Session != "" {
		k.bound[c.Session]++
	}
	if c.Status == claim.Waiting {
		k.Waiting++
		if len(t.lines) == 0 || c.Enqueued < t.first {
			t.head, t.first = c.Units, c.Enqueued
		}
		t.lines = append(t.lines, c.Enqueued)
		return nil
	}
	if t.has.Take(c); c.Units.All() {
		t.holders++
	}
	k.Active++
	k.settled[c.Activated]++
	t.newest, t.granted = max(t.newest, c.Enqueued), max(t.granted, c.Activated)
	return nil
}

// checkClaim looks at a live claim by itself.
func (k *Checker) checkClaim(c *claim.Claim) {
	say := func(what string, args ...any) {
		k.problemf("claim %.200q of %.200q %s", c.ID, c.Resource, fmt.Sprintf(what, args...))
	}
	switch {
	case !c.Status.Live():
		say("is %v, and listed among the live claims", c.Status)
	case c.Status == claim.Waiting && c.Token != 0:
		say("waits, and has the token %d", c.Token)
	case c.Status == claim.Active && c.Token == 0:
		say("is active, and has no token")
	case c.Status == claim.Active && (c.Session != "") != (c.Deadline == claim.Forever) && c.TTL < foreverTTL:
		say("has the deadline %d, which its session, or the lack of one, does not allow", c.Deadline)
	case c.Status == claim.Active && c.Session == "" && c.Deadline > k.Head.Lease.Add(c.TTL).Add(db.MaxSkew):
		say("falls due later than its TTL allows")
	}
	if c.Token > c.Version {
		say("has the token %d, which is above its version %d", c.Token, c.Version)
	}
	if c.Enqueued == 0 || c.Enqueued > c.Version {
		say("was enqueued at %d, and has version %d", c.Enqueued, c.Version)
	}
}

// foreverTTL is a TTL whose deadline may be held at the highest time.
const foreverTTL = 90 * 365 * 24 * 3600 * 1e9

func (k *Checker) Session(s *claim.Session) error {
	if k.Sessions == 0 {
		k.last = ""
	}
	k.Sessions++
	k.state.session(s)
	k.order("session", s.ID)
	delete(k.bound, s.ID)
	switch {
	case s.TTL <= 0:
		k.problemf("session %.200q has the TTL %v", s.ID, s.TTL)
	case (s.Server == "") == (s.Deadline == 0):
		k.problemf("session %.200q is attached to %.200q, and falls due at %d", s.ID, s.Server, s.Deadline)
	}
	return nil
}

func (k *Checker) Server(Server) error { return nil }

func (k *Checker) Row(r Row) error {
	if k.Resources == 0 {
		k.last = ""
	}
	k.Resources++
	k.state.row(r)
	k.order("resource", r.Resource)
	t := k.tally(r.Resource)
	t.row = &r
	return nil
}

func (k *Checker) Ended(c *claim.Claim) error {
	k.History++
	switch _, live := k.ids[c.ID]; {
	case live:
		k.problemf("claim %.200q has ended, and is live", c.ID)
	case !c.Status.Final():
		k.problemf("claim %.200q is %v, and listed among the ended claims", c.ID, c.Status)
	case c.Token > c.Version:
		k.problemf("claim %.200q has the token %d, which is above its version %d", c.ID, c.Token, c.Version)
	}
	if c.Status == claim.Aborted {
		k.settled[c.Finished]++
	}
	if c.Version > k.Head.Floor { // all versions to come are above the others, and these may be of very many resources that are gone
		k.tally(c.Resource).saw(c)
	}
	return nil
}

func (k *Checker) End(h Head) error {
	k.Head = h
	k.state.head(h)
	names := make([]string, 0, len(k.tallies))
	for name := range k.tallies {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		k.checkResource(name, k.tallies[name])
	}
	for id, claims := range k.bound {
		k.problemf("session %.200q is not there, and %d claims are bound to it", id, claims)
	}
	return nil
}

func (k *Checker) checkResource(name string, t *tally) {
	say := func(what string, args ...any) { k.problemf("resource %.200q %s", name, fmt.Sprintf(what, args...)) }
	live := t.holders + t.has.Shared + len(t.lines)
	switch {
	case t.row == nil && live > 0:
		say("has %d live claims, and no row", live)
	case t.row == nil && t.version > k.Head.Floor:
		say("has no row, and its claim %.200q has version %d, which is above the floor %d", t.claim, t.version, k.Head.Floor)
	case t.row != nil && t.version > t.row.Version:
		say("has version %d, and its claim %.200q has %d", t.row.Version, t.claim, t.version)
	}
	switch {
	case t.holders > 1:
		say("has %d exclusive holders", t.holders)
	case t.holders == 1 && t.has.Shared > 0:
		say("has an exclusive holder and %d shared ones", t.has.Shared)
	}
	k.checkLine(t, say)
	if t.row == nil || !t.row.Counted {
		return
	}
	if t.row.Holder != t.has.Holder {
		say("says that it is held by %.200q, and its holder is %.200q", t.row.Holder, t.has.Holder)
	}
	if t.row.Shared != t.has.Shared {
		say("says that it has %d shared holders, and has %d", t.row.Shared, t.has.Shared)
	}
	if t.row.Taken != t.has.Taken || t.row.Of != t.has.Of {
		say("says that %d of %d units are taken, and %d of %d are", t.row.Taken, t.row.Of, t.has.Taken, t.has.Of)
	}
	if t.row.Waiting != len(t.lines) {
		say("says that %d claims wait, and %d do", t.row.Waiting, len(t.lines))
	}
}

// checkLine looks at the claims that wait for a resource.
func (k *Checker) checkLine(t *tally, say func(string, ...any)) {
	if len(t.lines) == 0 {
		return
	}
	slices.Sort(t.lines)
	if len(slices.Compact(slices.Clone(t.lines))) != len(t.lines) {
		say("has claims with the same place in the line")
	}
	quarantined := k.Head.Quarantine != 0 && k.Head.Lease < k.Head.Quarantine+settling
	switch held := t.holders + t.has.Shared; {
	case held > 0 && t.newest > t.first:
		say("is held by a claim that came after one that waits")
	case quarantined:
	case held == 0:
		say("is free, and %d claims wait for it", len(t.lines))
	case t.has.Admits(t.head) && k.settled[t.granted] < manyGrants:
		say("is shared, and a shared claim waits before all others")
	}
}
