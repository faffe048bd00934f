package claim

// Caller is the sender of a command. Its identity stands in the claims that it makes and ends.
type Caller struct {
	// Identity is who the caller was authenticated as, "" if nobody asked.
	Identity string
	// Permit returns nil if the caller may do this to a claim that is there already, else the
	// error of its command, which then changes nothing. It depends on its arguments alone. A nil
	// one permits everything.
	Permit func(Action, *Claim) error
	// Quota bounds how many live claims the Identity may have: a claim beyond it is refused with a QuotaError.
	// It is about claims that are about to be made, not about grants, renewals and repeated requests.
	// Queues.PutCount says what the identity had before the transaction.
	Quota Quota
}

// Action is what a command does to a claim that is there already.
type Action uint8

const (
	// ToSee tells the caller of the claim.
	ToSee Action = iota + 1
	// ToRenew gives it a new TTL, or takes it for the caller's own.
	ToRenew
	// ToEnd ends it.
	ToEnd
)

// Request is a command of a caller.
type Request struct {
	Caller  Caller
	Command Command
}

// Answer is what a request has led to.
type Answer struct {
	// Claim is what the command is about, as it has left it; nil if it is about none, and with an Err.
	Claim *Claim
	// Holder, unless it is nil, is the only claim that stands before Claim, which waits.
	Holder *Claim
	// Err is why the request was refused, or ErrUnfinished.
	Err error
}

// Answer carries a request out.
func (qs *Queues) Answer(r Request) (a Answer) {
	if a.Claim, a.Err = qs.DoFor(r.Caller, r.Command); a.Claim == nil || a.Claim.Status != Waiting {
		return a
	}
	if q := qs.byID[a.Claim.ID]; q.Waiting == 1 {
		a.Holder = q.ExclusiveHolder()
	}
	return a
}

// DoFor is Do for a caller.
func (qs *Queues) DoFor(caller Caller, cmd Command) (*Claim, error) {
	qs.caller = caller
	defer func() { qs.caller = Caller{} }()
	return qs.Do(cmd)
}

// permitted returns the claim with an id if the caller may do something to it. It is ErrNotFound if there is none.
func (q *Queue) permitted(a Action, id string) (*member, error) {
	m := q.find(id)
	if m == nil {
		return nil, ErrNotFound
	}
	return m, q.permit(a, m)
}

// permit asks whether the caller may do something to a claim.
func (q *Queue) permit(a Action, m *member) error {
	if q.set.caller.Permit == nil {
		return nil
	}
	return q.set.caller.Permit(a, m.Claim)
}
