package replica

import "fmt"

// NotDecidingError is returned by a server that was taken for the decider. Nothing was done.
type NotDecidingError struct {
	// Epoch is the number of the latest epoch that the server knows.
	Epoch uint64
}

func (e *NotDecidingError) Error() string {
	return fmt.Sprintf("this server does not decide in epoch %d", e.Epoch)
}
