package committer

import (
	"sync"
	"time"
)

// Health is the state of the database as a committer sees it. Times are by this server's clock.
type Health struct {
	// LastCommit is when the database last took a commit or a beat; zero before the first.
	LastCommit time.Time
	// FailingSince is when the database stopped taking commits; zero while it takes them.
	FailingSince time.Time
	// Err is why the last commit or beat failed; nil while the database takes commits.
	Err error
	// Began is when the transaction or beat under way began; zero if there is none.
	Began time.Time
	// Turned is when the goroutine that commits last went through its loop: the database had answered, or there was
	// nothing to wait for. The gaps are about db.BeatInterval, or as long as a transaction takes.
	Turned time.Time
}

// health has the Health for readers on other goroutines.
type health struct {
	mu  sync.Mutex
	now Health
}

// begin notes that the database is asked for a commit.
func (h *health) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Began = time.Now()
}

// answered notes that the database has answered, whatever the answer was.
func (h *health) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Began, h.now.Turned = time.Time{}, time.Now()
}

// turn notes that the committing goroutine passes through its loop. During a transaction it notes nothing.
func (h *health) turn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now.Began.IsZero() {
		h.now.Turned = time.Now()
	}
}

// commits notes whether the database takes commits.
func (h *health) commits(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Err = err
	switch {
	case err == nil:
		h.now.LastCommit, h.now.FailingSince = time.Now(), time.Time{}
	case h.now.FailingSince.IsZero():
		h.now.FailingSince = time.Now()
	}
}

// Health returns whether the database takes commits, as this committer last saw it. It may be
// called from any goroutine, and never waits for the database.
func (c *Committer) Health() Health {
	c.health.mu.Lock()
	defer c.health.mu.Unlock()
	return c.health.now
}
