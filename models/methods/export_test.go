package methods

import (
	"maps"
	"slices"
)

// Lines returns the full names that have a line.
func Lines() []string { return slices.Sorted(maps.Keys(table)) }
