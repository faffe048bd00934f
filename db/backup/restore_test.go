package backup_test

import (
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/internal/rules/claim"
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

// TestSessionThatWasEnding: a session whose claims were being ended when the backup was taken is due at once in the
// restored store, so that the rest of its claims end too: nobody can resume it. Other sessions get their full TTL
// again.
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

// rows is a Sink that keeps the versions of resources, and the floor.
type rows struct {
	*backup.Checker
	versions map[string]uint64
	floor    uint64
}

func (r *rows) Row(row backup.Row) error {
	r.versions[row.Resource] = row.Version
	return nil
}

func (r *rows) End(h backup.Head) error {
	r.floor = h.Floor
	return nil
}

// TestClockBehindBackup: where the clock is behind the backup nobody knows which tokens were given since. Then there is a restore only above a floor
// that the operator names, which must be plausible.
func TestClockBehindBackup(t *testing.T) {
	const taken = claim.Time(1_790_000_000_000_000)
	for name, test := range map[string]struct {
		options backup.Options
		refused string
	}{
		"the clock is right":            {backup.Options{Now: taken}, ""},
		"behind":                        {backup.Options{Now: taken - 1}, "behind the backup"},
		"far behind":                    {backup.Options{Now: 0}, "behind the backup"},
		"behind, with a floor":          {backup.Options{Now: taken - 1e12, Floor: uint64(taken) + 5e12}, ""},
		"a floor below the backup":      {backup.Options{Now: taken - 1e12, Floor: uint64(taken)}, "is not above the time of the backup"},
		"a floor that leaves no room":   {backup.Options{Now: taken, Floor: 1 << 62}, "is higher than"},
		"the clock is right, a floor":   {backup.Options{Now: taken + 1, Floor: uint64(taken) + 5e12}, ""},
		"the clock is right, a bad one": {backup.Options{Now: taken + 1, Floor: 1}, "is not above the time of the backup"},
	} {
		got := &rows{backup.NewChecker(), make(map[string]uint64), 0}
		to := backup.Restored(got, test.options)
		err := to.Begin(backup.Head{Taken: taken, Lease: taken})
		if test.refused != "" {
			if err == nil || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil {
			err = to.Row(backup.Row{Row: claim.Row{Resource: "r", Version: uint64(taken) - 7}})
		}
		if err == nil {
			err = to.End(backup.Head{Taken: taken, Lease: taken})
		}
		if least := max(test.options.Floor, uint64(taken)); err != nil || got.versions["r"] < least || got.floor < least {
			t.Errorf("%s: a version of %d, a floor of %d, below %d: %v", name, got.versions["r"], got.floor, least, err)
		}
	}
}
