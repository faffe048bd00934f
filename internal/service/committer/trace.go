package committer

import (
	"context"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Tracer hears of transactions before their callers are answered, on the goroutine that commits, so it must be quick.
type Tracer interface {
	Transaction(tx Transaction)
}

// Transaction is a transaction that has ended.
type Transaction struct {
	Begin, End time.Time
	// Commands are the commands that it carried out.
	Commands []Command
	// Changes are the committed changes; none with an Err.
	Changes []claim.Transition
	Err     error
}

// Command is a command of a transaction.
type Command struct {
	// Context is the caller's.
	Context context.Context
	// Queued is when it began to wait for the transaction.
	Queued time.Time
	// Claim and Err are its answer.
	Claim *claim.Claim
	Err   error
}

// Trace sets the tracer. Call it before the committer runs.
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
