package claim

// OwnerKey identifies an owner in the search for deadlocks: a session, or the owner of claims without one. Two
// claims with one key cause no deadlock between them. The zero OwnerKey identifies nobody.
type OwnerKey struct{ Session, Owner string }

// OwnerKey returns the session of a claim or, without one, its owner, which may be empty.
func (c *Claim) OwnerKey() OwnerKey {
	if c.Session != "" {
		return OwnerKey{Session: c.Session}
	}
	return OwnerKey{Owner: c.Owner}
}
