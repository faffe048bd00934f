package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// queueView is the queue of a resource.
type queueView struct {
	jsonview.Queue
	value string // of a single holder; the queue itself has no values
}

func viewQueue(q *models.Queue) queueView {
	return queueView{Queue: jsonview.OfQueue(q, jsonview.OfPlace)}
}

// isDeadlock reports whether the holders wait for claims that wait for this resource.
func (v queueView) isDeadlock() bool {
	return slices.ContainsFunc(v.Waits, func(w jsonview.Wait) bool { return w.Resource == v.Resource })
}

func (v queueView) Names() []string {
	var ids []string
	for _, places := range [][]jsonview.Place{v.Holders, v.Waiters} {
		for _, place := range places {
			ids = append(ids, place.ID)
		}
	}
	return ids
}

func (v queueView) Text(look show.Look) string {
	text := v.summary() + "\n"
	if len(v.Holders)+len(v.Waiters) == 0 {
		return text
	}
	t := show.NewTable(show.Fixed("PLACE"), show.Long("OWNER"), show.Since, show.Fixed("TTL"), show.Fixed("BEHIND"), show.OnlyWide("MODE"), show.OnlyWide("TOKEN"), show.ShortID(show.ShortClaim))
	for _, p := range v.Holders {
		t.Add(show.Colored("holds", show.Green), show.NameCell(p.Owner), show.Plain(look.Since(sinceOf(p))), show.TtlCell(p.TTL), show.Plain(""), show.Plain(p.Mode.String()),
			show.TokenCell(p.Token), show.Plain(p.ID))
	}
	for i, p := range v.Waiters {
		t.Add(show.Colored(strconv.Itoa(i+1), show.Yellow), show.NameCell(p.Owner), show.Plain(look.Since(sinceOf(p))), show.TtlCell(p.TTL), show.Plain(strings.TrimPrefix(v.reason(i), "behind ")), show.Plain(p.Mode.String()),
			show.TokenCell(p.Token), show.Plain(p.ID))
	}
	text += t.Text(look)
	if more := v.Waiting - uint64(len(v.Waiters)); more > 0 {
		text += fmt.Sprintf("%d more wait; --limit shows more\n", more)
	}
	return text + v.chain()
}

// chain says whom the holders wait for elsewhere, a line for each.
func (v queueView) chain() (text string) {
	for _, w := range v.Waits {
		text += fmt.Sprintf("%s waits for %s: %s\n", nameOf(w.Waiter), printable.Quoted(w.Resource), inTheWay(w))
	}
	if v.isDeadlock() {
		text += fmt.Sprintf("This is a deadlock; for the way out: locket explain %s\n", printable.ShellQuoted(v.Resource))
	}
	return text
}

// inTheWay names the holders of the resource, and how many wait before.
func inTheWay(w jsonview.Wait) string {
	who := "its turn has come"
	switch n := len(w.Holders); {
	case n == 1:
		who = "held by " + nameOf(w.Holders[0])
	case n > 1:
		who = fmt.Sprintf("shared by %s and %d more", nameOf(w.Holders[0]), n-1)
	}
	switch n := len(w.Ahead); {
	case n == 1:
		who += ", behind " + nameOf(w.Ahead[0])
	case n > 1:
		who += fmt.Sprintf(", behind %s and others", nameOf(w.Ahead[n-1]))
	}
	return who
}

// summary says the main thing in a sentence.
func (v queueView) summary() string {
	state := "is free"
	switch n := len(v.Holders); {
	case n == 1:
		state = "is held by " + nameOfPlace(v.Holders[0])
		if v.value != "" {
			state += " (" + v.value + ")"
		}
	case n > 1:
		state = fmt.Sprintf("is shared by %d", n)
	}
	if v.Waiting > 0 {
		state += fmt.Sprintf(", %d wait", v.Waiting)
	}
	return printable.Quoted(v.Resource) + " " + state
}

// behind returns the place of the claim that the i-th waiter waits behind: the last one before it that it conflicts with; 0 for the
// holders, and -1 if its turn has come.
func (v queueView) behind(i int) int {
	waiter := v.Waiters[i]
	for before := i - 1; before >= 0; before-- {
		if waiter.Mode == exclusive || v.Waiters[before].Mode == exclusive {
			return before + 1
		}
	}
	if len(v.Holders) == 0 || v.Holders[0].Mode == shared && waiter.Mode == shared {
		return -1
	}
	return 0
}

// reason describes what the i-th waiter waits for, in a row below the others.
func (v queueView) reason(i int) string {
	switch place := v.behind(i); {
	case place < 0:
		return "its turn has come"
	case place > 0:
		return fmt.Sprintf("behind place %d", place)
	case len(v.Holders) == 1:
		return "behind the holder"
	default:
		return fmt.Sprintf("behind %d holders", len(v.Holders))
	}
}

// reasonNamed is reason with the owner's name.
func (v queueView) reasonNamed(i int) string {
	switch place := v.behind(i); {
	case place > 0:
		return fmt.Sprintf("behind %s at place %d", nameOfPlace(v.Waiters[place-1]), place)
	case place == 0 && len(v.Holders) == 1:
		return "behind " + nameOfPlace(v.Holders[0])
	}
	return v.reason(i)
}

// nameOfPlace names the owner of a claim in a queue.
func nameOfPlace(p jsonview.Place) string {
	return nameOf(jsonview.ClaimRef{Claim: p.ID, Owner: p.Owner, Session: p.Session})
}
