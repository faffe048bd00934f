package replica

import (
	"fmt"

	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/state"
)

// sums returns the sums of the state for the next record of the decider, nil while they are not due.
func (c *cluster) sums() record.Sums {
	if c.summed != 0 && c.have-c.summed < c.s.options.SumEntries {
		return nil
	}
	c.summed = c.have
	return c.s.state.Sums()
}

// compareSums compares the sums of a record with the state before it. A server whose state differs stops.
func (s *Store) compareSums(sums record.Sums) error {
	if sums == nil {
		return nil
	}
	if differ := s.state.Sums().Differences(sums); differ != "" {
		return fmt.Errorf("%w: the decider's state is another one. They differ in: %s. Start this server again: it reads its state from its files. "+
			"If it fails again, empty its folder: it gets the state of another server", state.ErrDiverged, differ)
	}
	return nil
}
