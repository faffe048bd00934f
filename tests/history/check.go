package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Check returns nil if the rules explain the final claims of the store and every answer. Otherwise its error shows
// the first event that they do not explain.
func Check(stored []claim.Claim, ops []Operation) error {
	changes, err := witness(stored)
	if err != nil {
		return err
	}
	ops = late(ops, stored)
	byResource := make(map[string][]*placed)
	for resource := range changes {
		byResource[resource] = nil
	}
	for i := range ops {
		if op := &ops[i]; op.Resource != "" {
			byResource[op.Resource] = append(byResource[op.Resource], &placed{Operation: op})
		}
	}
	trusted, over := trust(ops), make(map[string]int64)
	for resource, ops := range byResource {
		w, err := newWalk(resource, changes[resource], ops)
		if err == nil {
			err = w.walk()
		}
		if err == nil {
			err = w.checkEnds(trusted, over)
		}
		if err != nil {
			return fmt.Errorf("the rules do not explain the history of %q: %w", resource, err)
		}
	}
	return checkEnded(ops, over)
}

// placed is an operation with its place.
type placed struct {
	*Operation
	after *placed // of the same session, which carries its commands out in their order; or nil
	done  bool
	at    int // the last event before it, or the event that it explains; -1 for none
}

// walk is the current place in the events of one resource.
type walk struct {
	state
	events  []event
	ops     []*placed // in the order of their calls
	started int       // how many of them may have started
	open    []*placed // of these, the answered ones that have no place
	// unanswered are the others, by the claim, the owner or the session that they are about.
	unanswered map[string][]*placed
	ends       []*placed // the answered ones in the order of their returns
	first      int       // of these, the first that has no place
	// at is the last event that has been explained.
	at int
	// renewed has, for ids and owners, until when a renewal that was not answered may have given a
	// lease at least.
	renewed map[[2]string]claim.Time
	// leases and sessions are the ends that nobody asked for.
	leases   []end
	sessions []end
}

// end is one of a lease, or of a session.
type end struct {
	event int
	what  string
	// it must not have been before after.
	after claim.Time
}

func newWalk(resource string, events []event, ops []*placed) (*walk, error) {
	w := &walk{state: newState(resource), events: append(events, renewals(events, ops)...), ops: ops, at: -1, unanswered: make(map[string][]*placed), renewed: make(map[[2]string]claim.Time)}
	slices.SortStableFunc(ops, func(a, b *placed) int { return cmp.Compare(a.Call, b.Call) })
	last := make(map[string]*placed)
	for _, op := range ops {
		if op.Unknown {
			if owner, id, ttl := op.renews(); ttl != 0 {
				key := [2]string{owner, id}
				until, known := w.renewed[key]
				if at := micros(op.Call).Add(ttl); !known || at < until {
					w.renewed[key] = at
				}
			}
			continue
		}
		w.ends = append(w.ends, op)
		if op.Session != "" {
			op.after, last[op.Session] = last[op.Session], op
		}
	}
	slices.SortStableFunc(w.ends, func(a, b *placed) int { return cmp.Compare(a.Return, b.Return) })
	return w, sortEvents(w.events)
}

func (w *walk) walk() error {
	w.place()
	for w.at+1 < len(w.events) {
		if !w.explain() {
			return fmt.Errorf("nothing explains %v\n%s", w.events[w.at+1], w.around())
		}
		w.place()
	}
	if w.first < len(w.ends) {
		return fmt.Errorf("nowhere do the rules give the answers of some requests\n%s", w.around())
	}
	return nil
}

// begin opens the operations that no other operation must precede.
func (w *walk) begin() {
	for w.first < len(w.ends) && w.ends[w.first].done {
		w.first++
	}
	for ; w.started < len(w.ops); w.started++ {
		if w.first < len(w.ends) && w.ops[w.started].Call > w.ends[w.first].Return {
			return
		}
		if op := w.ops[w.started]; op.Unknown {
			w.unanswered[op.subject()] = append(w.unanswered[op.subject()], op)
		} else {
			w.open = append(w.open, op)
		}
	}
}

// place places the operations here that change nothing, if the rules give their answers.
func (w *walk) place() {
	for more := true; more; {
		w.begin()
		more = false
		for _, op := range w.open {
			if op.after != nil && !op.after.done {
				continue
			}
			if o := w.try(op.Operation, "?", 0, nil); o.answers(op.Operation) && harmless(op.Operation, o) {
				w.take(o, false)
				w.asked(op.Operation, o.now)
				op.done, op.at, more = true, w.at, true
			}
		}
		w.open = slices.DeleteFunc(w.open, func(op *placed) bool { return op.done })
	}
}

// harmless reports whether an operation changes no status and gives no version that its client saw.
func harmless(op *Operation, o outcome) bool {
	if o.queues == nil {
		return true
	}
	return !slices.ContainsFunc(o.queues.Transitions(), func(t claim.Transition) bool {
		return t.Before == nil || t.Before.Status != t.After.Status || op.Version != 0
	})
}

// explain finds the cause of the next event, and of later ones that come with it: an answered request if there is one,
// otherwise one without an answer, or nobody.
func (w *walk) explain() bool {
	e, over := w.events[w.at+1], w.over()
	var found *placed
	var made outcome
	earliest := int64(Forever) // the first call that may have made it
	for _, op := range slices.Concat(w.open, w.unanswered[e.claim.ID], w.unanswered[e.claim.Owner], w.unanswered[e.claim.Session]) {
		if op.done || op.after != nil && !op.after.done {
			continue
		}
		if o, ok := w.tryNext(op.Operation, e, over); ok {
			earliest = min(earliest, op.Call)
			if found == nil || op.rank() > found.rank() {
				found, made = op, o
			}
		}
	}
	if found == nil {
		return w.unasked(e, nil) || len(over) > 0 && w.unasked(e, over)
	}
	if earliest < found.Call { // it may have been repeated
		first := *found.Operation
		first.Call = earliest
		made, _ = w.tryNext(&first, e, over)
	}
	w.advance(made)
	w.now = max(w.now, micros(earliest))
	w.asked(found.Operation, made.now)
	found.done, found.at = true, w.at
	if !found.Unknown {
		w.open = slices.DeleteFunc(w.open, func(op *placed) bool { return op == found })
	}
	return true
}

// tryNext carries out a request that may have made the next event, and reports whether it has: by itself, since another request
// of the same transaction may have ended the waits that are over, or else together with these.
func (w *walk) tryNext(op *Operation, e event, over map[string]bool) (o outcome, made bool) {
	for _, gone := range []map[string]bool{nil, over} {
		o = w.try(op, e.claim.ID, claim.Time(e.version), gone)
		if made = o.queues != nil && o.answers(op) && w.makes(o); made || len(over) == 0 {
			break
		}
	}
	return o, made
}

// rank is higher for an operation that explains less else: an answer that another request would not have got
// again, then any answer, then a request that was not answered and names the claim.
func (op *placed) rank() int {
	_, release := op.command.(claim.Release)
	switch {
	case !op.Unknown && (release || op.special == unlock):
		return 3
	case !op.Unknown:
		return 2
	case op.ID != "":
		return 1
	default:
		return 0
	}
}

// over returns the claims that wait and that the next events end because nobody has asked about them: that is found out
// when their turn comes.
func (w *walk) over() map[string]bool {
	var over map[string]bool
	for i := w.at + 1; i < len(w.events); i++ {
		e := w.events[i]
		if i > w.at+1 && e.version != w.events[i-1].version+1 {
			break
		}
		if e.before == claim.Waiting && e.after == claim.Aborted && e.claim.WaitTTL != 0 && i > w.at+1 {
			if over == nil {
				over = make(map[string]bool)
			}
			over[e.claim.ID] = true
		}
	}
	return over
}

// makes reports whether a command makes the next event, and nothing that is none.
func (w *walk) makes(o outcome) bool {
	made := o.queues.Transitions()
	if len(made) == 0 || w.at+len(made) >= len(w.events) {
		return false
	}
	for i, t := range made {
		e, before := w.events[w.at+1+i], claim.Status(0)
		if t.Before != nil {
			before = t.Before.Status
		}
		if t.After.ID != e.claim.ID || before != e.before || t.After.Status != e.after || t.After.Version != e.version || !same(t.After, e.claim) {
			return false
		}
	}
	return true
}

// same reports whether a claim of the rules equals the stored claim.
func same(c, stored *claim.Claim) bool {
	return c.Owner == stored.Owner && c.Session == stored.Session && c.Units == stored.Units
}

// advance goes behind the events that a command has made.
func (w *walk) advance(o outcome) {
	made := o.queues.Transitions()
	for i, t := range made {
		if t.After.Reason == claim.ReasonAbandoned || t.After.Status == claim.Expired && t.After.Session == "" {
			w.leaseEnds(t.After, w.at+1+i)
		}
	}
	w.take(o, true)
	w.at += len(made)
}

// leaseEnds notes the end of a lease, or of a wait, that nobody asked for.
func (w *walk) leaseEnds(c *claim.Claim, event int) {
	known, err := w.find(c.ID)
	if err != nil {
		return
	}
	after := known.Deadline
	for _, key := range [][2]string{{"", c.ID}, {c.Owner, ""}} {
		if until, renewed := w.renewed[key]; renewed {
			after = min(after, until)
		}
	}
	w.leases = append(w.leases, end{event, fmt.Sprintf("the lease of claim %s", c.ID), after})
	w.now = max(w.now, after)
}

// unasked explains an event that no request makes. over are the waits that end with it.
func (w *walk) unasked(e event, over map[string]bool) bool {
	c, err := w.find(e.claim.ID)
	if err != nil {
		return false
	}
	deadlock := claim.Deadlock(e.after, e.claim.Reason) != nil // a walk knows one resource only, and not the rest of the cycle
	var o outcome
	switch {
	case e.before == e.after && c.Status == claim.Active: // the store renewed it: see claim.Queues.RenewHolders
		// The lease restarts, and does not become shorter.
		o = w.do(claim.Renew{ID: c.ID, TTL: c.TTL}, c.ID, claim.Time(e.version), nil, outcome{now: max(w.now, c.Deadline.Add(-c.TTL))})
	case e.before == e.after: // somebody asked about it, or renewed it by its owner
		if c.WaitTTL == 0 {
			return false
		}
		o = w.do(claim.KeepWaiting{IDs: []string{c.ID}}, c.ID, claim.Time(e.version), nil, outcome{now: w.now})
	case deadlock:
		o = w.do(claim.EndDeadlock{Waits: []claim.Wait{{Waiter: c.ID, Blocker: c.ID}}}, c.ID, claim.Time(e.version), nil, outcome{now: w.now})
	case c.Session != "":
		o = w.try(&Operation{Request: Request{Session: c.Session, special: lapse}}, c.ID, claim.Time(e.version), over)
	default:
		gone := map[string]bool{c.ID: true}
		for id := range over {
			gone[id] = true
		}
		o = w.do(claim.Expire{Resources: []string{c.Resource}, Waiters: []string{c.ID}}, c.ID, claim.Time(e.version), gone, outcome{now: max(w.now, due)})
	}
	if !w.makes(o) {
		return false
	}
	if e.before != e.after && c.Session != "" && !deadlock {
		w.sessions = append(w.sessions, end{w.at + 1, c.Session, 0})
	}
	w.advance(o)
	return true
}

// checkEnds checks when leases and sessions ended, and notes when sessions had.
func (w *walk) checkEnds(trusted, over map[string]int64) error {
	latest := make([]int64, len(w.events)) // when each event had happened
	for i := range latest {
		latest[i] = Forever
	}
	for _, op := range w.ends {
		if op.at >= 0 {
			latest[op.at] = min(latest[op.at], op.Return)
		}
	}
	for i := len(latest) - 2; i >= 0; i-- {
		latest[i] = min(latest[i], latest[i+1])
	}
	for _, l := range w.leases {
		if at := latest[l.event]; at != Forever && l.after > micros(at+999) {
			return fmt.Errorf("%s ended before %d us, and not before %d us may it have: %v", l.what, at/1000, l.after, w.events[l.event])
		}
	}
	for _, s := range w.sessions {
		at := latest[s.event]
		if at < trusted[s.what] {
			return fmt.Errorf("session %q ended before %d us, while its client could trust it until %d us: %v", s.what, at/1000, trusted[s.what]/1000, w.events[s.event])
		}
		if known, ok := over[s.what]; at != Forever && (!ok || at < known) {
			over[s.what] = at
		}
	}
	return nil
}

// shown is how many events and operations an error shows at most.
const shown = 20

// around shows the walk's place, for errors.
func (w *walk) around() string {
	var text strings.Builder
	fmt.Fprintf(&text, "explained: %d of %d changes, the last of them\n", w.at+1, len(w.events))
	for _, e := range w.events[max(0, w.at+1-shown) : w.at+1] {
		fmt.Fprintln(&text, e)
	}
	fmt.Fprintln(&text, "next")
	for _, e := range w.events[w.at+1 : min(len(w.events), w.at+1+shown/4)] {
		fmt.Fprintln(&text, e)
	}
	fmt.Fprintln(&text, "the requests that may come next")
	for _, op := range w.open[:min(len(w.open), shown)] {
		fmt.Fprintln(&text, op)
	}
	if w.started < len(w.ops) {
		fmt.Fprintf(&text, "and then %v\n", w.ops[w.started])
	}
	return text.String()
}
