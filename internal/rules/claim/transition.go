package claim

import "slices"

// Transition is one change of one claim. The store, other servers, waiting calls and metrics learn what a command did
// from a list of transitions, in the order of the changes. Neither claim changes afterwards.
type Transition struct {
	// Before is the claim before the change, nil if the change made it.
	Before *Claim
	// After is the claim after the change.
	After *Claim
}

// StoppedWaiting reports whether the claim stopped waiting, by a grant or by its end.
func (t Transition) StoppedWaiting() bool {
	return t.Before != nil && t.Before.Status == Waiting && t.After.Status != Waiting
}

// SetsValue reports whether the Value of a claim that existed before must be stored: it differs, or a renewal has set
// it without reading the old one.
func (t Transition) SetsValue() bool {
	return t.Before.Value != t.After.Value || t.Before.NewValue != t.After.NewValue
}

// Net reduces transitions to one for each claim, from before its first change to after its last, in the order of the
// last changes. So the versions of a resource rise.
func Net(transitions []Transition) []Transition {
	net := make([]Transition, 0, len(transitions))
	at := make(map[*Claim]int, len(transitions)) // by After
	for _, t := range transitions {
		if i, again := at[t.Before]; again {
			t.Before = net[i].Before
			net[i] = Transition{}
		}
		at[t.After] = len(net)
		net = append(net, t)
	}
	return slices.DeleteFunc(net, func(t Transition) bool { return t == Transition{} })
}
