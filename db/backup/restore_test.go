package backup_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/internal/claim"
)

// sessions is a Sink that keeps the sessions.
type sessions struct {
	*backup.Checker
	all map[string]claim.Session
}

func (s sessions) Session(one *claim.Session) error {
	s.all[one.ID] = *one
	return s.Checker.Session(one)
}

// TestSessionThatWasEnding: a session whose claims were being ended when the backup was taken is due at once in the restored store, so that the others
// end too: nobody can resume it. Others have their TTL anew.
func TestSessionThatWasEnding(t *testing.T) {
	const lease, ttl = claim.Time(1e15), 3 * time.Hour
	got := sessions{backup.NewChecker(), make(map[string]claim.Session)}
	to := backup.Restored(got, backup.Options{Now: lease})
	if err := to.Begin(backup.Head{Taken: lease, Lease: lease}); err != nil {
		t.Fatal(err)
	}
	how := claim.Ending{Active: claim.Released, Waiting: claim.Withdrawn, Reason: "over", By: "me"}
	for _, s := range []claim.Session{
		{ID: "attached", TTL: ttl, Server: "s", Attached: lease, Version: 1},
		{ID: "ending", TTL: ttl, Deadline: lease + 2e6, Version: 1, Ending: how},
	} {
		if err := to.Session(&s); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.End(backup.Head{Taken: lease, Lease: lease}); err != nil || got.Found > 0 {
		t.Fatal(err, got.Problems)
	}
	if s := got.all["attached"]; s.Deadline != lease.Add(ttl) || s.Server != "" {
		t.Errorf("one that was attached is %+v", s)
	}
	if s := got.all["ending"]; !s.Due(claim.Instant{Lease: lease}) || s.Ending != how {
		t.Errorf("one that was ending is %+v", s)
	}
}
