package claim

// Queue is the queue of one resource, as far as one transaction has read it.
//
// Row is the resource's own row. Beside it the queue knows some of its claims: the
// exclusive holder if there is one, shared holders that are due, every claim that a command of the transaction names,
// and as many of the first waiters as the rules have asked for. So the cost of a command does not depend on the length
// of the queue.
type Queue struct {
	Row

	stored  Row       // unchanged since it was read
	read    uint64    // Version before the first command
	members []*member // all that are known, in no order
	byID    map[string]*member
	waiters []*member // the first waiters; some may have left since
	tail    []*member // joined in this transaction, behind waiters that were not read
	last    uint64    // Enqueued of the last waiter that was read
	whole   bool      // every waiter is in waiters
	left    bool      // more claims could have been granted
	unasked Time      // nobody could ask about the waiters with a deadline up to this: see KeepWaits
	more    MoreWaiters
	set     *Queues // of the transaction
	err     error
}

// Row is the stored row of a resource.
type Row struct {
	Resource string
	// Version rises with every change; 0 when the resource has no row.
	Version uint64
	// Holder is the id of the exclusive holder, which takes all units, "" when there is none.
	Holder string
	// Shared is the number of the other holders, Taken the number of units that they take, and Of the number of
	// units, 0 for unlimited.
	Shared int
	Taken  uint64
	Of     uint32
	// Waiting is the number of claims that wait.
	Waiting int
}

// Free reports whether nobody holds the resource.
func (r *Row) Free() bool { return r.Holder == "" && r.Shared == 0 }

// Admits reports whether a claim may be granted beside the present holders.
func (r *Row) Admits(u Units) bool { return r.Free() || r.Holder == "" && u.beside(r.Taken, r.Of) }

// Take notes that a claim holds the resource.
func (r *Row) Take(c *Claim) {
	if c.Units.All() {
		r.Holder = c.ID
		return
	}
	r.Shared++
	r.Taken += uint64(c.Units.Take)
	r.Of = c.Units.Of
}

// Give notes that a claim holds the resource no longer.
func (r *Row) Give(c *Claim) {
	if c.Units.All() {
		r.Holder = ""
		return
	}
	r.Shared--
	r.Taken -= uint64(c.Units.Take)
	if r.Shared == 0 {
		r.Of = 0
	}
}

// member is one claim of a queue, after its last transition. A change replaces the claim by a copy and leaves the old
// one unchanged.
type member struct{ *Claim }

// MoreWaiters reads the waiting claims of a resource that were enqueued after a version,
// in order: some of them, and none only when there are no more.
type MoreWaiters func(resource string, after uint64) ([]*Claim, error)

// NewQueue returns the queue of a resource with the row that was read. If there is no row, only its Resource is set.
// The resource's version will be above floor even if the resource is new. more may be nil if no claim waits.
func NewQueue(row Row, floor uint64, more MoreWaiters) *Queue {
	q := &Queue{Row: row, stored: row, whole: row.Waiting == 0, more: more}
	q.Version = max(q.Version, floor)
	q.read = q.Version
	return q
}

// Find returns the known claim with an id, or nil.
func (q *Queue) Find(id string) *Claim {
	if m := q.find(id); m != nil {
		return m.Claim
	}
	return nil
}

// fewMembers is the largest number of members that are searched without a map.
const fewMembers = 8

func (q *Queue) find(id string) *member {
	if q.byID != nil {
		return q.byID[id]
	}
	for _, m := range q.members {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// add makes a claim known, and returns its member.
func (q *Queue) add(c *Claim) *member {
	if known := q.find(c.ID); known != nil {
		return known
	}
	m := &member{c}
	q.members = append(q.members, m)
	q.set.byID[c.ID] = q
	switch {
	case q.byID != nil:
		q.byID[c.ID] = m
	case len(q.members) > fewMembers:
		q.byID = make(map[string]*member, 4*fewMembers)
		for _, m := range q.members {
			q.byID[m.ID] = m
		}
	}
	return m
}

// Stored returns the row from before the transaction; its Version is 0 if there was none.
func (q *Queue) Stored() Row { return q.stored }

// Changed reports whether the commands changed anything: the resource's row is then to be
// stored.
func (q *Queue) Changed() bool { return q.Version != q.read }

// ExclusiveHolder returns the claim that holds the resource alone, or nil.
func (q *Queue) ExclusiveHolder() *Claim {
	if q.Holder == "" {
		return nil
	}
	return q.Find(q.Holder)
}

// status returns the status that a new claim will have.
func (q *Queue) status(u Units) Status {
	if q.Waiting > 0 || !q.Admits(u) {
		return Waiting
	}
	return Active
}

// next gives the resource its next version.
func (q *Queue) next(now Instant) uint64 {
	q.Version = max(q.Version+1, uint64(max(0, now.Wall)))
	return q.Version
}

// change replaces a member's claim by a copy with the next version, and notes the transition. The caller sets the other
// fields of the copy.
func (q *Queue) change(m *member, now Instant) *Claim {
	after := *m.Claim
	after.Version = q.next(now)
	q.set.transitions = append(q.set.transitions, Transition{Before: m.Claim, After: &after})
	m.Claim = &after
	return &after
}

// join puts a new claim at the end of the queue.
func (q *Queue) join(c *Claim, now Instant) *member {
	c.Status = Waiting
	c.Identity = q.set.caller.Name
	c.Created = now.Wall
	c.Version = q.next(now)
	c.Enqueued = c.Version
	if c.WaitTTL > 0 {
		c.Deadline = now.Lease.Add(c.WaitTTL)
	}
	q.set.transitions = append(q.set.transitions, Transition{After: c})
	m := q.add(c)
	q.Waiting++
	if q.whole {
		q.waiters = append(q.waiters, m)
	} else {
		q.tail = append(q.tail, m)
	}
	return m
}

// isLast reports whether a waiting claim is known to be the last in the queue.
func (q *Queue) isLast(id string) bool {
	end := q.tail
	if q.whole {
		end = q.waiters
	}
	return q.Waiting == 1 || len(end) > 0 && end[len(end)-1].ID == id
}

// grant makes a waiting claim a holder. The client of a claim may be gone, so a claim with a WaitTTL keeps the
// deadline that it had while it waited, if that is earlier. Many abandoned claims together therefore delay the others
// by one WaitTTL, not by a TTL each.
func (q *Queue) grant(m *member, now Instant) {
	c := q.change(m, now)
	c.Status = Active
	c.Token = c.Version
	c.Activated = now.Wall
	due := now.Lease.Add(c.TTL)
	switch {
	case c.Session != "":
		due = Forever
	case c.Deadline != 0 && c.Created != now.Wall:
		due = min(due, c.Deadline)
	}
	c.Deadline = due
	q.Waiting--
	q.Take(c)
}

// finish moves a live claim to a final status.
func (q *Queue) finish(m *member, to Status, reason string, now Instant) {
	if m.Status == Waiting {
		q.Waiting--
	} else {
		q.Give(m.Claim)
	}
	c := q.change(m, now)
	c.Status = to
	c.Finished = now.Wall
	c.Reason = reason
	if to != Expired {
		c.EndedBy = q.set.caller.Name
	}
}

// ReasonAbandoned is why a claim was aborted that nobody asked about for its WaitTTL.
const ReasonAbandoned = "nobody asked about the claim for its wait TTL"

// abandon aborts a claim that is Abandoned. It records no caller.
func (q *Queue) abandon(m *member, now Instant) {
	q.finish(m, Aborted, ReasonAbandoned, now)
	m.EndedBy = ""
}

// keepWaiting extends the wait of a claim that is ToKeep.
func (q *Queue) keepWaiting(m *member, now Instant) {
	if m.ToKeep(now) {
		q.change(m, now).Deadline = now.Lease.Add(m.WaitTTL)
	}
}

// keepUnasked extends the wait of a claim that nobody could ask about.
func (q *Queue) keepUnasked(m *member, now Instant) {
	if m.Status == Waiting && m.Deadline != 0 && m.Deadline <= q.unasked {
		q.change(m, now).Deadline = now.Lease.Add(m.WaitTTL)
	}
}

// passOn ends the holders with expired leases, if claims wait.
func (q *Queue) passOn(now Instant) {
	if q.Waiting > 0 {
		q.expire(now)
		q.settle(now)
	}
}

// expire ends the holders with expired leases.
func (q *Queue) expire(now Instant) {
	if q.Free() {
		return
	}
	for _, m := range q.members {
		if m.Due(now) {
			q.finish(m, Expired, "", now)
		}
	}
}

// MaxGrants is how many claims one transaction grants or aborts as abandoned. Beyond that it grants one claim for each
// resource that nobody holds. The next transaction with the resource grants more.
const MaxGrants = 1000

// settle grants the first waiting claims for as long as the rules allow.
func (q *Queue) settle(now Instant) {
	for q.set.granted < MaxGrants || q.Free() {
		if !q.grantNext(now) {
			q.left = false
			return
		}
		q.set.granted++
	}
	q.left = q.Waiting > 0
}

// grantNext grants the first waiting claim if the rules allow, or aborts it if it is abandoned. After
// MaxGrants it grants an abandoned claim too: its lease runs out at once, and the next transaction ends it.
func (q *Queue) grantNext(now Instant) bool {
	if q.Waiting == 0 || q.Holder != "" {
		return false
	}
	head := q.head()
	if head == nil {
		return false
	}
	q.keepUnasked(head, now)
	switch {
	case head.Abandoned(now) && q.set.granted < MaxGrants:
		q.abandon(head, now)
	case q.Admits(head.Units) && !now.Quarantined():
		q.grant(head, now)
	default:
		return false
	}
	return true
}

// Unsettled reports whether the transaction stopped at MaxGrants while claims wait, so that more may be granted.
func (q *Queue) Unsettled() bool { return q.left }

// head returns the first waiting claim. It reads more of them if necessary. It returns nil if no claim waits or reading
// failed.
func (q *Queue) head() *member {
	for q.err == nil {
		for len(q.waiters) > 0 && q.waiters[0].Status != Waiting {
			q.waiters = q.waiters[1:]
		}
		if len(q.waiters) > 0 {
			return q.waiters[0]
		}
		if q.whole {
			return nil
		}
		q.readMore()
	}
	return nil
}

func (q *Queue) readMore() {
	next, err := q.more(q.Resource, q.last)
	if err != nil {
		q.err = err
		return
	}
	for _, c := range next {
		q.last = c.Enqueued
		q.waiters = append(q.waiters, q.add(c))
	}
	if len(next) == 0 {
		q.whole = true
		q.waiters = append(q.waiters, q.tail...)
		q.tail = nil
	}
}
