package dbtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Crowd fills a store with a few thousand claims in every state, for tests of query plans.
// Claims are "0-0" to "9-399"; resources are "r" with the id of their claim, and "shared 0"
// to "shared 9".
func Crowd(t testing.TB, s db.Store) {
	t.Helper()
	for batch := range 10 {
		var create, end []claim.Command
		for i := range 400 {
			id := fmt.Sprintf("%d-%d", batch, i)
			resource := "r" + id
			if i%4 == 0 {
				resource = fmt.Sprint("shared ", batch)
			}
			create = append(create, claim.Create{
				ID: id, Resource: resource, Owner: fmt.Sprint("o", i%10), TTL: time.Hour, Units: EitherUnits(i), Type: claim.Type(i % 3),
			})
			if i%5 == 0 {
				end = append(end, claim.SetStatus{ID: id, Status: claim.Withdrawn})
			}
		}
		Do(t, s, create...)
		Do(t, s, end...)
	}
}
