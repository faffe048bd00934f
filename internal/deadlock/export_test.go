package deadlock

import "time"

// SetLookTimeout changes how long a search may take.
func (d *Detector) SetLookTimeout(timeout time.Duration) { d.lookTimeout = timeout }
