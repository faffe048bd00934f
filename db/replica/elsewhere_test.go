package replica_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestIncompleteServer: a server that has joined with a snapshot, and does not have the ended claims yet, answers as the others do: reads,
// lists, and requests that are repeated, also when it decides. It says so when the servers that have the claims do not answer.
func TestIncompleteServer(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		const claims = 30
		stop := c.servers[0].beats() // it goes on to decide
		c.servers[0].endSome(0, claims)
		for _, s := range c.servers {
			if err := errors.Join(s.store.Snapshot(), s.store.Announce(c.Context(), db.Member{Name: fmt.Sprint("server-", s.n)}, false)); err != nil {
				c.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // the log is trimmed
		late := c.server()
		late.join(c)
		if late.store.HistoryComplete() {
			c.Fatal("its history is complete")
		}
		want := c.servers[0].answers(claims)
		if got := late.answers(claims); !reflect.DeepEqual(got, want) {
			c.Errorf("it answers %v, want %v", got, want)
		}
		page := db.Filter{After: &db.Cursor{ID: "3"}, Limit: 5, Offset: 2, Newest: true, Bytes: 1 << 20, Resource: new("4"), Statuses: []claim.Status{claim.Released, claim.Aborted}}
		got, _, err1 := late.store.List(c.Context(), page)
		all, _, err2 := c.servers[1].store.List(c.Context(), page)
		if err := errors.Join(err1, err2); err != nil || !reflect.DeepEqual(got, all) {
			c.Errorf("it lists %v, want %v (%v)", got, all, err)
		}
		c.servers[0].cut, c.servers[1].cut = true, true
		_, _, _, err := late.store.Get(c.Context(), "7", 0)
		_, _, err2 = late.store.List(c.Context(), db.Filter{})
		for _, err := range []error{err, err2} {
			if !errors.Is(err, db.ErrUnavailable) || !strings.Contains(err.Error(), "server server-1") {
				c.Errorf("without the others: %v", err)
			}
		}
		if _, _, err := late.store.List(c.Context(), db.Filter{Statuses: []claim.Status{claim.Active}}); err != nil {
			c.Errorf("live claims without the others: %v", err)
		}
		c.servers[0].cut, c.servers[1].cut = false, false
		c.servers[1].log.Fail(func(op string) error {
			if op == "raise" {
				return errNetwork
			}
			return latency(op)
		}, nil)
		stop()
		c.servers[0].stop(false)
		defer late.beats()()
		err = replica.ErrNotDecider
		for n := 0; n < 20 && err != nil; n++ {
			time.Sleep(time.Second)
			err = late.store.Update(c.Context(), func(db.Tx) error { return nil })
		}
		if err != nil {
			c.Fatal("it does not decide: ", err)
		}
		if late.store.HistoryComplete() {
			c.Fatal("its history is complete by now")
		}
		if _, err := db.Transact(c.Context(), late.store, db.Batch{Requests: []claim.Request{{Command: create(7)}}}); err != nil {
			c.Fatal(err)
		}
		if got, _, _, err := late.store.Get(c.Context(), "7", 0); err != nil || got.Status != claim.Released {
			c.Errorf("a repeated request has made claim 7 %s again (%v)", got.Status, err)
		}
	})
}
