package committer

import (
	"time"

	"github.com/locket-service/locket/db"
)

// service is for how long this server has been in service without a break, by its own
// clock. Beats and commits that succeed are the evidence: each covers the time from its begin
// to its end, and the time between two of them is covered if it is no longer than the time
// between two beats may be.
type service struct {
	since, until time.Time
	beat         time.Time // the begin of the last beat that succeeded
	failed       bool      // something failed since
}

// longestEvidence is the longest time that one commit is evidence for: one that takes longer
// may be one during which this process, or the database, was stopped.
const longestEvidence = 5 * time.Second

// succeeded notes a beat or a commit that succeeded.
func (s *service) succeeded(begin, end time.Time) {
	switch {
	case end.Sub(begin) > longestEvidence:
		s.since = end
	case s.since.IsZero(), begin.Sub(s.until) > db.MaxSilence:
		s.since = begin
	}
	s.until = end
}

// fail notes a beat or a commit that failed: there is a break.
func (s *service) fail() { *s = service{failed: true} }

// beats notes a beat that succeeded.
func (s *service) beats(begin, end time.Time) {
	s.failed = false
	s.succeeded(begin, end)
	s.beat = begin
}

// length returns for how long the server has been in service at a moment, since its last beat
// at the most.
func (s *service) length(now time.Time) time.Duration {
	if s.beat.IsZero() || now.Sub(s.until) > db.MaxSilence {
		return 0
	}
	begin := s.since
	if s.beat.After(begin) {
		begin = s.beat
	}
	return now.Sub(begin)
}
