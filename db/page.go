package db

import "github.com/locket-service/locket/internal/rules/claim"

// Page is a part of an answer that may be large. The zero value is the whole answer.
type Page struct {
	// After is the id of the last claim of the page before, "" for the first page.
	After string
	// Limit is the number of claims to return; 0 is no bound.
	Limit int
	// Bytes bounds the memory of the answer, see Budget; 0 is no bound.
	Bytes int
	// Into is memory that the answer may use. What it holds is lost.
	Into []claim.Claim
}

// Budget bounds the memory of an answer, in bytes of names and data. The answer ends with the first claim
// after the budget is used up: this additional claim shows that the answer is not complete. 0 is no bound.
type Budget int

// Take adds a claim to the answer, and reports whether more may follow.
func (b *Budget) Take(c *claim.Claim) (more bool) {
	switch {
	case *b == 0:
		return true
	case *b < 0:
		return false
	}
	*b -= Budget(len(c.ID) + len(c.Resource) + len(c.Owner) + len(c.UserData) + len(c.Value) + len(c.Reason))
	if *b == 0 {
		*b = -1
	}
	return true
}
