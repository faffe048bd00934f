package record

import (
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Origin identifies a batch of a server.
type Origin struct {
	Node uint64
	// Seq numbers the server's batches. It rises. Each start of a server counts as another server.
	Seq uint64
}

// WriteBatch encodes a batch for the decider: the commands, and everything that decides about their callers. Rules used
// more than once are encoded once. Quotas are not included: they have been checked. The error is ErrNotSent.
func WriteBatch(from Origin, b db.Batch) ([]byte, error) {
	return write(func(c *coder) { c.batch(&from, &b) })
}

// ReadBatch decodes the output of WriteBatch. It returns ErrFormat for anything else.
func ReadBatch(data []byte) (from Origin, b db.Batch, err error) {
	err = read(data, func(c *coder) { c.batch(&from, &b) })
	return from, b, err
}

func (c *coder) batch(from *Origin, b *db.Batch) {
	c.Unsigned(&from.Node)
	c.Unsigned(&from.Seq)
	var rules shared[access.Rules]
	list(c, &b.Requests, func(c *coder, r *claim.Request) {
		c.texts(&r.Caller.Name, &r.Caller.Credential)
		c.names(&r.Caller.Groups)
		rules.code(c, &r.Caller.Rules, (*coder).rules)
		oneOf(c, commands, &r.Command)
	})
}

func (c *coder) rules(rules *access.Rules) {
	var all []*access.Rule
	if !c.Reads() {
		all = rules.List()
	}
	list(c, &all, func(c *coder, r **access.Rule) {
		if c.Reads() {
			*r = new(access.Rule)
		}
		c.rule(*r)
	})
	if c.Reads() && c.Err() == nil {
		*rules = *access.NewRules(all)
	}
}

// rule codes an access rule: one subject (identity, prefix, group or everybody) and one resource or resource prefix.
func (c *coder) rule(r *access.Rule) {
	whom := []**string{&r.Identity, &r.IdentityPrefix, &r.Group}
	if everybody := c.choice(whom, 1); everybody && c.Reads() {
		r.Everybody = true
	}
	c.choice([]**string{&r.Resource, &r.ResourcePrefix}, 0)
	small(c, &r.May, access.All)
	small(c, &r.MayNot, access.All)
	signed(c, &r.Line)
}

// choice codes the one text that is set; or, with others, that none is.
func (c *coder) choice(texts []**string, others uint8) (other bool) {
	var n uint8
	if !c.Reads() {
		for int(n) < len(texts) && *texts[n] == nil {
			n++
		}
	}
	if small(c, &n, uint8(len(texts))-1+others); int(n) >= len(texts) {
		return true
	}
	if c.Reads() {
		*texts[n] = new(string)
	}
	c.texts(*texts[n])
	return false
}
