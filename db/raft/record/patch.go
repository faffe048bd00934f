package record

import "github.com/locket-service/locket/internal/claim"

// Fields says which fields of a claim a Patch has. The status and the version are always there.
type Fields uint16

// The fields that may change. The numbers are stored: they are only added to.
const (
	// Made is a new claim: all fields are there.
	Made Fields = 1 << iota
	Type
	TTL
	Token
	Deadline
	Activated
	Finished
	Reason
	EndedBy
	Value
)

const allFields = Value<<1 - 1

// Patch is what a record says of one claim.
type Patch struct {
	Fields Fields
	// From is the status before, 0 for a claim that is Made.
	From claim.Status
	// Claim has the ID and the Fields.
	Claim claim.Claim
}

// patchOf returns what has changed. What a claim that was read in part lacks has not.
func patchOf(t claim.Transition) (fields Fields, from claim.Status) {
	before, after := t.Before, t.After
	if before == nil {
		return Made, 0
	}
	set := func(f Fields, differs bool) {
		if differs {
			fields |= f
		}
	}
	set(Type, before.Type != after.Type)
	set(TTL, before.TTL != after.TTL)
	set(Token, before.Token != after.Token)
	set(Deadline, before.Deadline != after.Deadline)
	set(Activated, before.Activated != after.Activated)
	set(Finished, before.Finished != after.Finished)
	set(Reason, before.Reason != after.Reason)
	set(EndedBy, before.EndedBy != after.EndedBy)
	set(Value, t.SetsValue())
	return fields, before.Status
}

// Apply changes a claim as the patch says.
func (p *Patch) Apply(c *claim.Claim) {
	if p.Fields&Made != 0 {
		*c = p.Claim
		return
	}
	c.Status, c.Version = p.Claim.Status, p.Claim.Version
	has := func(f Fields) bool { return p.Fields&f != 0 }
	if has(Type) {
		c.Type = p.Claim.Type
	}
	if has(TTL) {
		c.TTL = p.Claim.TTL
	}
	if has(Token) {
		c.Token = p.Claim.Token
	}
	if has(Deadline) {
		c.Deadline = p.Claim.Deadline
	}
	if has(Activated) {
		c.Activated = p.Claim.Activated
	}
	if has(Finished) {
		c.Finished = p.Claim.Finished
	}
	if has(Reason) {
		c.Reason = p.Claim.Reason
	}
	if has(EndedBy) {
		c.EndedBy = p.Claim.EndedBy
	}
	if has(Value) {
		c.Value = p.Claim.Value
	}
}

// Then returns one patch that does what both do, one after the other.
func (p *Patch) Then(next *Patch) Patch {
	both := *p
	next.Apply(&both.Claim)
	both.Fields |= next.Fields
	if both.Fields&Made != 0 {
		both.Fields = Made
	}
	return both
}
