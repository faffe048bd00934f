package committer

import (
	"context"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// Tracer is told of transactions, on the goroutine that commits, before their callers are answered, so it must be quick.
type Tracer interface {
	Transaction(tx Transaction)
}

// Transaction is one that has ended.
type Transaction struct {
	Begin, End time.Time
	// Commands are those that it has carried out.
	Commands []Command
	// Changes are what it has committed. There are none with an Err.
	Changes []claim.Transition
	Err     error
}

// Command is one of a transaction.
type Command struct {
	// Context is that of the caller.
	Context context.Context
	// Queued is since when it has waited for the transaction.
	Queued time.Time
	// Claim and Err are its answer.
	Claim *claim.Claim
	Err   error
}

// Trace sets who is told of transactions. It is to be called before the committer runs.
func (c *Committer) Trace(tracer Tracer) { c.tracer = tracer }

// trace tells the tracer, if there is one.
func (c *Committer) trace(batch []*request, begin, end time.Time, changes []claim.Transition, err error) {
	if c.tracer == nil {
		return
	}
	commands := make([]Command, len(batch))
	for i, r := range batch {
		commands[i] = Command{Context: r.ctx, Queued: r.queued, Claim: &r.result.Claim, Err: r.err}
	}
	c.tracer.Transaction(Transaction{Begin: begin, End: end, Commands: commands, Changes: changes, Err: err})
}
