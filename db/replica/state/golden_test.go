package state_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/db/dbtest/golden"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/state"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestGoldenSums: the sums of a state stay as they are, and a state that is restored has the same.
func TestGoldenSums(t *testing.T) {
	const at = 1_790_000_000_000_000
	s := state.New()
	_, err := s.Apply(&record.Record{
		Header: record.Header{Wall: at, Lease: at - 1}, Floor: 7, Quarantine: at - 2,
		Claims: []claim.Transition{
			{After: &claim.Claim{ID: "a", Resource: "r", Owner: "o", Status: claim.Active, TTL: time.Hour, Token: at, Version: at + 1, Deadline: at + 2, Created: at - 3}},
			{After: &claim.Claim{ID: "b", Resource: "q", Session: "s", Status: claim.Waiting, Units: claim.Shared, UserData: []byte("{}"), Enqueued: at, Version: at, Created: at}},
		},
		Sessions: []claim.SessionChange{{After: &claim.Session{ID: "s", Secret: []byte("secret"), TTL: time.Minute, Server: "here", Attached: at}}},
		Servers:  []record.Server{{Name: "here", Seen: at}},
		Batches:  []record.Batch{{Origin: record.Origin{Node: 5, Seq: 6}, Outcome: []byte("outcome")}},
		Cuts:     []record.Cut{{Entry: 3, Finished: at, ID: "c"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, golden.Format{Name: "sums-1", Written: fmt.Append(nil, s.Sums()), Again: func([]byte) ([]byte, error) {
		restored := state.New()
		written, _ := record.Append(nil, 0, s.Dump())
		d, err := record.Read(written)
		if err != nil {
			return nil, err
		}
		err = restored.Restore(func(apply func(*record.Decoded) error) error { return apply(d) })
		return fmt.Append(nil, restored.Sums()), err
	}})
}
