package handlers

import (
	"errors"
	"maps"

	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/service/watch"
)

// errViewChanged ends a watch, and refuses a cursor, when the rules have changed what the caller may see. Its
// caller's state would be wrong: claims that it may see now were not sent, and ends of claims that it may no longer
// see will not be.
var errViewChanged = errors.New("the caller may see something else than when the watch began")

// view is the part of all claims that the caller of a watch may see. It is in the cursors of the watch.
type view struct {
	rules *access.Rules
	// number comes from access.Rules.View; 0 means that the caller may see everything.
	number uint64
}

// viewEntry stands for a view in the position of a cursor. No server has this name in the feed. Positions of servers
// that are not in the feed are ignored, even by versions that know of no view.
const viewEntry = "view"

func newView(caller access.Caller) view { return view{caller.Rules, viewOf(caller)} }

func viewOf(caller access.Caller) uint64 {
	if !restricted(caller) {
		return 0
	}
	return caller.Rules.View(caller.Identity, access.Read)>>1 | 1
}

// holdsFor reports whether a caller, whose rules may have changed, may still see the same.
func (v *view) holdsFor(caller access.Caller) bool {
	if caller.Rules != v.rules && viewOf(caller) != v.number {
		return false
	}
	v.rules = caller.Rules
	return true
}

func (v *view) putInto(cursor watch.Cursor) watch.Cursor {
	if v.number != 0 {
		cursor.Position = maps.Clone(cursor.Position)
		cursor.Position[viewEntry] = v.number
	}
	return cursor
}

// takeFrom removes the view from a cursor, and reports whether it is this one.
func (v *view) takeFrom(cursor *watch.Cursor) bool {
	number := cursor.Position[viewEntry]
	delete(cursor.Position, viewEntry)
	return number == v.number
}
