package record

import (
	"cmp"
	"slices"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Cut deletes claims from the history of every server: the claims that ended in an entry of the log up to Entry, and not
// after Finished. Of the claims that ended at Finished it deletes the ids up to ID.
type Cut struct {
	Entry    uint64
	Finished claim.Time
	ID       string
}

func (c *Cut) code(to *codec.Coder) {
	to.Unsigned(&c.Entry)
	to.Lease(&c.Finished)
	to.Text(&c.ID)
}

// covers reports whether a cut deletes everything that another one deletes.
func (c Cut) covers(other Cut) bool {
	return c.Entry >= other.Entry && cmp.Or(cmp.Compare(c.Finished, other.Finished), cmp.Compare(c.ID, other.ID)) >= 0
}

// Cuts are all cuts so far, except cuts that others cover. There is one, unless a clock was set back by more than the
// age of deleted claims. A list never changes: Add makes another one.
type Cuts []Cut

// maxCuts bounds the list.
const maxCuts = 16

// Takes reports whether there is room for a cut.
func (l Cuts) Takes(c Cut) bool { return len(l) < maxCuts || slices.ContainsFunc(l, c.covers) }

// Add adds a cut.
func (l *Cuts) Add(c Cut) {
	if slices.ContainsFunc(*l, func(known Cut) bool { return known.covers(c) }) {
		return
	}
	left := slices.DeleteFunc(slices.Clone(*l), c.covers)
	*l = append(left, c)
	slices.SortFunc(*l, func(a, b Cut) int { return cmp.Compare(a.Entry, b.Entry) })
}

// Delete reports whether a claim that ended in an entry is deleted.
func (l Cuts) Delete(entry uint64, c *claim.Claim) bool {
	return slices.ContainsFunc(l, func(cut Cut) bool { return cut.covers(Cut{entry, c.Finished, c.ID}) })
}
