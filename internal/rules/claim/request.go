package claim

import "github.com/locket-service/locket/internal/rules/access"

// Request is a command of a caller.
type Request struct {
	// Caller sends it. Its identity is recorded in the claims that it makes and ends.
	Caller  access.Caller
	Command Command
}

// Answer is the result of a request.
type Answer struct {
	// Claim is the claim that the command is about, as the command left it; nil if there is none, or with an Err.
	Claim *Claim
	// Position is Claim's place in the queue, if it waits: 1 for the next. It is 0 if the transaction has not read
	// enough to know it.
	Position int
	// Err is why the request was refused, or ErrUnfinished.
	Err error
}

// Answer carries a request out.
func (qs *Queues) Answer(r Request) (a Answer) {
	if a.Claim, a.Err = qs.DoFor(r.Caller, r.Command); a.Claim == nil || a.Claim.Status != Waiting {
		return a
	}
	if q := qs.byID[a.Claim.ID]; q.isLast(a.Claim.ID) {
		a.Position = q.Waiting
	}
	return a
}

// DoFor is Do for a caller.
func (qs *Queues) DoFor(caller access.Caller, cmd Command) (*Claim, error) {
	qs.caller = caller
	defer func() { qs.caller = access.Caller{} }()
	return qs.Do(cmd)
}
