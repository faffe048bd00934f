package claim

import "fmt"

// Units says how many units of its resource a claim takes, and how many there are. The zero value is Exclusive.
type Units struct {
	// Take is how many units the claim takes, 0 for all.
	Take uint32
	// Of is how many units there are, 0 for an unlimited number.
	Of uint32
}

// The two kinds of claims that clients can make (write locks and read locks in the document on resource locking).
var (
	// Exclusive: the holder is alone.
	Exclusive = Units{}
	// Shared: any number of shared claims hold the resource together.
	Shared = Units{Take: 1}
)

// All reports whether a claim takes all units, so that its holder is alone.
func (u Units) All() bool { return u.Take == 0 }

// String returns "exclusive" or "shared", or the numbers of other units.
func (u Units) String() string {
	switch u {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	default:
		return fmt.Sprintf("%d of %d units", u.Take, u.Of)
	}
}

// beside reports whether a claim may hold units while others hold some of the same number of units.
func (u Units) beside(taken uint64, of uint32) bool {
	return !u.All() && u.Of == of && (of == 0 || taken+uint64(u.Take) <= uint64(of))
}

// Conflicts reports whether two claims of one resource cannot hold it together.
func (c *Claim) Conflicts(other *Claim) bool {
	return other.Units.All() || !c.Units.beside(uint64(other.Units.Take), other.Units.Of)
}
