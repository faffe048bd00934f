package keychain

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// readTables returns the rows of the tables of the original, the first of the states and the
// second of the transitions, without their headings.
func readTables(t *testing.T) (states, transitions [][]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/claim-client.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]*[][]string{"Complete state table:": &states, "Complete transition table:": &transitions}
	var table *[][]string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); tables[line] != nil {
			table = tables[line]
		}
		if cells := strings.Split(line, "|"); len(cells) > 1 && !strings.HasPrefix(line, "---") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			*table = append(*table, cells)
		}
	}
	return states[1:], transitions[1:]
}

// originalRow is a row of the original's transition table, in its own words.
type originalRow struct{ from, to, condition, actions string }

// eventsOf has the events for each condition of the original.
var eventsOf = map[string][]event{
	"response (4xx)":            {eventRefused, eventNotFound, eventConflict},
	"response (4xx except 404)": {eventRefused, eventConflict},
	"response (5xx, 404)":       {eventFailed, eventNotFound},
}

// decided are the rows of the original that are not ours, with the reason. It also applies to the rows that replace
// them.
var decided = map[originalRow]string{
	{"Activating", "Aborted", "signal received", "send PATCH (status=aborted)"}:         "a slip: it sends, so it is Aborting",
	{"Registering", "waiting", "response (201)", "create renew timer"}:                  "201 is active at once (the REST requirements), as the renew timer shows",
	{"Registering", "done", "signal received", "delete timeout timer"}:                  "the POST may make a claim, which must be withdrawn",
	{"Registering", "done", "timeout timer triggers", "notify client of timeout"}:       "the POST may make a claim, which must be withdrawn",
	{"retrying register", "done", "signal received", "delete timeout timer"}:            "the POST may have made a claim, which must be withdrawn",
	{"retrying register", "done", "timeout timer triggers", "notify client of timeout"}: "the POST may have made a claim, which must be withdrawn",
}

// added are the actions that ours may have and the original leaves out, with the reason.
var added = map[action]string{
	dropRequest:     "at most one request is under way",
	startEndTimeout: "The original's rows for the timeout timer while a claim is being ended need one that runs",
	stopTimeout:     "no timer of a claim that is active or has ended runs",
	stopRetry:       "as above",
	startLease:      "the original does not know that the lease ends by itself",
	stopLease:       "as above",
	startRenew:      "a claim that is active is renewed",
	notifyTimeout:   "the original notifies the client of a timeout while it registers; it needs to know later too",
	notifyLost:      "the original terminates the client instead of notifying it, which is optional here",
	notifyAcquired:  "a claim may be active at once",
}

// Every row of the original's transition table is in ours, with its actions, or among the decided
// differences.
func TestEveryRowOfTheOriginal(t *testing.T) {
	_, rows := readTables(t)
	if len(rows) != 57 {
		t.Errorf("%d rows", len(rows))
	}
	used := make(map[originalRow]bool)
	for _, cells := range rows {
		original := originalRow{cells[0], cells[1], cells[2], cells[3]}
		if decided[original] != "" {
			used[original] = true
			continue
		}
		events := eventsOf[original.condition]
		if events == nil {
			events = []event{event(original.condition)}
		}
		for _, e := range events {
			checkRow(t, original, e)
		}
	}
	for row := range decided {
		if !used[row] {
			t.Errorf("no row of the original: %v", row)
		}
	}
}

func checkRow(t *testing.T, original originalRow, e event) {
	t.Helper()
	if e == eventConflict && original.from == "Activating" || e == eventNotFound && original.from == "Registering" && original.to == "fail" {
		return // it has a row of its own
	}
	to, actions, ok := step(state(original.from), e)
	if !ok || to != state(original.to) {
		t.Errorf("%v: on %s ours leads to %q, %t", original, e, to, ok)
	}
	wanted := make(map[action]bool)
	for text := range strings.SplitSeq(original.actions, ", ") {
		if text != "-" {
			wanted[action(text)] = true
		}
	}
	for _, a := range actions {
		if !wanted[a] && added[a] == "" {
			t.Errorf("%v: on %s ours does %q, without a reason", original, e, a)
		}
		delete(wanted, a)
	}
	for a := range wanted {
		t.Errorf("%v: on %s ours does not %q", original, e, a)
	}
}

// Every state of the original's tables is one of ours.
func TestEveryStateOfTheOriginal(t *testing.T) {
	states, rows := readTables(t)
	if len(states) != 17 {
		t.Errorf("%d states", len(states))
	}
	ours := allStates()
	for _, cells := range states {
		if !ours[state(cells[0])] {
			t.Errorf("%q is an unknown state", cells[0])
		}
	}
	for _, cells := range rows {
		for _, name := range cells[:2] {
			if name != "Aborted" && !ours[state(name)] {
				t.Errorf("%q is an unknown state", name)
			}
		}
	}
}

func allStates() map[state]bool {
	states := make(map[state]bool)
	for _, r := range table {
		states[r.from], states[r.to] = true, true
	}
	return states
}

// allEvents has all events.
var allEvents = []event{
	eventBegin, eventOK, eventCreated, eventAccepted, eventNoContent, eventConflict, eventNotFound,
	eventRefused, eventPlaceLost, eventFailed, eventStale, eventSignal, eventRelease, eventRefresh, eventTimeout,
	eventRenew, eventActivate, eventRetry, eventLeaseOver,
}

// running has the running timers of a state, by the action that stops them, and whether a request is under way.
type running struct {
	timers  map[action]bool
	request bool
}

var timerOf = map[action]action{
	startTimeout: stopTimeout, startEndTimeout: stopTimeout, startActivate: stopActivate,
	startRenew: stopRenew, startRetry: stopRetry, startLease: stopLease,
}

var fires = map[event]action{
	eventTimeout: stopTimeout, eventActivate: stopActivate, eventRenew: stopRenew,
	eventRetry: stopRetry, eventLeaseOver: stopLease,
}

func isAnswer(e event) bool { return strings.HasPrefix(string(e), "response") }

// after returns the timers and the request after an event and its actions, or an error.
func (r running) after(e event, actions []action) (running, error) {
	next := running{maps.Clone(r.timers), r.request && !isAnswer(e)}
	delete(next.timers, fires[e])
	for _, a := range actions {
		switch {
		case strings.HasPrefix(string(a), "send"):
			if next.request {
				return next, fmt.Errorf("%q while a request is under way", a)
			}
			next.request = true
		case a == dropRequest:
			if !next.request {
				return next, fmt.Errorf("nothing to drop")
			}
			next.request = false
		case timerOf[a] != "":
			next.timers[timerOf[a]] = true
		case strings.HasPrefix(string(a), "delete"):
			if !next.timers[a] {
				return next, fmt.Errorf("%q, which does not run", a)
			}
			delete(next.timers, a)
		}
	}
	return next, nil
}

func (r running) String() string {
	parts := []string{}
	for timer := range r.timers {
		parts = append(parts, strings.TrimPrefix(string(timer), "delete "))
	}
	if r.request {
		parts = append(parts, "request")
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// accompanied returns the timers and the request of each reachable state. It is the same on every path to it.
func accompanied(t *testing.T) map[state]running {
	t.Helper()
	seen := map[state]running{stateNew: {timers: map[action]bool{}}}
	for queue := []state{stateNew}; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		for _, e := range allEvents {
			to, actions, ok := step(from, e)
			if !ok {
				continue
			}
			next, err := seen[from].after(e, actions)
			if err != nil {
				t.Errorf("%s, on %s: %v", from, e, err)
			}
			if known, found := seen[to]; !found {
				seen[to] = next
				queue = append(queue, to)
			} else if known.String() != next.String() {
				t.Errorf("%s, on %s: %s comes with %s, and otherwise with %s", from, e, to, next, known)
			}
		}
	}
	return seen
}

// The associated data in the original's table of states match our timers and requests, except for
// the differences listed here with their reasons.
func TestAssociatedData(t *testing.T) {
	const (
		endTimeout = "timeout timer" // to end a claim: see added
		lease      = "lease timer"   // see added
	)
	more := map[state]string{
		stateReleasing: endTimeout, stateRetryingRelease: endTimeout, stateWithdrawing: endTimeout,
		stateRetryingWithdraw: endTimeout, stateAborting: endTimeout, stateRetryingAbort: endTimeout,
		stateActive: lease, stateRenewing: lease, stateRetryingRenew: lease,
	}
	less := map[state]string{stateNew: "timeout timer"} // the original creates it on the way from new
	beside := accompanied(t)
	states, _ := readTables(t)
	for _, cells := range states {
		s, want := state(cells[0]), []string{}
		for data := range strings.SplitSeq(cells[2], ", ") {
			switch {
			case data == "-" || data == less[s]:
			case strings.HasSuffix(data, " request"):
				want = append(want, "request")
			case strings.HasPrefix(data, "retry "):
				want = append(want, "retry timer")
			default:
				want = append(want, data)
			}
		}
		if more[s] != "" {
			want = append(want, more[s])
		}
		slices.Sort(want)
		if got := beside[s].String(); got != strings.Join(want, ", ") {
			t.Errorf("beside %s is %q, want %q", s, got, strings.Join(want, ", "))
		}
	}
	for s := range allStates() {
		if _, found := beside[s]; !found {
			t.Errorf("%s cannot be reached", s)
		}
		if got := beside[s].String(); s.final() && got != "" {
			t.Errorf("beside %s is still %s", s, got)
		}
	}
}

// Every pair is in the table, ignored with a reason, or cannot happen: because its timer does
// not run, because nothing was asked, or because a claim begins once.
func TestEveryPair(t *testing.T) {
	beside := accompanied(t)
	for s := range allStates() {
		for _, e := range allEvents {
			_, row := transitions[pair{s, e}]
			reason, exempt := ignored[pair{s, e}]
			_, _, ok := step(s, e)
			var possible bool
			switch {
			case isAnswer(e):
				possible = beside[s].request
			case fires[e] != "":
				possible = beside[s].timers[fires[e]]
			case e == eventBegin:
				possible = s == stateNew
			default:
				possible = s != stateNew // which lasts for no time
			}
			if ok != possible {
				t.Errorf("%s, on %s: it can happen: %t; it is taken: %t", s, e, possible, ok)
			}
			if row && exempt || exempt && reason == "" {
				t.Errorf("%s, on %s: in the table: %t; ignored because %q", s, e, row, reason)
			}
		}
	}
	for at := range ignored {
		if !allStates()[at.state] || !slices.Contains(allEvents, at.event) {
			t.Errorf("ignored, but unknown: %v", at)
		}
	}
	if len(transitions) != len(table) {
		t.Errorf("%d rows, %d pairs", len(table), len(transitions))
	}
}

// Random events, possible or not: nothing panics, refused events change nothing, final states stay final, at most one
// request is under way, a claim is reported once, and from every state the stopping events lead to an end.
func TestPropertyMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := stateNew, running{timers: map[action]bool{}}
		told := 0
		take := func(e event) {
			next, actions, ok := step(s, e)
			if !ok && (next != s || actions != nil) {
				t.Fatalf("%s, on %s: refused, and yet %s %v", s, e, next, actions)
			}
			if s.final() && (next != s || actions != nil) {
				t.Fatalf("%s, on %s: %s %v", s, e, next, actions)
			}
			if !ok {
				return
			}
			after, err := r.after(e, actions)
			if err != nil {
				t.Fatalf("%s, on %s: %v", s, e, err)
			}
			if after.request != next.asks() {
				t.Fatalf("%s, on %s: %s with a request under way: %t", s, e, next, after.request)
			}
			if slices.Contains(actions, notifyAcquired) {
				told++
			}
			if next.holds() && told != 1 {
				t.Fatalf("%s, on %s: %s, told %d times", s, e, next, told)
			}
			s, r = next, after
		}
		for _, e := range rapid.SliceOf(rapid.SampledFrom(allEvents)).Draw(t, "events") {
			take(e)
		}
		take(eventBegin)
		stop := rapid.SampledFrom([]event{eventSignal, eventRelease}).Draw(t, "stop")
		take(stop)
		take(eventTimeout) // of ending
		if !s.final() {
			t.Fatalf("%s after %s and the end of its time", s, stop)
		}
	})
}

// A server that works brings every claim to its place within a few answers.
func TestPropertyProgress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := stateNew
		for _, e := range rapid.SliceOf(rapid.SampledFrom(allEvents)).Draw(t, "events") {
			s, _, _ = step(s, e)
		}
		s, _, _ = step(s, eventBegin)
		good := map[action]event{
			sendRegister: eventCreated, sendActivate: eventOK, sendRenew: eventOK,
			sendRelease: eventNoContent, sendWithdraw: eventNoContent, sendAbort: eventNoContent,
		}
		for range 5 {
			switch {
			case s.final() || s == stateActive:
				return
			case s == stateWaiting:
				s, _, _ = step(s, eventActivate)
			case s.asks():
				s, _, _ = step(s, good[s.kind()])
			default:
				s, _, _ = step(s, eventRetry)
			}
		}
		t.Fatalf("still %s", s)
	})
}
