package history_test

import (
	"slices"
	"testing"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/history"
)

const (
	unclaimed claim.Status = 0
	waiting                = claim.Waiting
	active                 = claim.Active
)

// event is a report to a session or a watch. answers makes it the answer to a request.
func event(id string, before, after claim.Status, token, version uint64) history.Report {
	return history.Report{Resource: "k", Claim: id, Before: before, After: after, Token: token, Version: version}
}

func answers(t history.Report) history.Report {
	t.Answer = true
	return t
}

type reports []history.Report

// Each kind of violation in the reports to a session is refused, and its correct counterpart accepted.
func TestPlantedEventsOfSessions(t *testing.T) {
	first, second := a("1", exclusive, 9, 10, 20), a("2", exclusive, 21, 31, 40)
	first.Session, second.Session = "s", "s"
	other := a("3", exclusive, 15, 21, 31)
	other.Session, second.Enqueued = "t", 22
	claims := []claim.Claim{first, second, other}
	held := answers(event("1", unclaimed, active, 10, 10))
	gone := answers(event("1", active, unclaimed, 0, 20))
	waits := answers(event("2", unclaimed, waiting, 0, 22))
	granted := event("2", waiting, active, 31, 31)
	ended := event("2", active, unclaimed, 0, 40)
	all := reports{held, gone, waits, granted, ended}
	for _, test := range []struct {
		name         string
		wrong, right reports
	}{
		{"an old hold is reported while another session holds", reports{held, gone, answers(event("1", active, active, 10, 10)), waits, granted, ended}, reports{held, answers(event("1", active, active, 10, 10)), gone, waits, granted, ended}},
		{"an event tells an old hold again", reports{held, gone, event("1", unclaimed, active, 10, 10), waits, granted, ended}, all},
		{"an event comes again", append(slices.Clone(all), ended), all},
		{"a grant comes again after its answer", reports{held, event("1", waiting, active, 10, 10), gone, waits, granted, ended}, all},
		{"an event is left out", reports{held, gone, waits, ended}, all},
		{"the end is left out", reports{held, gone, waits, granted}, all},
		{"an unlock changes nothing", reports{held, answers(event("1", unclaimed, unclaimed, 0, 20)), waits, granted, ended}, reports{held, gone, answers(history.Report{Resource: "k"}), waits, granted, ended}},
		{"the event of the end comes before that of the grant", reports{held, gone, waits, ended, granted}, all},
		{"a grant is reported before the answer that says that it waits, twice", reports{held, gone, granted, waits, granted, ended}, reports{held, gone, granted, waits, ended}},
		{"a token of another grant", reports{held, gone, waits, event("2", waiting, active, 21, 31), ended}, all},
		{"a claim of another session", reports{held, gone, event("3", unclaimed, waiting, 0, 15), waits, granted, ended}, all},
	} {
		t.Run(test.name, func(t *testing.T) {
			stream := func(list reports) *history.Stream {
				return &history.Stream{Session: "s", Reports: list, Complete: true}
			}
			if err := history.CheckStream(claims, stream(test.right)); err != nil {
				t.Errorf("the correct events are refused: %v", err)
			}
			if history.CheckStream(claims, stream(test.wrong)) == nil {
				t.Error("the violation is overlooked")
			}
		})
	}
	resumed := &history.Stream{Session: "s", Resumed: true, Had: reports{event("2", waiting, waiting, 0, 22)}, Reports: reports{granted, ended}, Complete: true}
	if err := history.CheckStream(claims, resumed); err != nil {
		t.Errorf("the events after a resumption are refused: %v", err)
	}
	resumed.Reports = reports{ended}
	if history.CheckStream(claims, resumed) == nil {
		t.Error("an event that is left out after a resumption is overlooked")
	}
	resumed.Reports, resumed.Had = reports{granted, ended}, reports{event("2", active, active, 30, 31)}
	if history.CheckStream(claims, resumed) == nil {
		t.Error("a hold that was never is overlooked")
	}
}

// Each kind of violation in the reports to a watch is refused, and its correct counterpart accepted.
func TestPlantedWatches(t *testing.T) {
	claims := []claim.Claim{a("1", exclusive, 9, 10, 20), a("2", exclusive, 15, 21, 31), a("3", exclusive, 22, 32)}
	all := reports{
		event("1", unclaimed, active, 10, 10), event("2", unclaimed, waiting, 0, 15),
		event("1", active, claim.Released, 10, 20), event("2", waiting, active, 21, 21), event("3", unclaimed, waiting, 0, 22),
		event("2", active, claim.Released, 21, 31), event("3", waiting, active, 32, 32),
	}
	snapshot := reports{event("1", unclaimed, active, 10, 10), event("2", unclaimed, waiting, 0, 15)}
	without := func(i int) reports { return slices.Delete(slices.Clone(all), i, i+1) }
	watch := func(had, list reports) *history.Watch {
		return &history.Watch{Name: "w", Synced: true, Quiet: true, Had: had, Reports: list, Complete: true}
	}
	only := func(id string, list reports) *history.Watch {
		return &history.Watch{Sees: func(c *claim.Claim) bool { return c.ID == id }, Reports: list, Complete: true}
	}
	// Changes come while the live claims are read.
	busy := func(had, list reports) *history.Watch {
		return &history.Watch{Name: "w", Synced: true, Had: had, Reports: list, Complete: true}
	}
	for _, test := range []struct {
		name         string
		wrong, right *history.Watch
	}{
		{"a change is left out", watch(nil, without(3)), watch(nil, all)},
		{"the first change is left out", watch(nil, without(0)), watch(nil, all)},
		{"the last change is left out", watch(nil, all[:6]), &history.Watch{Reports: all[:6]}},
		{"a change comes again", watch(nil, append(slices.Clone(all[:4]), all[3:]...)), watch(nil, all)},
		{"changes come in another order", watch(nil, append(reports{all[1], all[0]}, all[2:]...)), watch(nil, all)},
		{"what was live at first is left out", watch(snapshot[1:], all[2:]), watch(snapshot, all[2:])},
		{"what had ended was live at first", watch(append(snapshot, all[6]), all[2:]), watch(snapshot, all[2:])},
		{"what was live at first comes as an event", watch(snapshot, all[1:]), watch(snapshot, all[2:])},
		{"another status was live at first", watch(reports{event("1", unclaimed, waiting, 0, 9), all[1]}, all[2:]), watch(snapshot, all[2:])},
		{"another status before", watch(nil, append(slices.Clone(all[:6]), event("3", unclaimed, active, 32, 32))), watch(nil, all)},
		{"another token", watch(nil, append(slices.Clone(all[:6]), event("3", waiting, active, 31, 32))), watch(nil, all)},
		{"a value of one who does not hold", watch(nil, append(slices.Clone(all), event("2", active, active, 21, 33))), watch(nil, append(slices.Clone(all), event("3", active, active, 32, 33)))},
		{"a claim that nobody made", watch(nil, append(slices.Clone(all), event("4", unclaimed, waiting, 0, 33))), watch(nil, all)},
		{"what was live at first, and changed then, is left out", watch(snapshot[1:], all[2:]), busy(snapshot[1:], all[2:])},
		{"what was live at first, and did not change, is left out", &history.Watch{Synced: true, Reports: all[4:5]}, &history.Watch{Synced: true, Had: reports{event("2", unclaimed, active, 21, 21)}, Reports: all[4:5]}},
		{"the end comes before what was live", busy(reports{event("2", unclaimed, active, 21, 21)}, all[2:]), busy(snapshot, all[2:])},
		{"a wait of a watched claim among others", only("2", reports{event("2", unclaimed, active, 21, 21), all[5]}), only("2", reports{all[1], all[3], all[5]})},
		{"another's claim", &history.Watch{Sees: func(c *claim.Claim) bool { return c.ID != "2" }, Reports: all}, watch(nil, all)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := history.CheckWatch(claims, test.right); err != nil {
				t.Errorf("the correct watch is refused: %v", err)
			}
			if history.CheckWatch(claims, test.wrong) == nil {
				t.Error("the violation is overlooked")
			}
		})
	}
}
