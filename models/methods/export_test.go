package methods

import (
	"maps"
	"slices"
)

// Lines returns the full names of the methods in the table.
func Lines() []string { return slices.Sorted(maps.Keys(table)) }
