package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// model is what porcupine is given: each resource for itself, and the rules.
var model = porcupine.Model{
	Partition: partition,
	Init:      func() any { return state{} },
	Step: func(before, input, output any) (bool, any) {
		s := before.(state)
		ok := s.step(input.(Input), output.(Output))
		return ok, s
	},
	Equal:             func(a, b any) bool { return equal(a.(state), b.(state)) },
	DescribeOperation: func(in, out any) string { return describe(in.(Input), out.(Output)) },
}

// partition splits a history by resource. Resources that have the same name are one.
func partition(history []porcupine.Operation) [][]porcupine.Operation {
	byResource := make(map[string][]porcupine.Operation)
	for _, op := range history {
		resource := op.Input.(Input).Resource
		byResource[resource] = append(byResource[resource], op)
	}
	var parts [][]porcupine.Operation
	for _, part := range byResource {
		parts = append(parts, part)
	}
	return parts
}

// Check returns nil when the rules explain the history, and otherwise an error that shows
// where the longest explanation of one resource's operations ends. A search that takes
// longer than timeout is an error too.
func Check(history []porcupine.Operation, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	history, err := spread(history)
	if err != nil {
		return err
	}
	for _, part := range partition(history) {
		left, _ := ctx.Deadline()
		result := porcupine.CheckOperationsTimeout(model, part, max(time.Until(left), time.Nanosecond))
		if result != porcupine.Ok {
			return fmt.Errorf("the rules do not explain the history (%s):\n%s", result, longest(part))
		}
	}
	return nil
}

// shownOperations is how many operations an error shows at most on either side.
const shownOperations = 25

// longest shows the end of the longest explanation of a resource's history, and the
// operations that may come next.
func longest(part []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model, part, 10*time.Second)
	var explained []porcupine.Operation
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(explained) {
			explained = partial
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "explained: %d of %d operations, the last of them\n", len(explained), len(part))
	write(&text, explained[max(0, len(explained)-shownOperations):])
	fmt.Fprintln(&text, "none of these can come next")
	write(&text, next(part, explained))
	return text.String()
}

// next returns the operations of a part, less those that are explained, of which the next
// one must be.
func next(part, explained []porcupine.Operation) (open []porcupine.Operation) {
	left := make(map[string]int)
	for _, op := range explained {
		left[line(op)]--
	}
	first := int64(Forever)
	for _, op := range part {
		if left[line(op)]++; left[line(op)] > 0 {
			open, first = append(open, op), min(first, op.Return)
		}
	}
	open = slices.DeleteFunc(open, func(op porcupine.Operation) bool { return op.Call > first })
	slices.SortFunc(open, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	return open[:min(len(open), shownOperations)]
}

func write(text *strings.Builder, ops []porcupine.Operation) {
	for _, op := range ops {
		fmt.Fprintln(text, line(op))
	}
}

func line(op porcupine.Operation) string {
	end := fmt.Sprint(op.Return / 1000)
	if op.Return == Forever {
		end = "?"
	}
	return fmt.Sprintf("%10d..%s us %s", op.Call/1000, end, describe(op.Input.(Input), op.Output.(Output)))
}
