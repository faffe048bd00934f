package dbtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

// Crowd fills a store with a few thousand claims in every state, for tests of query plans.
// Claims are "0-0" to "9-399"; resources are "r" with the id of their claim, and "shared 0"
// to "shared 9". The claims "0-…" belong to the sessions "session 0" to "session 9" of the servers
// "server 0" and "server 1", and there are a hundred sessions more, half of them detached.
func Crowd(t testing.TB, s db.Store) {
	t.Helper()
	var attached []claim.Command
	for i := range 110 {
		id := fmt.Sprint("session ", i)
		attached = append(attached, attach(id, fmt.Sprint("server ", i%2)))
		if i >= 60 {
			attached = append(attached, claim.Detach{ID: id, Server: fmt.Sprint("server ", i%2), Left: time.Minute})
		}
	}
	Do(t, s, attached...)
	must(t, s.Vouch(t.Context(), "server 0"))
	for batch := range 10 {
		var create, end []claim.Command
		for i := range 400 {
			id := fmt.Sprintf("%d-%d", batch, i)
			resource := "r" + id
			if i%4 == 0 {
				resource = fmt.Sprint("shared ", batch)
			}
			cmd := claim.Create{
				ID: id, Resource: resource, Owner: fmt.Sprint("o", i%10), TTL: time.Hour, Mode: claim.Mode(i % 2), Type: claim.Type(i % 3),
			}
			if batch == 0 {
				cmd.Session, cmd.Server = fmt.Sprint("session ", i%10), fmt.Sprint("server ", i%2)
			}
			create = append(create, cmd)
			if i%5 == 0 {
				end = append(end, claim.SetStatus{ID: id, Status: claim.Withdrawn})
			}
		}
		Do(t, s, create...)
		Do(t, s, end...)
	}
}
