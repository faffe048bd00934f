package replica

import (
	"sync"
	"time"
)

const (
	// hangTimeout is how long the disk may take to write the log. After that it is taken for broken.
	hangTimeout = 5 * time.Second
	// hangStep bounds how much of a pause of the process counts: the disk may have answered, and nobody looked.
	hangStep = hangTimeout / 10
)

// hangTimer calls hung when a write has taken hangTimeout while this process ran.
type hangTimer struct {
	hung func()

	mu    sync.Mutex
	timer *time.Timer
	steps int // that are left; 0 while nothing is written
}

func newHangTimer(hung func()) *hangTimer {
	h := &hangTimer{hung: hung}
	h.timer = time.AfterFunc(hangStep, h.step)
	h.timer.Stop()
	return h
}

// start notes that a write begins, and stop that it has ended.
func (h *hangTimer) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = int(hangTimeout / hangStep)
	h.timer.Reset(hangStep)
}

// stop is described with start.
func (h *hangTimer) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = 0
	h.timer.Stop()
}

// step notes that a step has passed, however long it was.
func (h *hangTimer) step() {
	if h.takeStep() {
		h.hung()
	}
}

func (h *hangTimer) takeStep() (last bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.steps {
	case 0: // it has ended meanwhile
		return false
	case 1:
		h.steps = 0
		return true
	}
	h.steps--
	h.timer.Reset(hangStep)
	return false
}
