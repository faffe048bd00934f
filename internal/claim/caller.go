package claim

// Caller is who sends a command. Its identity stands in the claims that it makes and ends.
type Caller struct {
	// Identity is who the caller was authenticated as, "" if nobody asked.
	Identity string
	// Permit returns nil if the caller may do this to a claim that is there already, else the
	// error of its command, of which nothing is done then. It depends on its arguments alone. A nil
	// one permits everything.
	Permit func(Action, *Claim) error
	// Admit returns nil if the caller may have one more claim with a status, Active or Waiting, beside those
	// that its identity has, else the error of its command, of which nothing is done then. It is asked
	// about a claim that is about to be made, not about grants, renewals and repeated requests. A nil one
	// admits all. Queues.PutCount says what the identity had before the transaction.
	Admit func(s Status, has Count) error
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

// DoFor is Do for a caller.
func (qs *Queues) DoFor(caller Caller, cmd Command) (*Claim, error) {
	qs.caller = caller
	defer func() { qs.caller = Caller{} }()
	return qs.Do(cmd)
}

// permit asks whether the caller may do something to a claim.
func (q *Queue) permit(a Action, m *member) error {
	if q.set.caller.Permit == nil {
		return nil
	}
	return q.set.caller.Permit(a, m.Claim)
}
