package committer

import "sync"

// hub wakes the calls that wait for a claim to leave the line.
type hub struct {
	mu      sync.Mutex
	waiting map[string]map[*subscription]struct{}
	count   int
	stopped chan struct{}
	once    sync.Once
}

// subscription is one call's wait for one claim.
type subscription struct {
	id string
	// news holds the claim as it is now, or nil: look it up.
	news chan *Result
}

func newHub() *hub {
	return &hub{waiting: make(map[string]map[*subscription]struct{}), stopped: make(chan struct{})}
}

func (h *hub) subscribe(id string) *subscription {
	s := &subscription{id: id, news: make(chan *Result, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting[id] == nil {
		h.waiting[id] = make(map[*subscription]struct{})
	}
	h.waiting[id][s] = struct{}{}
	h.count++
	return s
}

func (h *hub) unsubscribe(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting[s.id], s)
	if len(h.waiting[s.id]) == 0 {
		delete(h.waiting, s.id)
	}
	h.count--
}

// notify tells those who await a claim that it has changed; news may be nil.
func (h *hub) notify(id string, news *Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.waiting[id] {
		s.tell(news)
	}
}

// notifyAll makes everybody look.
func (h *hub) notifyAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, subscriptions := range h.waiting {
		for s := range subscriptions {
			s.tell(nil)
		}
	}
}

func (s *subscription) tell(news *Result) {
	select {
	case s.news <- news:
	default: // it is awake already, and will look for itself
	}
}

func (h *hub) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// stop sends everybody away, now and later.
func (h *hub) stop() { h.once.Do(func() { close(h.stopped) }) }
