package raft

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/raft/record"
	"github.com/locket-service/locket/internal/claim"
)

// A folder that is an older state of itself lacks what was acknowledged since: tokens that were given, and holders. As after a restore, tokens
// then continue above all that may have been given, and there is a quarantine: nothing is granted until all leases have ended that the folder
// lacks. The leases that it has end no earlier (claim.Instant.DueBefore): they may have been renewed since.

// findOlder finds out whether the log is shorter than it has been on this machine.
func (s *Store) findOlder() {
	var err error
	if s.witness, err = openWitness(s.options.Witness, s.folder.node); err != nil {
		s.options.Log.Warn("nothing can be noted outside the folder of the data: that it was taken back to an older state may go unnoticed", "error", err)
	}
	if last := s.log.Last(); s.witness.entry > last {
		s.folder.older = fmt.Sprintf("its log ends at entry %d, and had entry %d", last, s.witness.entry)
	}
}

// makeUp has a server that starts on an older state do what it must.
func (s *Store) makeUp() error {
	reason, now := s.folder.older, s.clock.wallTime()
	if reason == "" {
		return nil
	}
	if now < s.wall { // then tokens may have been given that are higher than anything known
		return fmt.Errorf("%w: %s is an older state of itself (%s), and the clock of this machine (%s) is behind the last commit in it (%s): set the clock right",
			ErrFolder, s.folder.path, reason, now.Std().Format(time.RFC3339), s.wall.Std().Format(time.RFC3339))
	}
	longest, err := s.history.LongestTTL()
	if err != nil {
		return err
	}
	floor, quarantine := s.distrust(reason, s.state.Lease, s.witness.version, longest)
	return s.proposeFirst(&record.Record{Header: record.Header{Wall: now, Lease: s.state.Lease}, Floor: floor, Quarantine: quarantine})
}

// distrust returns the floor of the tokens, and the end of a quarantine that begins at some lease time. version and ttl are further ones,
// beside the state's.
func (s *Store) distrust(reason string, begin claim.Time, version uint64, ttl time.Duration) (floor uint64, quarantine claim.Time) {
	lasts := min(max(ttl, s.state.LongestTTL(), backup.LeastQuarantine), backup.MostQuarantine)
	floor = backup.Floor(s.clock.wallTime(), max(version, s.state.Top()))
	s.options.Log.Error("the database is an older state of itself: as after a restore, tokens continue above all that were given, and nothing is granted for a while",
		"reason", reason, "tokens_above", floor, "nothing_granted_for", lasts)
	return floor, begin.Add(lasts)
}

// doubt is distrust because of versions that clients have, and that their resources never had: 0 if no version is credible. The TTLs of claims
// that have ended are looked up beside the commits.
func (s *Store) doubt(known []uint64) (floor uint64, quarantine claim.Time) {
	version := uint64(0)
	for _, v := range known {
		if s.unattended.has(v) {
			version = max(version, v)
		}
	}
	if version == 0 {
		return 0, 0
	}
	began := s.clock.last()
	s.working.Go(func() { s.prolong(began) })
	return s.distrust(fmt.Sprintf("a client knows version %d of a resource", version), began, version, 0)
}

// unattended are the periods, by the clock of this machine, that the store knows nothing about: before it was opened, after its last record;
// and while the clock jumped forward, since the whole machine may have been taken back to an older state with its memory. Versions follow
// the clock. So a version that a client knows, and that was lost, is of such a time. Any other one is wrong.
type unattended struct {
	mu    sync.Mutex
	times []period
}

type period struct{ from, to claim.Time }

// maxUnattended is how many periods are kept, and leastJump how far a clock jumps at least.
const (
	maxUnattended = 16
	leastJump     = 5 * time.Second
	// aYear is how long before the first start of a store clients may have got versions of one that was lost.
	aYear = 365 * 24 * time.Hour
)

func (u *unattended) add(from, to claim.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.times = append(u.times, period{from, to})
	u.times = u.times[max(0, len(u.times)-maxUnattended):]
}

func (u *unattended) has(version uint64) bool {
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

// prolong has a quarantine last for the longest TTL that the history knows.
func (s *Store) prolong(began claim.Time) {
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
