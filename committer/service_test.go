package committer

import (
	"testing"
	"time"

	"github.com/locket-service/locket/db"
)

// at is a moment after the service began.
func at(d time.Duration) time.Time { return time.Unix(1_700_000_000, 0).Add(d) }

const sec = time.Second

func TestService(t *testing.T) {
	type commit struct{ begin, end time.Duration }
	for name, c := range map[string]struct {
		commits []commit
		fails   bool
		now     time.Duration
		want    time.Duration
	}{
		"idle, between two beats":           {nil, false, db.BeatInterval, db.BeatInterval},
		"idle, and a beat is late":          {nil, false, db.MaxSilence, db.MaxSilence},
		"stopped while idle":                {nil, false, time.Minute, 0},
		"one slow commit":                   {[]commit{{sec / 10, 2 * sec}}, false, 2 * sec, 2 * sec},
		"slow commits, one after the other": {[]commit{{0, 2 * sec}, {2 * sec, 4 * sec}}, false, 4*sec + sec/10, 4*sec + sec/10},
		"stopped between two commits":       {[]commit{{0, sec}, {5 * sec, 6 * sec}}, false, 6 * sec, sec},
		"stopped after a commit":            {[]commit{{0, 2 * sec}}, false, 4 * sec, 0},
		"stopped during a commit":           {[]commit{{0, time.Minute}}, false, time.Minute, 0},
		"a commit failed":                   {[]commit{{0, sec}}, true, sec, 0},
	} {
		var s service
		s.beats(at(0), at(0))
		for _, commit := range c.commits {
			s.succeeded(at(commit.begin), at(commit.end))
		}
		if c.fails {
			s.fail()
		}
		if got := s.length(at(c.now)); got != c.want || s.failed != c.fails {
			t.Errorf("%s: in service for %s, failed %t, want %s", name, got, s.failed, c.want)
		}
	}
}

// What was in service before a beat has been told with that beat.
func TestServiceSinceTheLastBeat(t *testing.T) {
	var s service
	for n := range 100 {
		s.beats(at(time.Duration(n)*db.BeatInterval), at(time.Duration(n)*db.BeatInterval))
	}
	if got := s.length(at(100 * db.BeatInterval)); got != db.BeatInterval {
		t.Errorf("in service for %s", got)
	}
}
