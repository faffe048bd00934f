package codec

import "github.com/locket-service/locket/internal/rules/claim"

// anyType is the largest type of a claim that can be stored.
const anyType = ^claim.Type(0)

// Claim codes a claim, except what says how it was read (Brief, NewValue).
func (c *Coder) Claim(x *claim.Claim) {
	c.Text(&x.ID)
	c.Text(&x.Resource)
	Small(c, &x.Type, anyType)
	Small(c, &x.Status, claim.Revoked)
	c.Duration(&x.TTL)
	c.Version(&x.Enqueued)
	c.Version(&x.Token)
	c.Version(&x.Version)
	c.Lease(&x.Deadline)
	c.Wall(&x.Created)
	c.Wall(&x.Activated)
	c.Wall(&x.Finished)
	c.Rest(x)
}

// Rest codes the second part of a claim: its units, the parties, and the fields that no index is about.
func (c *Coder) Rest(x *claim.Claim) {
	c.Units(&x.Units)
	c.Parties(x)
	c.Duration(&x.WaitTTL)
	c.Flag(&x.AllowDeadlock)
	c.Text(&x.Value)
	c.Text(&x.Reason)
	c.Text(&x.EndedBy)
	c.Data(&x.UserData)
}

// Units codes how many units a claim takes.
func (c *Coder) Units(u *claim.Units) {
	c.Uint32(&u.Take)
	c.Uint32(&u.Of)
}

// Parties codes the owner, the identity and the session of a claim.
func (c *Coder) Parties(x *claim.Claim) {
	c.Text(&x.Owner)
	c.Text(&x.Identity)
	c.Text(&x.Session)
}

// Session codes a session.
func (c *Coder) Session(s *claim.Session) {
	c.Text(&s.ID)
	c.Text(&s.Owner)
	c.Text(&s.Identity)
	c.Data(&s.Secret)
	c.Duration(&s.TTL)
	c.Text(&s.Server)
	c.Lease(&s.Attached)
	c.Lease(&s.Deadline)
	c.Wall(&s.Created)
	c.Version(&s.Version)
	Small(c, &s.Ending.Active, claim.Revoked)
	Small(c, &s.Ending.Waiting, claim.Revoked)
	c.Text(&s.Ending.Reason)
	c.Text(&s.Ending.By)
}
