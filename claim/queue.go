package claim

// Queue is the queue of one resource, as far as one transaction has read it.
//
// Row is the resource's own row. Beside it the queue knows some of its claims: the
// exclusive holder if there is one, shared holders that are due, every claim that a
// command of the transaction names, and the head of the waiting line as far as the
// rules have asked for it. What a command costs does therefore not depend on the
// length of the queue.
type Queue struct {
	Row

	stored  Row      // as it was read
	read    uint64   // Version before the first command
	claims  []*Claim // all that are known, in no order
	waiters []*Claim // the head of the line; some may have left it since
	tail    []*Claim // joined in this transaction, behind a line not wholly read
	last    uint64   // position of the last waiter that was read
	whole   bool     // every waiter is in waiters
	more    MoreWaiters
	err     error
}

// Row is what is stored of a resource besides its claims.
type Row struct {
	Resource string
	// Version rises with every change; 0 when the resource has no row.
	Version uint64
	// Holder is the id of the exclusive holder, "" when there is none.
	Holder string
	// Shared is the number of shared holders.
	Shared int
	// Waiting is the number of claims that wait.
	Waiting int
}

// MoreWaiters reads the waiting claims of a resource that come after a position, in
// order: some of them, and none only when there are no more.
type MoreWaiters func(resource string, after uint64) ([]*Claim, error)

// NewQueue returns the queue of a resource with the row that was read, or with a row
// that holds nothing but the resource's name. floor is a version below which the
// resource must not come even if it is new. more may be nil when nobody waits.
func NewQueue(row Row, floor uint64, more MoreWaiters) *Queue {
	q := &Queue{Row: row, stored: row, whole: row.Waiting == 0, more: more}
	q.Version = max(q.Version, floor)
	q.read = q.Version
	return q
}

// Add makes a claim that was read known to the queue. A claim that is known already
// is left as it is.
func (q *Queue) Add(c *Claim) {
	if q.Find(c.ID) == nil {
		q.claims = append(q.claims, c)
	}
}

// Find returns the known claim with an id, or nil.
func (q *Queue) Find(id string) *Claim {
	for _, c := range q.claims {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// Stored returns the row as it was read; its Version is 0 when there was none.
func (q *Queue) Stored() Row { return q.stored }

// Changed reports whether the commands changed anything: the resource's row is then
// to be written, and the claims of Changes.
func (q *Queue) Changed() bool { return q.Version != q.read }

// Changes returns the claims that the commands made and those that they changed.
func (q *Queue) Changes() (made, changed []*Claim) {
	for _, c := range q.claims {
		switch c.state {
		case created:
			made = append(made, c)
		case updated:
			changed = append(changed, c)
		}
	}
	return made, changed
}

// Err returns the first error of reading more waiters. The transaction must then be
// given up: the queue is not to be written.
func (q *Queue) Err() error { return q.err }

// ExclusiveHolder returns the claim that holds the resource alone, or nil.
func (q *Queue) ExclusiveHolder() *Claim {
	if q.Holder == "" {
		return nil
	}
	return q.Find(q.Holder)
}

// Free reports whether nobody holds the resource.
func (q *Queue) Free() bool { return q.Holder == "" && q.Shared == 0 }

// admits reports whether a claim of the mode may be granted beside today's holders.
func (q *Queue) admits(m Mode) bool {
	return q.Free() || (m == Shared && q.Holder == "")
}

// bump moves the version on and stamps the claim with it.
func (q *Queue) bump(c *Claim, now Instant) {
	q.Version = max(q.Version+1, uint64(max(0, now.Wall)))
	c.Version = q.Version
	c.changes++
	if c.state == untouched {
		c.state = updated
		c.was = c.Status
	}
}

// join puts a new claim at the end of the line.
func (q *Queue) join(c *Claim, now Instant) {
	c.state = created
	c.Status = Waiting
	c.Created = now.Wall
	q.bump(c, now)
	c.Position = q.Version
	q.claims = append(q.claims, c)
	q.Waiting++
	if q.whole {
		q.waiters = append(q.waiters, c)
	} else {
		q.tail = append(q.tail, c)
	}
}

// grant makes a waiting claim a holder.
func (q *Queue) grant(c *Claim, now Instant) {
	q.bump(c, now)
	c.Status = Active
	c.Token = q.Version
	c.Activated = now.Wall
	c.Deadline = now.Lease.Add(c.TTL)
	q.Waiting--
	if c.Mode == Shared {
		q.Shared++
	} else {
		q.Holder = c.ID
	}
}

// finish moves a live claim to a final status.
func (q *Queue) finish(c *Claim, to Status, reason string, now Instant) {
	switch {
	case c.Status == Waiting:
		q.Waiting--
	case c.Mode == Shared:
		q.Shared--
	default:
		q.Holder = ""
	}
	q.bump(c, now)
	c.Status = to
	c.Finished = now.Wall
	c.Reason = reason
}

// expire ends the holders that are due.
func (q *Queue) expire(now Instant) {
	if q.Free() {
		return
	}
	for _, c := range q.claims {
		if c.Due(now) {
			q.finish(c, Expired, "", now)
		}
	}
}

// settle grants the claims at the head of the line for as long as the rules allow.
func (q *Queue) settle(now Instant) {
	for q.Waiting > 0 && q.Holder == "" {
		head := q.head()
		if head == nil || !q.admits(head.Mode) {
			return
		}
		q.grant(head, now)
	}
}

// head returns the first claim in the line, reading more of it if need be. It is nil
// when reading failed.
func (q *Queue) head() *Claim {
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
		q.last = c.Position
		if known := q.Find(c.ID); known != nil {
			c = known
		} else {
			q.claims = append(q.claims, c)
		}
		q.waiters = append(q.waiters, c)
	}
	if len(next) == 0 {
		q.whole = true
		q.waiters = append(q.waiters, q.tail...)
		q.tail = nil
	}
}
