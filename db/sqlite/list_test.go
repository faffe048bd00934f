package sqlite

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/internal/claim"
)

// TestScans: lists that may read everything wait for each other, and for listTimeout at most;
// nothing else waits for them.
func TestScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openNew(t)
		defer func() { _ = s.Close() }()
		dbtest.Do(t, s, claim.Create{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour})
		for range cap(s.scanning) { // lists that take long
			s.scanning <- struct{}{}
		}
		r, o, at, d := "r", "o", claim.Time(1), time.Second
		for name, c := range map[string]struct {
			f    db.Filter
			scan bool
		}{
			"all":                     {db.Filter{}, false},
			"created":                 {db.Filter{MinCreated: &at, MaxCreated: &at}, false},
			"after":                   {db.Filter{After: &db.Cursor{ID: "a"}, Statuses: []claim.Status{claim.Aborted}}, false},
			"aborted":                 {db.Filter{Statuses: []claim.Status{claim.Aborted}}, false},
			"active":                  {db.Filter{Statuses: []claim.Status{claim.Active}}, false}, // there are few
			"active of an owner":      {db.Filter{Statuses: []claim.Status{claim.Active}, Owner: &o}, false},
			"waiting for a resource":  {db.Filter{Statuses: []claim.Status{claim.Waiting}, Resource: &r}, false},
			"resource":                {db.Filter{Resource: &r}, true},
			"released a resource":     {db.Filter{Statuses: []claim.Status{claim.Released}, Resource: &r}, true},
			"owner":                   {db.Filter{Owner: &o}, true},
			"mode":                    {db.Filter{Mode: ptr(claim.Shared)}, true},
			"aborted of a mode":       {db.Filter{Statuses: []claim.Status{claim.Aborted}, Mode: ptr(claim.Shared)}, true},
			"active for a second":     {db.Filter{MinActive: &d}, true},
			"waited up to a second":   {db.Filter{MaxWaiting: &d}, true},
			"ends in a second":        {db.Filter{MaxTTL: &d}, true},
			"one page of very many":   {db.Filter{Offset: maxOffset}, false},
			"a page beyond very many": {db.Filter{Offset: maxOffset + 1}, true},
		} {
			begin := time.Now()
			_, _, err := s.List(t.Context(), c.f)
			if took := time.Since(begin); c.scan != errors.Is(err, db.ErrListTooLong) || c.scan != (took == listTimeout) || !c.scan && err != nil {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		}
		dbtest.Contend(t, s)
		if _, _, err := s.Contended(t.Context(), "few", nil, 10); err != nil {
			t.Errorf("few contended resources: %v", err)
		}
		if _, _, err := s.Contended(t.Context(), "many", nil, 10); !errors.Is(err, db.ErrListTooLong) {
			t.Errorf("many contended resources: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := s.List(ctx, db.Filter{Owner: &o}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller with a deadline: %v", err)
		}
		<-s.scanning
		for range 2 { // each leaves the place to the next
			if claims, _, err := s.List(t.Context(), db.Filter{Owner: &o}); err != nil || len(claims) != 1 {
				t.Errorf("a list when there is room: %d claims (%v)", len(claims), err)
			}
		}
	})
}

// TestDeadlineOfReads: a statement of a reader ends with its context, and with the cause of that.
func TestDeadlineOfReads(t *testing.T) {
	s, _ := openNew(t)
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, db.ErrListTooLong)
	defer cancel()
	if err := s.read(ctx, endless, func(*sqlite.Stmt) {}); !errors.Is(err, db.ErrListTooLong) {
		t.Errorf("got %v", err)
	}
	if _, _, err := s.Get(t.Context(), "a"); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("the next read: %v", err)
	}
}
