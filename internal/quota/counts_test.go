package quota_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/internal/access"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/quota"
)

// creates are requests of identities with a quota, each of which makes a claim.
func creates(identities ...string) (requests []claim.Request) {
	for _, name := range identities {
		caller := access.Caller{Identity: access.Identity{Name: name}, Quota: &access.Quota{Held: 1_000_000}}
		requests = append(requests, claim.Request{Caller: caller, Command: claim.Create{ID: "new", Resource: "r"}})
	}
	return requests
}

// TestLargeCountsAreRare: the claims of an identity that has very many are counted again seldom, and those of one that has few, and is alone, every two
// seconds. What this server changes is in the count at once.
func TestLargeCountsAreRare(t *testing.T) {
	for claims, most := range map[int]int{10: 31, 200_000: 8} {
		synctest.Test(t, func(t *testing.T) {
			var c quota.Counts
			requests, has, counts := creates("cert:a"), claims, 0
			for range 600 {
				needs := c.Of(requests)
				if counts += len(needs.Unknown); len(needs.Unknown) == 0 && needs.Known["cert:a"].Active != has {
					t.Fatalf("%+v are known, it has %d", needs.Known, has)
				}
				has++
				c.Committed(needs, []claim.Transition{{After: &claim.Claim{Identity: "cert:a", Status: claim.Active}}}, map[string]claim.Count{"cert:a": {Active: has}})
				time.Sleep(100 * time.Millisecond)
			}
			if counts > most || counts < 4 {
				t.Errorf("%d claims were counted %d times in a minute", claims, counts)
			}
		})
	}
}

// TestManyCountsTakeTurns: of many identities a transaction counts some again, and those of all have their turn.
func TestManyCountsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c quota.Counts
		var names []string
		has := make(map[string]claim.Count)
		for i := range 100 {
			name := fmt.Sprint("cert:", i)
			names, has[name] = append(names, name), claim.Count{Active: 1000}
		}
		requests, counts := creates(names...), make(map[string]int)
		for n := range 300 {
			needs := c.Of(requests)
			if n > 0 && len(needs.Unknown) > 20 || len(needs.Unknown)+len(needs.Known) != len(names) {
				t.Fatalf("a transaction counts %d, and knows %d", len(needs.Unknown), len(needs.Known))
			}
			for _, name := range needs.Unknown {
				counts[name]++
			}
			c.Committed(needs, nil, has)
			time.Sleep(100 * time.Millisecond)
		}
		for _, name := range names {
			if counts[name] < 3 {
				t.Errorf("%s was counted %d times in half a minute", name, counts[name])
			}
		}
	})
}
