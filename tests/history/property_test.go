package history_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/history"
)

// The rules explain every history of a server that keeps them.
func TestRunsAreExplained(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := runServer(t).check(); err != nil {
			t.Fatal(err)
		}
	})
}

// So they do if some of the answers are lost.
func TestLostAnswersAreExplained(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := runServer(t)
		for i := range r.ops {
			switch op := &r.ops[i]; {
			case op.Resource == "": // of a session: an unanswered request shows nothing
			case rapid.IntRange(0, 3).Draw(t, "lost") == 0:
				op.Return, op.Output = history.Forever, unanswered
			}
		}
		if err := history.Check(r.stored, r.ops); err != nil {
			t.Fatal(err)
		}
	})
}

type op = history.Operation

// mutations change one answer, or one event, in a way that no order explains. They report whether there was one to
// change.
var mutations = map[string]func(*rapid.T, run) bool{
	"a token that another grant has": func(t *rapid.T, r run) bool {
		return mix(t, r.ops, showsToken, func(a *out, other out) { a.Token = other.Token })
	},
	"a version that another change has": func(t *rapid.T, r run) bool {
		return mix(t, r.ops, showsClaim, func(a *out, other out) { a.Version = other.Version })
	},
	"a token that nobody has": func(t *rapid.T, r run) bool {
		return change(t, r.ops, showsToken, func(a *out) { a.Token += uint64(rapid.IntRange(1, 10).Draw(t, "more")) })
	},
	"a token that is not shown": func(t *rapid.T, r run) bool {
		return change(t, r.ops, func(o op) bool { return showsToken(o) && o.Session == "" }, func(a *out) { a.Token = 0 })
	},
	"holds, and is said to wait": func(t *rapid.T, r run) bool {
		return change(t, r.ops, has(claim.Active), func(a *out) { a.Status = claim.Waiting })
	},
	"waits, and is said to hold": func(t *rapid.T, r run) bool {
		return change(t, r.ops, has(claim.Waiting), func(a *out) { a.Status, a.Token = claim.Active, a.Version })
	},
	"a status that nobody asked for": func(t *rapid.T, r run) bool {
		return change(t, r.ops, showsClaim, func(a *out) { a.Status = claim.Revoked })
	},
	"a holder that there is not": func(t *rapid.T, r run) bool {
		return change(t, r.ops, func(o op) bool { return o.Refused == history.Collision && o.Session == "" }, func(a *out) { a.Holder = "somebody else" })
	},
	"a holder that is not named": func(t *rapid.T, r run) bool {
		return change(t, r.ops, func(o op) bool { return o.Holder != "" && o.Session == "" }, func(a *out) { a.Holder = "" })
	},
	"a refusal that nobody got": func(t *rapid.T, r run) bool {
		return change(t, r.ops, showsClaim, func(a *out) { *a = out{Refused: history.IDTaken} })
	},
	"a claim that nobody made": func(t *rapid.T, r run) bool {
		return change(t, r.ops, func(o op) bool { return o.ID == "nobody" && o.Output == notFound }, func(a *out) { *a = released })
	},
	"an event that is left out": func(t *rapid.T, r run) bool {
		return retell(t, r, isChange, func(all []history.Report, i int) []history.Report { return slices.Delete(all, i, i+1) })
	},
	"an event that comes again": func(t *rapid.T, r run) bool {
		return retell(t, r, isChange, func(all []history.Report, i int) []history.Report {
			again := all[i]
			again.Answer = false
			return append(all, again)
		})
	},
	"an answer that was so once": func(t *rapid.T, r run) bool {
		return retell(t, r, func(all []history.Report, i int) bool {
			later := func(t history.Report) bool { return t.Resource == all[i].Resource && t.Version > all[i].Version }
			return all[i].After != 0 && slices.ContainsFunc(all[i+1:], later)
		}, func(all []history.Report, i int) []history.Report {
			again := all[i]
			again.Before, again.Answer = again.After, true
			return append(all, again)
		})
	},
	"an event with another token": func(t *rapid.T, r run) bool {
		return retell(t, r, func(all []history.Report, i int) bool { return all[i].Token != 0 }, func(all []history.Report, i int) []history.Report {
			all[i].Token++
			return all
		})
	},
	"events in another order": func(t *rapid.T, r run) bool {
		return retell(t, r, func(all []history.Report, i int) bool {
			return i > 0 && !all[i].Answer && !all[i-1].Answer && all[i].Resource == all[i-1].Resource
		}, func(all []history.Report, i int) []history.Report {
			all[i], all[i-1] = all[i-1], all[i]
			return all
		})
	},
	"a watch without what was live": func(t *rapid.T, r run) bool {
		for _, w := range r.watches {
			if len(w.Had) > 0 {
				w.Had = w.Had[1:]
				return true
			}
		}
		return false
	},
}

func showsClaim(o op) bool { return o.Version != 0 }
func showsToken(o op) bool { return showsClaim(o) && o.Token != 0 }

func has(s claim.Status) func(op) bool { return func(o op) bool { return o.Status == s } }

func isChange(all []history.Report, i int) bool {
	return all[i].Claim != "" && all[i].Before != all[i].After
}

// A history with one wrong answer or report is refused.
func TestMutationsAreRefused(t *testing.T) {
	for name, mutate := range mutations {
		t.Run(name, func(t *testing.T) {
			tried := 0
			rapid.Check(t, func(t *rapid.T) {
				r := runServer(t)
				if !mutate(t, r) {
					return
				}
				tried++
				if r.check() == nil {
					t.Fatalf("the rules explain %+v", r)
				}
			})
			if tried == 0 {
				t.Error("there was nothing to change")
			}
		})
	}
}

// mix changes an answer by one about another claim.
func mix(t *rapid.T, all ops, is func(op) bool, to func(a *out, other out)) bool {
	o := pick(t, all, is)
	if o == nil {
		return false
	}
	other := pick(t, all, func(p op) bool {
		return is(p) && p.Resource == o.Resource && p.Version != o.Version && p.Token != o.Token
	})
	if other == nil {
		return false
	}
	to(&o.Output, other.Output)
	return true
}

// change changes the answer of one of the operations that may be changed.
func change(t *rapid.T, all ops, may func(op) bool, to func(*out)) bool {
	o := pick(t, all, may)
	if o == nil {
		return false
	}
	to(&o.Output)
	return true
}

// pick returns one of the operations that will do, or nil.
func pick(t *rapid.T, all ops, will func(op) bool) *op {
	var picked []*op
	for i := range all {
		if will(all[i]) {
			picked = append(picked, &all[i])
		}
	}
	if len(picked) == 0 {
		return nil
	}
	return rapid.SampledFrom(picked).Draw(t, "which")
}

// retell changes one event of a session or a watch, at a place where that may be.
func retell(t *rapid.T, r run, may func([]history.Report, int) bool, to func([]history.Report, int) []history.Report) bool {
	type place struct {
		reports *[]history.Report
		i       int
	}
	var places []place
	add := func(all *[]history.Report) {
		for i := range *all {
			if may(*all, i) {
				places = append(places, place{all, i})
			}
		}
	}
	for _, s := range r.streams {
		add(&s.Reports)
	}
	for _, w := range r.watches {
		if w.Synced { // another one may have started later
			add(&w.Reports)
		}
	}
	if len(places) == 0 {
		return false
	}
	at := rapid.SampledFrom(places).Draw(t, "where")
	*at.reports = to(*at.reports, at.i)
	return true
}
