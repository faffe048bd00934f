package replica

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/internal/rules/claim"
)

// withHistory returns a store with a claim that is live, and two that have ended.
func withHistory(t *testing.T) *Store {
	t.Helper()
	s, err := OpenWith(filepath.Join(t.TempDir(), "data"), Options{Disk: disktest.New()})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "live"} {
		dbtest.Do(t, s, claim.Create{ID: id, Resource: "r" + id, Owner: "o", TTL: time.Hour})
	}
	dbtest.Do(t, s, claim.End{ID: "a"}, claim.End{ID: "b"})
	if err := s.writeHistory(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestScans: lists that may read all of the history wait for each other, and for listTimeout at most; nothing else waits
// for them.
func TestScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withHistory(t)
		defer func() { _ = s.Close() }()
		for range cap(s.scanning) { // lists that take long
			s.scanning <- struct{}{}
		}
		ended, live := []claim.Status{claim.Aborted}, []claim.Status{claim.Active, claim.Waiting}
		resource, owner, at, length := "ra", "o", claim.Time(1), time.Second
		for name, c := range map[string]struct {
			f     db.Filter
			scans bool
		}{
			"all":                     {db.Filter{}, false},
			"created":                 {db.Filter{MinCreated: &at, MaxCreated: &at}, false},
			"after":                   {db.Filter{After: &db.Cursor{ID: "a"}, Statuses: ended}, false},
			"aborted":                 {db.Filter{Statuses: ended}, false},
			"released":                {db.Filter{Statuses: []claim.Status{claim.Released}}, true},
			"live of an owner":        {db.Filter{Statuses: live, Owner: &owner}, false},
			"live of a prefix":        {db.Filter{Statuses: live, Prefix: "r"}, false},
			"resource":                {db.Filter{Resource: &resource}, true},
			"aborted of a resource":   {db.Filter{Statuses: ended, Resource: &resource}, true},
			"prefix":                  {db.Filter{Prefix: "r"}, true},
			"owner":                   {db.Filter{Owner: &owner}, true},
			"mode":                    {db.Filter{Units: new(claim.Shared)}, true},
			"two statuses":            {db.Filter{Statuses: []claim.Status{claim.Aborted, claim.Released}}, true},
			"active for a second":     {db.Filter{MinActive: &length}, true},
			"waited up to a second":   {db.Filter{MaxWaiting: &length}, true},
			"one page of very many":   {db.Filter{Offset: 10_000}, false},
			"a page beyond very many": {db.Filter{Offset: 10_001}, true},
		} {
			begin := time.Now()
			_, _, err := s.List(t.Context(), c.f)
			if took := time.Since(begin); c.scans != errors.Is(err, db.ErrListTooLong) || c.scans != (took == listTimeout) || !c.scans && err != nil {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := s.List(ctx, db.Filter{Owner: &owner}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, db.ErrListTooLong) {
			t.Errorf("a caller with a deadline: %v", err)
		}
		<-s.scanning
		for range 2 { // each leaves the place to the next
			if claims, _, err := s.List(t.Context(), db.Filter{Owner: &owner}); err != nil || len(claims) != 3 {
				t.Errorf("a list when there is room: %d claims (%v)", len(claims), err)
			}
		}
	})
}

// TestOffsetOfLiveClaims: a list of live claims keeps no skipped claims, however many there are.
func TestOffsetOfLiveClaims(t *testing.T) {
	s := withHistory(t)
	defer func() { _ = s.Close() }()
	for i := range 50 {
		dbtest.Do(t, s, claim.Create{ID: fmt.Sprintf("c%02d", i), Resource: "r", Owner: "o", TTL: time.Hour})
	}
	live := []claim.Status{claim.Active, claim.Waiting}
	for name, f := range map[string]db.Filter{
		"oldest first": {Statuses: live, Limit: 5, Offset: 40},
		"newest first": {Statuses: live, Limit: 5, Offset: 40, Newest: true},
		"of an owner":  {Statuses: live, Limit: 5, Offset: 40, Owner: new("o")},
	} {
		all := f
		all.Limit, all.Offset = 0, 0
		whole, _, err := s.List(t.Context(), all)
		if err != nil || len(whole) != 51 {
			t.Fatalf("%s: %d claims, %v", name, len(whole), err)
		}
		page, _, err := s.List(t.Context(), f)
		if err != nil || fmt.Sprint(page) != fmt.Sprint(whole[40:45]) {
			t.Errorf("%s: %v, %v", name, page, err)
		}
		s.mu.Lock()
		created := s.state.Created()
		s.mu.Unlock()
		some, err := (&listing{f: f, now: s.clock.instant(), skip: f.Offset, left: f.Limit}).scan(t.Context(), created)
		if err != nil || len(some) != f.Limit {
			t.Errorf("%s: it keeps %d claims for a page of %d, %v", name, len(some), f.Limit, err)
		}
	}
	if none, _, err := s.List(t.Context(), db.Filter{Statuses: live, Limit: 5, Offset: 51}); err != nil || len(none) > 0 {
		t.Errorf("behind the end: %v, %v", none, err)
	}
}

// TestMemoryOfList: a list keeps little of live claims before it takes them.
func TestMemoryOfList(t *testing.T) {
	s := withHistory(t)
	defer func() { _ = s.Close() }()
	const claims = 2000
	commands := make([]claim.Command, claims)
	for i := range commands {
		commands[i] = claim.Create{ID: fmt.Sprintf("c%04d", i), Resource: fmt.Sprint("r", i), Owner: "o", TTL: time.Hour}
	}
	dbtest.Do(t, s, commands...)
	inUse := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	s.mu.Lock()
	created := s.state.Created()
	s.mu.Unlock()
	before := inUse()
	some, err := (&listing{f: db.Filter{Limit: 10, Offset: claims}, skip: claims, left: 10}).scan(t.Context(), created)
	if took := inUse() - before; err != nil || len(some) != claims+1 || took > 150*claims {
		t.Errorf("%d bytes are kept for %d claims: %v", took, len(some), err)
	}
	runtime.KeepAlive(some)
}

// TestListOfLongLine: of the live claims of a resource a list keeps as many as it may need, in its own order.
func TestListOfLongLine(t *testing.T) {
	s := withHistory(t)
	defer func() { _ = s.Close() }()
	resource := "line"
	for i := range 50 {
		dbtest.Do(t, s, claim.Create{ID: fmt.Sprintf("c%02d", i*7%50), Resource: resource, Owner: "o", TTL: time.Hour})
	}
	dbtest.Do(t, s, claim.End{ID: "c49"}, claim.End{ID: "c14"})
	for name, c := range map[string]struct {
		f           db.Filter
		whole, most int // claims of all pages together, and the most kept by one
	}{
		"oldest first":    {db.Filter{Limit: 5, Offset: 7}, 50, 12},
		"newest first":    {db.Filter{Limit: 5, Offset: 7, Newest: true}, 50, 12},
		"those that wait": {db.Filter{Limit: 5, Offset: 7, Statuses: []claim.Status{claim.Waiting}}, 47, 5},
	} {
		c.f.Resource = &resource
		all := c.f
		all.Limit, all.Offset = 0, 0
		whole, _, err := s.List(t.Context(), all)
		if err != nil || len(whole) != c.whole {
			t.Fatalf("%s: %d claims, %v", name, len(whole), err)
		}
		page, _, err := s.List(t.Context(), c.f)
		if err != nil || fmt.Sprint(page) != fmt.Sprint(whole[7:12]) {
			t.Errorf("%s: %v, %v", name, page, err)
		}
		kept, err := (&listing{f: c.f, now: s.clock.instant(), skip: c.f.Offset, left: c.f.Limit}).scan(t.Context(), s.state.OfResource(resource))
		if err != nil || len(kept) != c.most {
			t.Errorf("%s: it keeps %d claims, %v", name, len(kept), err)
		}
	}
}

// TestSlowHistory: a list ends when the history takes too long to answer, before it is read or during that, and makes
// room for others.
func TestSlowHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withHistory(t)
		defer func() { _ = s.Close() }()
		var reading sync.WaitGroup
		for range 4 { // as many as may read at once
			reading.Go(func() {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 2*listTimeout, db.ErrListTooLong)
				defer cancel()
				rows := 0
				err := s.history.List(ctx, db.Filter{}, s.history.Entry(), func(*claim.Claim) bool {
					rows++
					<-ctx.Done()
					return true
				})
				if rows != 1 || !errors.Is(err, db.ErrListTooLong) {
					t.Errorf("in the middle of a list, after %d of its claims: %v", rows, err)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		if _, _, err := s.List(t.Context(), db.Filter{}); !errors.Is(err, db.ErrListTooLong) || time.Since(begin) != listTimeout {
			t.Errorf("while others read: %v after %s", err, time.Since(begin))
		}
		if claims, _, err := s.List(t.Context(), db.Filter{Statuses: []claim.Status{claim.Active}}); err != nil || len(claims) != 1 {
			t.Errorf("a list of live claims beside it: %d (%v)", len(claims), err)
		}
		reading.Wait()
		if claims, _, err := s.List(t.Context(), db.Filter{}); err != nil || len(claims) != 3 {
			t.Errorf("a list when they have ended: %d claims (%v)", len(claims), err)
		}
	})
}
