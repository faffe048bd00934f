package replica

import (
	"time"

	"github.com/locket-service/locket/db/replica/disk"
)

// verifyInterval is how often the folder is verified.
const verifyInterval = time.Second

// watchFolder verifies the folder, even while nothing is committed. It looks for jumps of the clock, and for room on a
// disk that was full. Each commit and each beat also checks that the folder is still in its place.
func (s *Store) watchFolder() {
	tick := time.NewTicker(verifyInterval)
	defer tick.Stop()
	at, wall := time.Now(), s.clock.wallTime()
	for {
		select {
		case <-s.closed:
			return
		case <-s.broken:
			return
		case <-tick.C:
		}
		err := s.verify()
		if err == nil {
			err = s.startWithRoom()
		}
		if err != nil && !disk.NoFiles(err) {
			s.fail(err)
			return
		}
		nowAt, now := time.Now(), s.clock.wallTime()
		if now.Sub(wall)-nowAt.Sub(at) > leastJump {
			s.unseen.add(wall, now)
		}
		at, wall = nowAt, now
	}
}

func (s *Store) verify() error {
	if err := s.folder.verify(); err != nil {
		return err
	}
	return s.log.Verify()
}
