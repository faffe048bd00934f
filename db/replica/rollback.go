package replica

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// A folder that was rolled back to an older state misses later tokens and holders. As after a restore, new tokens start
// above any lost one, and a quarantine follows: nothing is granted until every lost lease has ended. The leases in the
// folder do not end before that either (claim.Instant.DueBefore), because they may have been renewed.

// compareWitness finds out whether the log is shorter than the witness noted.
func (s *Store) compareWitness() {
	var err error
	if s.witness, err = openWitness(s.options.Witness, s.folder.node); err != nil {
		s.options.Log.Warn("nothing can be noted outside the data folder, so a rollback of the folder may go unnoticed", "error", err)
	}
	if last := s.log.Last(); s.witness.entry > last {
		s.folder.rolledBack = fmt.Sprintf("its log ends at entry %d, and had entry %d", last, s.witness.entry)
	}
}

// startRolledBack raises the floor and starts the quarantine if the folder was rolled back.
func (s *Store) startRolledBack() error {
	reason, now := s.folder.rolledBack, s.clock.wallTime()
	if reason == "" {
		return nil
	}
	if now < s.wall { // lost tokens may be higher than any known one
		return fmt.Errorf("%w: %s was rolled back to an older state (%s), and the clock of this machine (%s) is behind the last commit in it (%s): set the clock right",
			ErrFolder, s.folder.path, reason, now.Std().Format(time.RFC3339), s.wall.Std().Format(time.RFC3339))
	}
	longest, err := s.history.LongestTTL()
	if err != nil {
		return err
	}
	floor, quarantine := s.raise(reason, s.state.Lease, s.witness.version, longest)
	return s.appendFirst(&record.Record{Header: record.Header{Wall: now, Lease: s.state.Lease}, Floor: floor, Quarantine: quarantine})
}

// raise returns the floor of new tokens, and the end of a quarantine that starts at a lease time. Both cover version and ttl beside the versions
// and TTLs of the state.
func (s *Store) raise(reason string, begin claim.Time, version uint64, ttl time.Duration) (floor uint64, quarantine claim.Time) {
	lasts := min(max(ttl, s.state.LongestTTL(), backup.LeastQuarantine), backup.MostQuarantine)
	floor = backup.Floor(s.clock.wallTime(), max(version, s.state.Top()))
	s.options.Log.Error("the database was rolled back to an older state: as after a restore, tokens continue above all lost ones, and nothing is granted for a while",
		"reason", reason, "tokens_above", floor, "nothing_granted_for", lasts)
	return floor, begin.Add(lasts)
}

// rollbackOf is raise for versions that clients know and the store does not: 0 if none of them can have been lost. The TTLs of ended claims are
// looked up beside the commits.
func (s *Store) rollbackOf(known []uint64) (floor uint64, quarantine claim.Time) {
	version := uint64(0)
	for _, v := range known {
		if s.unseen.has(v) {
			version = max(version, v)
		}
	}
	if version == 0 {
		return 0, 0
	}
	began := s.clock.last()
	s.working.Go(func() { s.extendQuarantine(began) })
	return s.raise(fmt.Sprintf("a client knows version %d of a resource", version), began, version, 0)
}

// unseen are periods, by the clock of this machine, that this run of the store has not seen: between its last record and its start, and jumps
// of the clock, since the whole machine with its memory may have been rolled back. Versions follow the clock, so a lost version lies in one of
// these periods. A version outside them was never given.
type unseen struct {
	mu    sync.Mutex
	times []period
}

type period struct{ from, to claim.Time }

// maxUnseen is how many periods are kept, and leastJump how far a clock jumps at least.
const (
	maxUnseen = 16
	leastJump = 5 * time.Second
	// aYear is how long before the first start of a store its lost predecessor may have given versions.
	aYear = 365 * 24 * time.Hour
)

func (u *unseen) add(from, to claim.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.times = append(u.times, period{from, to})
	u.times = u.times[max(0, len(u.times)-maxUnseen):]
}

func (u *unseen) has(version uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.ContainsFunc(u.times, func(p period) bool { return uint64(max(0, p.from)) < version && version <= uint64(max(0, p.to)) })
}

// beforeOpen is the time before the store was opened.
func (s *Store) beforeOpen() (from, to claim.Time) {
	to = s.clock.wallTime()
	switch {
	case s.folder.fresh:
		return to.Add(-aYear), to
	case s.wall == 0: // everything is in the snapshot
		return claim.Time(min(s.state.Top(), math.MaxInt64)), to
	}
	return s.wall, to
}

// extendQuarantine has a quarantine last for the longest TTL that the history knows.
func (s *Store) extendQuarantine(began claim.Time) {
	longest, err := s.history.LongestTTL()
	if err == nil {
		err = s.write(context.Background(), func(d decision) (*record.Record, error) {
			to := began.Add(min(longest, backup.MostQuarantine))
			if to <= s.state.Quarantine {
				return nil, nil
			}
			return &record.Record{Header: record.Header{Wall: d.now.Wall}, Quarantine: to}, nil
		})
	}
	if err != nil {
		s.options.Log.Error("the quarantine may be too short for claims that have ended", "error", err)
	}
}
