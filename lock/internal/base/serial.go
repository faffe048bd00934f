package base

import "sync"

// Serial calls functions one after the other, in the order in which they were added. It has a
// goroutine only while there is something to call, so it needs no end.
type Serial struct {
	mu    sync.Mutex
	tasks []func()
	busy  bool
}

// Add has a function called later, and returns at once.
func (s *Serial) Add(task func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = append(s.tasks, task)
	if !s.busy {
		s.busy = true
		go s.run()
	}
}

// Flush returns when all that was added has been called.
func (s *Serial) Flush() {
	done := make(chan struct{})
	s.Add(func() { close(done) })
	<-done
}

func (s *Serial) run() {
	for {
		s.mu.Lock()
		tasks := s.tasks
		s.tasks = nil
		s.busy = len(tasks) > 0
		s.mu.Unlock()
		if len(tasks) == 0 {
			return
		}
		for _, task := range tasks {
			task()
		}
	}
}
