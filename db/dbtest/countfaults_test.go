package dbtest_test

import "github.com/locket-service/locket/internal/rules/claim"

var countFaults = []fault{
	{"counts waiting claims as active", counting(func(c claim.Count, _ string) claim.Count {
		return claim.Count{Active: c.Active + c.Waiting}
	}), []string{"CountsOfIdentities", "CountsOfOtherServers", "CountsLeaveOut"}},
	{"counts claims that have ended", func(b *broken) {
		most := make(map[string]claim.Count)
		counting(func(c claim.Count, identity string) claim.Count {
			most[identity] = claim.Count{Active: max(c.Active, most[identity].Active), Waiting: max(c.Waiting, most[identity].Waiting)}
			return most[identity]
		})(b)
	}, []string{"CountsOfIdentities", "CountsOfOtherServers"}},
	{"counts excluded claims", func(b *broken) {
		b.except = func([]string) []string { return nil }
	}, []string{"CountsLeaveOut"}},
}

// counting is a fault of the counts of identities.
func counting(count func(c claim.Count, identity string) claim.Count) func(b *broken) {
	return func(b *broken) { b.usage = count }
}
