package mysql

import (
	"testing"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
)

// TestIdentityClaims: rows are written for identities that are counted only, and do not outlast the claims.
func TestIdentityClaims(t *testing.T) {
	s := open(t, fixtures.MySQL(t))
	if err := s.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	do := func(counted []string, cmds ...claim.Command) {
		t.Helper()
		err := s.Transact(t.Context(), func(tx db.Tx) error {
			_, err := db.ExecuteCounting(tx, counted, cmds, func(queues *claim.Queues) {
				for _, cmd := range cmds {
					if _, err := queues.DoFor(claim.Caller{Identity: "cert:a"}, cmd); err != nil {
						t.Error(err)
					}
				}
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := func(want int) {
		t.Helper()
		got := 0
		err := s.reader.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM identity_claims").Scan(&got)
		if err != nil || got != want {
			t.Errorf("%d rows, %v; want %d", got, err, want)
		}
	}
	lock := func(id string) claim.Command {
		return claim.Acquire{ID: id, Resource: "of " + id, Owner: "o", TTL: time.Hour}
	}
	do(nil, lock("not counted"))
	rows(0)
	do([]string{"cert:b"}, lock("another one is"))
	rows(0)
	do([]string{"cert:a"}, lock("1"), lock("2"), lock("3"))
	rows(3)
	do(nil, claim.End{ID: "1"})
	rows(3)
	do([]string{"cert:a"}, lock("4")) // who counts forgets
	rows(3)
	do(nil, claim.End{ID: "2"}, claim.End{ID: "3"})
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune(t.Context(), now.Wall.Add(time.Hour), 1_000_000); err != nil {
		t.Fatal(err)
	}
	rows(1)
}
