package dbtest_test

import (
	"cmp"
	"slices"
	"strings"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// infos changes each resource that is read.
func infos(fn func(*db.Resource)) func(*broken) {
	return func(b *broken) {
		b.info = func(list []db.Resource, next string) ([]db.Resource, string) {
			for i := range list {
				fn(&list[i])
			}
			return list, next
		}
	}
}

// pages changes each page of resources in the order of their names.
func pages(fn func(list []db.Resource, next string) ([]db.Resource, string)) func(*broken) {
	return func(b *broken) { b.info = fn }
}

// lines changes each page of contended resources.
func lines(fn func(prefix string, after *db.Contention, list []db.Resource) []db.Resource) func(*broken) {
	return func(b *broken) {
		b.contended = func(prefix string, after *db.Contention, list []db.Resource, err error) ([]db.Resource, error) {
			return fn(prefix, after, list), err
		}
	}
}

var resourceFaults = []fault{
	{"Resources counts no shared holders", infos(func(r *db.Resource) { r.Shared = 0 }), []string{"Resources"}},
	{"Resources counts no waiting claims", infos(func(r *db.Resource) { r.Waiting = 0 }), []string{"Resources"}},
	{"Resources has no version", infos(func(r *db.Resource) { r.Version = 0 }), []string{"Resources"}},
	{"Resources does not say who holds", infos(func(r *db.Resource) { r.First = claim.Claim{} }), []string{"Resources"}},
	{"Resources has the data of holders", infos(func(r *db.Resource) { r.First.Value = "v" }), []string{"Resources"}},
	{"Resources does not say since when the first waits", infos(func(r *db.Resource) { r.WaitsSince = 0 }), []string{"Resources"}},
	{"Resources says that nobody waits since now", infos(func(r *db.Resource) { r.WaitsSince = max(r.WaitsSince, 1) }), []string{"Resources"}},
	{"Resources has free ones", pages(func(list []db.Resource, next string) ([]db.Resource, string) {
		return append(list, db.Resource{Row: claim.Row{Resource: "free"}}), next
	}), []string{"Resources", "ResourcesMixed"}},
	{"Resources ends with its first page", pages(func(list []db.Resource, _ string) ([]db.Resource, string) { return list, "" }), []string{"ResourcesMixed"}},
	{"Resources goes on behind the last live one", pages(func(list []db.Resource, next string) ([]db.Resource, string) {
		if len(list) == 0 {
			return list, ""
		}
		return list, list[len(list)-1].Resource
	}), []string{"ResourcesMixed"}},
	{"Resources has all that come after the prefix", func(b *broken) {
		b.contended = func(_ string, after *db.Contention, list []db.Resource, err error) ([]db.Resource, error) {
			if after == nil && err == nil {
				list = append(list, db.Resource{Row: claim.Row{Resource: "\U0010ffff other", Waiting: 1}})
			}
			return list, err
		}
	}, []string{"Resources", "ResourcesMixed"}},
	{"Resources goes on at the beginning of a long name", func(b *broken) {
		b.after = func(after string) string { return after[:min(len(after), 1000)] }
	}, []string{"ResourcesBehind"}},
	{"Contended is in the order of names", lines(func(_ string, _ *db.Contention, list []db.Resource) []db.Resource {
		slices.SortFunc(list, func(a, b db.Resource) int { return cmp.Compare(a.Resource, b.Resource) })
		return list
	}), []string{"ResourcesMixed"}},
	{"Contended orders names of as many backwards", lines(func(_ string, _ *db.Contention, list []db.Resource) []db.Resource {
		slices.SortFunc(list, func(a, b db.Resource) int {
			return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), strings.Compare(b.Resource, a.Resource))
		})
		return list
	}), []string{"ResourcesMixed"}},
	{"Contended begins anew with as many", lines(func(_ string, after *db.Contention, list []db.Resource) []db.Resource {
		return slices.DeleteFunc(list, func(r db.Resource) bool { return after != nil && r.Waiting == after.Waiting })
	}), []string{"ResourcesMixed"}},
	{"Announce forgets the host", func(b *broken) { b.announce = func(m *db.Member, _ *bool) { m.Host = "" } }, []string{"Members"}},
	{"Announce forgets the version", func(b *broken) { b.announce = func(m *db.Member, _ *bool) { m.Version = "" } }, []string{"Members"}},
	{"Announce forgets when it was started", func(b *broken) { b.announce = func(m *db.Member, _ *bool) { m.Started = 0 } }, []string{"Members", "MembersOfAll"}},
	{"Announce forgets nobody", func(b *broken) { b.announce = func(_ *db.Member, leaves *bool) { *leaves = false } }, []string{"Members", "MembersOfAll"}},
	{"Members are in no order", func(b *broken) {
		b.members = func(list []db.Member) []db.Member { slices.Reverse(list); return list }
	}, []string{"MembersOfAll"}},
	{"Members shows one", func(b *broken) {
		b.members = func(list []db.Member) []db.Member { return list[:min(1, len(list))] }
	}, []string{"MembersOfAll"}},
	{"Members were seen at once", func(b *broken) {
		b.members = func(list []db.Member) []db.Member {
			for i := range list {
				list[i].Seen = list[0].Seen
			}
			return list
		}
	}, []string{"MembersOfAll"}},
	{"Contended leaves out what is too much", func(b *broken) {
		b.contended = func(_ string, _ *db.Contention, list []db.Resource, _ error) ([]db.Resource, error) { return list, nil }
	}, []string{"ContendedTooMany"}},
}
