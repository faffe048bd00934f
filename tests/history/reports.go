package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Report is one message's report about one claim.
type Report struct {
	Resource, Claim string
	// Before and After are its status before and now, 0 for a claim that is new. Of a session the final
	// statuses are 0.
	Before, After  claim.Status
	Token, Version uint64
	// Answer is set if the message answered a request. Otherwise it is an event.
	Answer bool
}

func (t Report) String() string {
	return fmt.Sprintf("%s: claim %s from %v to %v, token %d, version %d, an answer: %t", t.Resource, t.Claim, t.Before, t.After, t.Token, t.Version, t.Answer)
}

// Stream is the reports to a session over one stream, in their order.
type Stream struct {
	Session string
	// Resumed is set if the session existed before. Had has its claims at that time.
	Resumed bool
	Had     []Report
	Reports []Report
	// Complete is set if it must have reported all changes.
	Complete bool
}

// Watch is the reports to a watch, over one or several streams; each continued after the one before.
type Watch struct {
	Name string
	// Sees are the claims that it watches, nil for all.
	Sees func(*claim.Claim) bool
	// Had are the claims that were live when it began, and Synced says that these were all.
	Had    []Report
	Synced bool
	// Quiet is set if no claim changed while these were read. A claim that changed is only in Reports.
	Quiet   bool
	Reports []Report
	// Complete is set if it must have reported all changes.
	Complete bool
}

// CheckStream returns an error unless the events of a session are changes that happened, in the order of each
// resource's version, each once, without a gap. stored has the final claims of the store.
//
// An event about a grant may come before the answer to its request; the version shows which is later. An answer may
// repeat the last event if there was none since.
func CheckStream(stored []claim.Claim, s *Stream) error {
	mine := func(c *claim.Claim) bool { return c.Session == s.Session }
	truth, err := truthOf(stored, mine)
	if err != nil {
		return err
	}
	byResource, had := group(s.Reports), make(map[string]Report)
	resources := slices.Collect(maps.Keys(byResource))
	for _, t := range s.Had {
		if !truth.has(t) {
			return fmt.Errorf("session %q had what there was not: %v", s.Session, t)
		}
		had[t.Resource] = t
		resources = append(resources, t.Resource)
	}
	if !s.Resumed {
		resources = slices.AppendSeq(resources, maps.Keys(truth.changes))
	}
	for _, resource := range resources {
		reports := byResource[resource]
		err := inOrder(truth, reports, had[resource].Version)
		if err == nil {
			err = chained(reports, had[resource])
		}
		if err == nil && s.Complete {
			err = truth.complete(resource, reports, had[resource], s.Resumed)
		}
		if err != nil {
			return fmt.Errorf("session %q got reports of %q %w\n%s", s.Session, resource, err, list(reports))
		}
	}
	return nil
}

// inOrder checks that the reports are true, and that their versions rise.
func inOrder(truth truth, reports []Report, had uint64) error {
	type saying struct {
		claim   string
		version uint64
	}
	said := make(map[saying]bool)
	highest, event := had, had // the versions of all reports, and of the events only
	for _, t := range reports {
		it := saying{t.Claim, t.Version}
		switch {
		case t.Claim == "": // it has nothing to do with the resource: the rules know when that is true
			continue
		case !truth.has(t):
			return fmt.Errorf("what never was: %v", t)
		case !t.Answer && t.Version <= event:
			return fmt.Errorf("an old event: %v", t)
		case !t.Answer && t.Version < highest:
			return fmt.Errorf("an event that is older than an answer before: %v", t)
		case t.Answer && (said[it] || t.Version == had) && t.Version < highest:
			return fmt.Errorf("what is no longer so: %v", t)
		}
		if !t.Answer {
			event = t.Version
		}
		said[it], highest = true, max(highest, t.Version)
	}
	return nil
}

// chained checks that each change begins where the one before ended.
func chained(reports []Report, had Report) error {
	reports = slices.DeleteFunc(slices.Clone(reports), func(t Report) bool { return t.Claim == "" })
	slices.SortStableFunc(reports, func(a, b Report) int { return cmp.Compare(a.Version, b.Version) })
	now := had.After
	for _, t := range reports {
		if t.Before != now {
			return fmt.Errorf("a change that does not begin with %v: %v", now, t)
		}
		now = t.After
	}
	return nil
}

// CheckWatch returns an error unless a watch reported every change since it began, once, in order. stored has the
// final claims of the store. The watch may report another value of a claim whose status did not change.
func CheckWatch(stored []claim.Claim, w *Watch) error {
	truth, err := truthOf(stored, w.Sees)
	if err != nil {
		return err
	}
	for resource, all := range truth.changes {
		truth.changes[resource] = atOnce(all)
	}
	had, reports := group(w.Had), group(w.Reports)
	for resource := range truth.changes {
		if err := truth.watched(resource, had[resource], reports[resource], w); err != nil {
			return fmt.Errorf("watch %q got reports of %q %w\nat first\n%sand then\n%s", w.Name, resource, err, list(had[resource]), list(reports[resource]))
		}
		delete(reports, resource)
	}
	for _, t := range reports {
		return fmt.Errorf("watch %q got a report of a change that never happened: %v", w.Name, t[0])
	}
	return nil
}

// atOnce returns the changes as a watch reports them: a claim that was granted at once did not wait. Between any other grant and its claim's
// first version there is at least the version of the change that made it possible.
func atOnce(all []event) (reports []event) {
	for _, e := range all {
		if last := len(reports) - 1; e.after == claim.Active && last >= 0 && reports[last].claim == e.claim && reports[last].before == 0 && e.version == reports[last].version+1 {
			e.before = 0
			reports = reports[:last]
		}
		reports = append(reports, e)
	}
	return reports
}

// truth is the sequence of visible changes.
type truth struct {
	claims  map[string]*claim.Claim
	changes map[string][]event // of a resource, in order
}

func truthOf(stored []claim.Claim, sees func(*claim.Claim) bool) (truth, error) {
	var seen []claim.Claim
	for i := range stored {
		if sees == nil || sees(&stored[i]) {
			seen = append(seen, stored[i])
		}
	}
	changes, err := witness(seen)
	t := truth{make(map[string]*claim.Claim), changes}
	for i := range seen {
		t.claims[seen[i].ID] = &seen[i]
	}
	return t, err
}

// has reports whether a claim was ever so with that version. A session hears nothing of how its claims end but
// that they do.
func (tr truth) has(t Report) bool {
	c := tr.claims[t.Claim]
	if c == nil || c.Resource != t.Resource {
		return false
	}
	return slices.ContainsFunc(changes(c), func(e event) bool {
		final := t.After == 0 && e.after.Final()
		return e.version == t.Version && (e.after == t.After || final) && (final || t.Token == tokenOf(e))
	})
}

func tokenOf(e event) uint64 {
	if e.version < e.claim.Token {
		return 0
	}
	return e.claim.Token
}

// complete checks that the last report to a session is the last change. Claims that had ended when it was resumed
// were not reported.
func (tr truth) complete(resource string, reports []Report, had Report, resumed bool) error {
	last := had.Version
	for _, t := range reports {
		last = max(last, t.Version)
	}
	if all := tr.changes[resource]; len(all) > 0 && all[len(all)-1].version > last && (last > 0 || !resumed) {
		return fmt.Errorf("everything but %v", all[len(all)-1])
	}
	return nil
}

// watched checks the reports of a watch about a resource: the values and the changes.
func (tr truth) watched(resource string, had, reports []Report, w *Watch) error {
	var changes []Report
	version := uint64(0)
	for _, t := range reports {
		if t.Version <= version {
			return fmt.Errorf("what is old: %v", t)
		}
		version = t.Version
		c := tr.claims[t.Claim]
		switch {
		case t.Before != t.After:
			changes = append(changes, t)
		case c == nil || t.Token != c.Token || t.Version <= c.Token || c.Status.Final() && t.Version >= c.Version:
			return fmt.Errorf("a value that was never there: %v", t)
		}
	}
	all := tr.changes[resource]
	for _, t := range changes {
		if i, found := slices.BinarySearchFunc(all, t.Version, func(e event, v uint64) int { return cmp.Compare(e.version, v) }); !found || !all[i].is(t) {
			return fmt.Errorf("what never was: %v", t)
		}
	}
	if !w.Complete { // everything after the last
		if len(changes) == 0 {
			return nil
		}
		all = all[:1+slices.IndexFunc(all, func(e event) bool { return e.is(changes[len(changes)-1]) })]
	}
	return begins(all, had, changes, w)
}

// is reports whether a watch's report matches the event.
func (e event) is(t Report) bool {
	return e.version == t.Version && e.claim.ID == t.Claim && e.before == t.Before && e.after == t.After && tokenOf(e) == t.Token
}

// begins checks that a watch reported all last changes since a moment when its first claims were live. A claim that
// was live then and changed while they were read is only in the changes.
func begins(all []event, had, changes []Report, w *Watch) error {
	from := len(all) - len(changes)
	for i := len(all); i > max(0, from); i-- {
		if !all[i-1].is(changes[i-1-from]) {
			return fmt.Errorf("nothing of %v", all[i-1])
		}
	}
	if from < 0 {
		return fmt.Errorf("what came again: %v", changes[0])
	}
	if !w.Synced {
		return nil
	}
	live := make(map[string]event)
	for _, e := range all[:from] {
		if live[e.claim.ID] = e; e.after.Final() {
			delete(live, e.claim.ID)
		}
	}
	for _, t := range had {
		if e, there := live[t.Claim]; !there || e.after != t.After || tokenOf(e) != t.Token || t.Version < e.version {
			return fmt.Errorf("at first that there was %v", t)
		}
		delete(live, t.Claim)
	}
	for _, e := range live {
		if w.Quiet || !slices.ContainsFunc(changes, func(t Report) bool { return t.Claim == e.claim.ID }) {
			return fmt.Errorf("the claims that were live at first are missing: %v", e)
		}
	}
	return nil
}

func group(reports []Report) map[string][]Report {
	by := make(map[string][]Report)
	for _, t := range reports {
		by[t.Resource] = append(by[t.Resource], t)
	}
	return by
}

func list(reports []Report) (text string) {
	for _, t := range reports[max(0, len(reports)-shown):] {
		text += fmt.Sprintln(t)
	}
	return text
}
