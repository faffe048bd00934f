package history_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/tests/history"
)

// The rules explain every history of a server that keeps them.
func TestRunsAreExplained(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := history.Check(operations(runServer(t)), checkTime); err != nil {
			t.Fatal(err)
		}
	})
}

// mutations change one answer in a way that no order explains. They report whether there
// was an answer to change.
var mutations = map[string]func(*rapid.T, []entry) bool{
	"a token that another grant has": func(t *rapid.T, all []entry) bool {
		return mix(t, all, entry.showsToken, func(a *out, other out) { a.Token = other.Token })
	},
	"a version that another change has": func(t *rapid.T, all []entry) bool {
		return mix(t, all, entry.showsClaim, func(a *out, other out) { a.Version = other.Version })
	},
	"a token that changes": func(t *rapid.T, all []entry) bool {
		return change(t, all, func(e entry) bool {
			return e.showsToken() && countOf(all, func(o entry) bool { return o.showsToken() && o.request.ID == e.request.ID }) > 1
		}, func(a *out) { a.Token += uint64(rapid.IntRange(1, 10).Draw(t, "more")) })
	},
	"a token that is not shown": func(t *rapid.T, all []entry) bool {
		return change(t, all, entry.showsToken, func(a *out) { a.Token = 0 })
	},
	"holds, and is said to wait": func(t *rapid.T, all []entry) bool {
		return change(t, all, has(claim.Active), func(a *out) { a.Status = claim.Waiting })
	},
	"waits, and is said to hold": func(t *rapid.T, all []entry) bool {
		return change(t, all, has(claim.Waiting), func(a *out) { a.Status, a.Token = claim.Active, a.Version })
	},
	"a status that nobody asked for": func(t *rapid.T, all []entry) bool {
		return change(t, all, entry.showsClaim, func(a *out) { a.Status = claim.Revoked })
	},
	"a holder that there is not": func(t *rapid.T, all []entry) bool {
		return change(t, all, entry.collides, func(a *out) { a.Holder = "somebody else" })
	},
	"a holder that is not named": func(t *rapid.T, all []entry) bool {
		return change(t, all, func(e entry) bool { return e.answer.Holder != "" }, func(a *out) { a.Holder = "" })
	},
	"a refusal that nobody got": func(t *rapid.T, all []entry) bool {
		return change(t, all, entry.showsClaim, func(a *out) { *a = out{Refused: history.IDTaken} })
	},
	"a claim that nobody made": func(t *rapid.T, all []entry) bool {
		return change(t, all, func(e entry) bool { return e.request.ID == "nobody" && e.answer == notFound }, func(a *out) { *a = released })
	},
}

func (e entry) showsClaim() bool { return e.answer.Version != 0 }
func (e entry) showsToken() bool { return e.showsClaim() && e.answer.Token != 0 }
func (e entry) collides() bool   { return e.answer.Refused == history.Collision }

func has(s claim.Status) func(entry) bool {
	return func(e entry) bool { return e.answer.Status == s }
}

// A history of which one answer is wrong is refused.
func TestMutationsAreRefused(t *testing.T) {
	for name, mutate := range mutations {
		t.Run(name, func(t *testing.T) {
			tried := 0
			rapid.Check(t, func(t *rapid.T) {
				all := runServer(t)
				if !mutate(t, all) {
					return
				}
				tried++
				if history.Check(operations(all), checkTime) == nil {
					t.Fatalf("the rules explain %+v", all)
				}
			})
			if tried == 0 {
				t.Error("there was nothing to change")
			}
		})
	}
}

// mix changes an answer by one about another claim.
func mix(t *rapid.T, all []entry, is func(entry) bool, to func(a *out, other out)) bool {
	e := pick(t, all, is)
	if e == nil {
		return false
	}
	other := pick(t, all, func(o entry) bool {
		return is(o) && o.request.ID != e.request.ID && (o.answer.Token == 0 || o.answer.Token != e.answer.Token)
	})
	if other == nil {
		return false
	}
	to(&e.answer, other.answer)
	return true
}

// change changes the answer of one of the operations that may be changed.
func change(t *rapid.T, all []entry, may func(entry) bool, to func(*out)) bool {
	e := pick(t, all, may)
	if e == nil {
		return false
	}
	to(&e.answer)
	return true
}

// pick returns one of the operations that will do, or nil.
func pick(t *rapid.T, all []entry, will func(entry) bool) *entry {
	var picked []*entry
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

func countOf(all []entry, is func(entry) bool) (n int) {
	for _, e := range all {
		if is(e) {
			n++
		}
	}
	return n
}
