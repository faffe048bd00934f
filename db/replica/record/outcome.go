package record

import (
	"errors"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// WriteOutcome encodes the outcome of a batch, to keep it and to send it to the batch's server; or, if failed is not nil,
// why there is none. Claims used more than once are encoded once. The error is ErrNotSent.
func WriteOutcome(o db.Outcome, failed error) ([]byte, error) {
	var failure string
	if failed != nil {
		failure = failed.Error()
	}
	return write(func(c *coder) { c.outcome(&o, &failure) })
}

// ReadOutcome decodes the output of WriteOutcome; if there was no outcome, it returns the reason as an error. It
// returns ErrFormat for anything else.
func ReadOutcome(data []byte) (o db.Outcome, err error) {
	var failure string
	if err := read(data, func(c *coder) { c.outcome(&o, &failure) }); err != nil {
		return o, err
	}
	if failure != "" {
		return o, errors.New(failure)
	}
	return o, nil
}

func (c *coder) outcome(o *db.Outcome, failure *string) {
	if c.texts(failure); *failure != "" {
		return
	}
	c.instant(&o.Now)
	c.Near(o.Now.Wall, o.Now.Lease)
	list(c, &o.Answers, func(c *coder, a *claim.Answer) {
		c.claim(&a.Claim)
		oneOf(c, answerErrors, &a.Err)
		signed(c, &a.Position)
	})
	list(c, &o.Changes, func(c *coder, t *claim.Transition) {
		c.claim(&t.Before)
		c.claim(&t.After)
	})
	c.flags(&o.Committed)
	c.names(&o.Unsettled)
}

func (c *coder) instant(now *claim.Instant) {
	signed(c, &now.Wall, &now.Lease, &now.Quarantine)
	signed(c, &now.Skew)
}

// claim codes a claim that may be there, whole.
func (c *coder) claim(p **claim.Claim) {
	c.claims.code(c, p, func(c *coder, of *claim.Claim) {
		c.Claim(of)
		c.flags(&of.Brief, &of.NewValue)
	})
}

// answerErrors are the errors that an answer may have.
var answerErrors = []kind{
	one(nil),
	one(claim.ErrNotFound),
	one(claim.ErrIDTaken),
	one(claim.ErrQuarantine),
	one(claim.ErrQueueFull),
	one(claim.ErrContention),
	one(claim.ErrUnfinished),
	one(claim.ErrSessionEnded),
	one(claim.ErrSessionSecret),
	one(claim.ErrNotAttached),
	one(claim.ErrSessionFull),
	one(claim.ErrSessionClaim),
	pointers(func(c *coder, e *claim.CollisionError) { c.claim(&e.Holder) }),
	pointers(func(c *coder, e *claim.VersionError) { c.Unsigned(&e.Version) }),
	pointers(func(c *coder, e *claim.TransitionError) {
		small(c, &e.From, claim.Revoked)
		small(c, &e.To, claim.Revoked)
	}),
	pointers(func(c *coder, e *access.DeniedError) {
		c.texts(&e.Identity, &e.Resource)
		small(c, &e.Right, access.All)
		c.flags(&e.Prefix)
	}),
	pointers(func(c *coder, e *claim.AheadError) {
		c.texts(&e.Resource)
		c.Unsigned(&e.Known)
		c.Unsigned(&e.Version)
	}),
}
