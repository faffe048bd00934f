package claim

import (
	"slices"

	"github.com/locket-service/locket/internal/rules/access"
)

// Queues has the queues read by one transaction, and the transaction's time. It carries out the transaction's commands,
// and records the changes.
type Queues struct {
	// Now is the time of the transaction. It was read after the transaction began, so it is not before any of its
	// requests.
	Now Instant

	byResource  map[string]*Queue
	byID        map[string]*Queue // the queue of each claim that is known
	sessions    map[string]*session
	refused     refusals
	targets     []*Queue // of the current command
	transitions []Transition
	net         []Transition  // of the first summed transitions
	caller      access.Caller // of the command under way
	summed      int
	granted     int // how many claims this transaction has granted
	ahead       []uint64
}

// NewQueues returns an empty set, with room for size resources.
func NewQueues(now Instant, size int) *Queues {
	return &Queues{
		Now:        now,
		byResource: make(map[string]*Queue, size),
		byID:       make(map[string]*Queue, size),
	}
}

// Put adds the queue of a resource that was read.
func (qs *Queues) Put(q *Queue) {
	q.set = qs
	qs.byResource[q.Resource] = q
}

// Add adds a claim that was read to the queue of its resource, which must be known already. A claim that is already
// known stays unchanged.
func (qs *Queues) Add(c *Claim) {
	qs.byResource[c.Resource].add(c)
}

// refusals are the errors of commands about what could not be loaded, by name or by id.
type refusals struct {
	resources, claims, sessions map[string]error
}

// Refuse makes every command on a resource, or on one of the claims with the ids, fail with
// err, because its queue could not be loaded. Expire and KeepWaiting skip the resource.
func (qs *Queues) Refuse(err error, resource string, ids ...string) {
	put(&qs.refused.resources, resource, err)
	for _, id := range ids {
		put(&qs.refused.claims, id, err)
	}
}

// RefuseSession makes every command about a session fail with err, because it could not be loaded.
func (qs *Queues) RefuseSession(err error, id string) { put(&qs.refused.sessions, id, err) }

// put puts a value into a map, and makes the map first if it is nil.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}

// RenewHolders renews the known holders of a resource whose rows were locked, so that nobody could renew them. It is
// called before the first command.
func (qs *Queues) RenewHolders(resource string) {
	q := qs.byResource[resource]
	for _, m := range q.members {
		if due := qs.Now.Lease.Add(m.TTL); m.Status == Active && m.Deadline < due {
			q.change(m, qs.Now).Deadline = due
		}
	}
}

// KeepWaits extends the waits of a resource's waiting claims with a deadline up to due: their rows were locked, so
// that nobody could ask about them. It is called before the first command.
func (qs *Queues) KeepWaits(resource string, due Time) { qs.byResource[resource].unasked = due }

// Resource returns the queue of a resource, nil if it was not read.
func (qs *Queues) Resource(name string) *Queue { return qs.byResource[name] }

// QueueOf returns the queue of the claim with an id, nil when no such claim is known.
func (qs *Queues) QueueOf(id string) *Queue { return qs.byID[id] }

// Do carries out one command, and then grants what can be granted. It returns the claim that the command is about, nil
// if there is none.
//
// A command that returns an error may still have changed the queue: a lease that ran out while others wait has ended,
// and the next claim has been granted.
func (qs *Queues) Do(cmd Command) (*Claim, error) {
	if err := qs.find(cmd); err != nil {
		return nil, err
	}
	for _, q := range qs.targets {
		q.passOn(qs.Now)
	}
	m, err := cmd.apply(qs)
	for _, q := range qs.targets {
		q.settle(qs.Now)
	}
	if err != nil || m == nil {
		return nil, err
	}
	return m.Claim, nil
}

// find sets targets to the queues that a command works on, each once.
func (qs *Queues) find(cmd Command) error {
	qs.targets = qs.targets[:0]
	for _, t := range cmd.Targets() {
		if err := qs.refusal(t); err != nil {
			if ofMany(cmd) {
				continue
			}
			return err
		}
		if t.Session != "" {
			qs.findClaims(t)
			continue
		}
		q := qs.byID[t.ID]
		if t.Resource != "" {
			if q != nil && q.Resource != t.Resource {
				return ErrIDTaken
			}
			q = qs.byResource[t.Resource]
		}
		switch {
		case q == nil && t.Resource == "" && ofMany(cmd), slices.Contains(qs.targets, q):
		case q == nil:
			return ErrNotFound
		default:
			qs.targets = append(qs.targets, q)
		}
	}
	return nil
}

// findClaims adds the queues of a session's claims to the targets, except queues that could not be loaded.
func (qs *Queues) findClaims(t Target) {
	s := qs.sessions[t.Session]
	if s == nil || !t.Claims {
		return
	}
	found := make(map[*Queue]bool, len(s.claims))
	for _, id := range s.claims {
		if q := qs.byID[id]; q != nil && !found[q] {
			found[q] = true
			qs.targets = append(qs.targets, q)
		}
	}
}

// refusal returns why a target could not be loaded, nil if it was.
func (qs *Queues) refusal(t Target) error {
	switch {
	case t.Session != "":
		return qs.refused.sessions[t.Session]
	case t.Resource != "" && qs.refused.resources[t.Resource] != nil:
		return qs.refused.resources[t.Resource]
	case t.ID != "":
		return qs.refused.claims[t.ID]
	}
	return nil
}

// Transitions returns every change that the commands made, in order.
func (qs *Queues) Transitions() []Transition { return qs.transitions }

// Changes returns the Net of Transitions: the changes of claims to store.
func (qs *Queues) Changes() []Transition {
	if qs.summed != len(qs.transitions) {
		qs.net, qs.summed = Net(qs.transitions), len(qs.transitions)
	}
	return qs.net
}

// Changed returns the queues whose rows have changed, in no order.
func (qs *Queues) Changed() []*Queue {
	changed := make([]*Queue, 0, len(qs.byResource))
	for _, q := range qs.byResource {
		if q.Changed() {
			changed = append(changed, q)
		}
	}
	return changed
}

// Ahead returns the versions in commands that were refused with an AheadError. If the store has given them, it was rolled back since.
func (qs *Queues) Ahead() []uint64 { return qs.ahead }

// Err returns the first error of reading more of a queue while commands ran. Nothing of the transaction may be written
// then.
func (qs *Queues) Err() error {
	for _, q := range qs.byResource {
		if q.err != nil {
			return q.err
		}
	}
	return nil
}
