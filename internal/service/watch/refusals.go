package watch

import (
	"sync"
	"time"
)

const (
	// refusedNames limits the resources of one second that are counted each. The requests for others are counted
	// together.
	refusedNames = 1000
	// refusedSeconds is how many seconds the counts are kept, for readers that are late.
	refusedSeconds = 15
)

// Refusals counts the refused requests of this server, for each second and resource, while anybody reads the counts.
// Nothing else records refused requests.
type Refusals struct {
	began time.Time

	mu      sync.Mutex
	readers int
	// seconds are the last ones with refusals, the current one last. The others do not change.
	seconds []*refusedSecond
}

type refusedSecond struct {
	number int64 // since the start
	byName map[string]uint64
	// others are the requests for resources beyond refusedNames.
	others uint64
}

func newRefusals() *Refusals { return &Refusals{began: time.Now()} }

func (r *Refusals) second() int64 { return int64(time.Since(r.began) / time.Second) }

// Count counts one refused request for a resource.
func (r *Refusals) Count(resource string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readers == 0 {
		return
	}
	now := r.second()
	if n := len(r.seconds); n == 0 || r.seconds[n-1].number != now {
		for n > 0 && r.seconds[0].number <= now-refusedSeconds {
			r.seconds, n = r.seconds[1:], n-1
		}
		r.seconds = append(r.seconds, &refusedSecond{number: now, byName: make(map[string]uint64)})
	}
	current := r.seconds[len(r.seconds)-1]
	if _, known := current.byName[resource]; known || len(current.byName) < refusedNames {
		current.byName[resource]++
	} else {
		current.others++
	}
}

// RefusalReader reads the counts. Only one goroutine may use it.
type RefusalReader struct {
	refusals *Refusals
	next     int64 // the first second that was not read
}

// Read returns a reader of the seconds from now on. The caller must close it.
func (r *Refusals) Read() *RefusalReader {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers++
	return &RefusalReader{refusals: r, next: r.second()}
}

// Close ends the reader.
func (r *RefusalReader) Close() {
	r.refusals.mu.Lock()
	defer r.refusals.mu.Unlock()
	if r.refusals.readers--; r.refusals.readers == 0 {
		r.refusals.seconds = nil
	}
}

// Next returns how many requests were refused in the seconds that have ended since the last call, of the resources that
// pass. If all resources pass, the function is nil; otherwise Next counts no more than 1,000 resources of each second.
func (r *RefusalReader) Next(passes func(resource string) bool) (refused uint64) {
	for _, second := range r.ended() {
		if passes == nil {
			refused += second.others
		}
		for name, n := range second.byName {
			if passes == nil || passes(name) {
				refused += n
			}
		}
	}
	return refused
}

func (r *RefusalReader) ended() (seconds []*refusedSecond) {
	r.refusals.mu.Lock()
	defer r.refusals.mu.Unlock()
	now := r.refusals.second()
	for _, second := range r.refusals.seconds {
		if second.number >= r.next && second.number < now {
			seconds = append(seconds, second)
		}
	}
	r.next = now
	return seconds
}
