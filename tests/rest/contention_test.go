package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/tests/harness"
)

const contenders = 50

// Of fifty clients that claim one resource concurrently, one holds it and forty-nine wait, each
// at its own position.
func TestRESTContention(t *testing.T) {
	t.Parallel()
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		s := startREST(t, database)
		var replies []<-chan reply
		for range contenders {
			replies = append(replies, s.send(t.Context(), "POST", "/v1/claims/", object{"resource": t.Name(), "ttl": 600}))
		}
		codes, ids := map[int]int{}, map[string]bool{}
		for _, r := range replies {
			a := <-r
			if a.err != nil {
				t.Fatal(a.err)
			}
			codes[a.code]++
			ids[a.claim(t).ID] = true
		}
		if codes[http.StatusCreated] != 1 || codes[http.StatusAccepted] != contenders-1 || len(ids) != contenders {
			t.Errorf("%v, %d claims", codes, len(ids))
		}
		q := s.resource(t, url.PathEscape(t.Name()))
		if len(q.Holders) != 1 || q.Waiting != contenders-1 || len(q.Waiters) != contenders-1 {
			t.Fatalf("%d hold it, %d wait", len(q.Holders), q.Waiting)
		}
		for i, c := range q.Waiters {
			if found := s.get(t, c.ID); !ptrEqual(found.Position, i+1) || !ptrEqual(c.Position, i+1) {
				t.Errorf("number %d of the line is at %s, at %s in its queue", i+1, show(found.Position), show(c.Position))
			}
		}
	})
}

// A claim has its position in the queue, up to 1,000; the number of waiters is
// exact.
func TestRESTLongLine(t *testing.T) {
	t.Parallel()
	longLine(t, harness.Embedded(t))
}

func longLine(t *testing.T, database string) {
	t.Helper()
	const counted = 1000
	s := startREST(t, database)
	s.hold(t, t.Name())
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			for range counted / 10 {
				if a := s.try(t.Context(), "POST", "/v1/claims/", object{"resource": t.Name(), "ttl": 60}); a.code != http.StatusAccepted {
					t.Errorf("%d %s, %v", a.code, a.body, a.err)
				}
			}
		})
	}
	group.Wait()
	beyond := s.queue(t, t.Name())
	if beyond.Position != nil || s.get(t, beyond.ID).Position != nil {
		t.Errorf("a claim beyond the thousandth is at %s", show(beyond.Position))
	}
	var q restQueue
	path := "/v1/resources/" + url.PathEscape(t.Name())
	if s.do(t, "GET", path, nil).decode(t, &q); len(q.Waiters) != 100 || q.Waiting != counted+1 {
		t.Errorf("%d waiters are shown of %d", len(q.Waiters), q.Waiting)
	}
	if s.do(t, "GET", path+"?limit=1000", nil).decode(t, &q); len(q.Waiters) != counted || !ptrEqual(q.Waiters[counted-1].Position, counted) {
		t.Fatalf("%d waiters are shown", len(q.Waiters))
	}
	last := s.get(t, q.Waiters[counted-1].ID)
	if !ptrEqual(last.Position, counted) {
		t.Errorf("the thousandth is at %s", show(last.Position))
	}
	s.end(t, q.Waiters[0].ID, "withdrawn")
	if moved := s.get(t, beyond.ID); !ptrEqual(moved.Position, counted) {
		t.Errorf("when one has left, the last is at %s", show(moved.Position))
	}
}

// Fifty clients wait, and some withdraw; the others hold the resource in the order of the queue,
// one at a time.
func TestRESTFairness(t *testing.T) {
	t.Parallel()
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		s := startREST(t, database)
		first := s.hold(t, t.Name())
		line := &line{s: s, resource: t.Name()}
		var group sync.WaitGroup
		for i := range contenders {
			group.Go(func() { line.join(t, i) })
		}
		ids := line.form(t)
		stay := line.thin(t, ids)
		s.end(t, first.ID, "released")
		group.Wait()

		if !slices.Equal(line.served, stay) {
			t.Errorf("served were\n%v, in the line stood\n%v", line.served, stay)
		}
		if len(line.gone) != len(ids)-len(stay) {
			t.Errorf("%d heard that they are withdrawn, want %d", len(line.gone), len(ids)-len(stay))
		}
		if !slices.IsSorted(line.tokens) || len(slices.Compact(line.tokens)) != len(stay) || line.tokens[0] <= *first.Token {
			t.Errorf("tokens %d after %d", line.tokens, *first.Token)
		}
	})
}

// line is the view of fifty clients on one resource.
type line struct {
	s        *restServer
	resource string
	holding  atomic.Int32

	mu     sync.Mutex
	served []string // ids, in the order of holding the resource
	tokens []uint64
	gone   []string // the withdrawn claims
}

// join claims the resource, waits for it in one of three ways, holds it for a moment and
// releases it.
func (l *line) join(t *testing.T, n int) {
	body, wait := object{"resource": l.resource, "ttl": 60}, []string{"Prefer", "wait=3600"} // meanwhile the queue forms, and is thinned
	if n%3 == 0 {
		l.serve(t, l.s.try(t.Context(), "POST", "/v1/claims/", body, wait...))
		return
	}
	created := l.s.try(t.Context(), "POST", "/v1/claims/", body)
	if created.err != nil || created.code != http.StatusAccepted {
		t.Errorf("%d %s, %v", created.code, created.body, created.err)
		return
	}
	address := created.header.Get("Location")
	if n%3 == 1 {
		l.serve(t, l.s.try(t.Context(), "GET", address, nil, wait...))
	} else {
		l.serve(t, l.s.try(t.Context(), "PATCH", address, object{"status": "active"}, wait...))
	}
}

// serve is a client's turn after its wait.
func (l *line) serve(t *testing.T, a reply) {
	var c restClaim
	switch {
	case a.err != nil:
		t.Error(a.err)
		return
	case a.code == http.StatusBadRequest: // a claim that was withdrawn cannot be activated
		l.leave("")
		return
	}
	if a.decode(t, &c); c.Status != "active" {
		if l.leave(c.ID); c.Status != "withdrawn" {
			t.Errorf("%s: %d %s", a.request, a.code, a.body)
		}
		return
	}
	if others := l.holding.Add(1) - 1; others > 0 {
		t.Errorf("%d others hold it", others)
	}
	l.mu.Lock()
	l.served, l.tokens = append(l.served, c.ID), append(l.tokens, *c.Token)
	l.mu.Unlock()
	time.Sleep(time.Millisecond) // real time: other clients might hold it meanwhile
	l.holding.Add(-1)
	if a := l.s.try(t.Context(), "PATCH", claimPath(c.ID), object{"status": "released"}); a.code != http.StatusNoContent {
		t.Errorf("%d %s, %v", a.code, a.body, a.err)
	}
}

func (l *line) leave(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = append(l.gone, id)
}

// form waits until all clients are in the queue, and returns the ids of their claims in
// order.
func (l *line) form(t *testing.T) []string {
	t.Helper()
	var q restQueue
	harness.Eventually(t, func() error {
		if q = l.s.resource(t, url.PathEscape(l.resource)); q.Waiting != contenders {
			return fmt.Errorf("%d wait", q.Waiting)
		}
		return nil
	})
	return idsOf(q.Waiters)
}

// thin withdraws every third claim, half of them by DELETE, and returns the remaining ones.
func (l *line) thin(t *testing.T, ids []string) (stay []string) {
	t.Helper()
	for i, id := range ids {
		switch i % 6 {
		case 2:
			l.s.end(t, id, "withdrawn")
		case 5:
			l.s.do(t, "DELETE", claimPath(id), nil).is(t, http.StatusNoContent)
		default:
			stay = append(stay, id)
		}
	}
	for i, id := range stay {
		if c := l.s.get(t, id); !ptrEqual(c.Position, i+1) {
			t.Errorf("number %d of the line is at %s", i+1, show(c.Position))
		}
	}
	return stay
}
