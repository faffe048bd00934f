package claim

// Party is who holds or waits: a session, or an owner of claims without one. Two claims of one
// party are not in each other's way: they are its own affair. The zero Party is nobody.
type Party struct{ Session, Owner string }

// Party returns the party of a claim: its session, else its owner, which may be empty.
func (c *Claim) Party() Party {
	if c.Session != "" {
		return Party{Session: c.Session}
	}
	return Party{Owner: c.Owner}
}

// Conflicts reports whether two claims of one resource cannot hold it together.
func (c *Claim) Conflicts(other *Claim) bool { return c.Mode == Exclusive || other.Mode == Exclusive }
