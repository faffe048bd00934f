package fencing_test

import (
	"fmt"

	"github.com/locket-service/locket/lock/fencing"
)

// The locked data is in one process: a guard protects it.
func ExampleGuard() {
	var l ledger
	fmt.Println(l.append(33, "by the first holder"))
	fmt.Println(l.append(34, "by the second"))
	fmt.Println(l.append(33, "late, by the first"))
	fmt.Println(l.lines)

	// Output:
	// <nil>
	// <nil>
	// the fencing token is stale: 33, and 34 was seen
	// [by the first holder by the second]
}

// ledger is the target: the holders of a lock write to it.
type ledger struct {
	guard fencing.Guard
	lines []string
}

func (l *ledger) append(token uint64, line string) error {
	return l.guard.Do(token, func() error {
		l.lines = append(l.lines, line)
		return nil
	})
}
