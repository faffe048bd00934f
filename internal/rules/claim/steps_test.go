package claim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/rules/claim"
)

// house is a database of some resources and sessions. A transaction reads only a few of their claims.
type house struct {
	rows     map[string]claim.Row
	claims   []*claim.Claim // in order of arrival
	sessions map[string]*claim.Session
	now      claim.Instant
}

// load reads the state that a command needs, at most part of a session's claims.
func (h *house) load(cmd claim.Command, part int) *claim.Queues {
	qs := claim.NewQueues(h.now, len(h.rows))
	for _, row := range h.rows { // more than it needs, which makes no difference
		qs.Put(claim.NewQueue(row, 0, func(resource string, after uint64) (next []*claim.Claim, err error) {
			for _, c := range h.claims {
				if c.Resource == resource && c.Status == claim.Waiting && c.Enqueued > after {
					next = append(next, c)
				}
			}
			return next, nil
		}))
	}
	for _, c := range h.claims {
		if h.rows[c.Resource].Holder == c.ID {
			qs.Add(c)
		}
	}
	for _, target := range cmd.Targets() {
		if s := h.sessions[target.Session]; s != nil {
			h.loadSession(qs, s, target, part)
		}
	}
	return qs
}

func (h *house) loadSession(qs *claim.Queues, s *claim.Session, target claim.Target, part int) {
	var waiting, active []string
	for _, c := range h.claims {
		switch {
		case c.Session != s.ID || !target.Claims:
		case c.Status == claim.Waiting:
			waiting = append(waiting, c.ID)
		case c.Status == claim.Active && !target.Waiting:
			active = append(active, c.ID)
		}
	}
	all := slices.Concat(waiting, active)
	if len(all) > part {
		all = all[:part]
		qs.PutPart(*s, all...)
	} else {
		qs.PutSession(*s, all...)
	}
	for _, c := range h.claims {
		if slices.Contains(all, c.ID) {
			qs.Add(c)
		}
	}
}

// do is one transaction.
func (h *house) do(cmd claim.Command, part int) error {
	h.now.Wall++
	h.now.Lease++
	qs := h.load(cmd, part)
	_, err := qs.Do(cmd)
	for _, change := range qs.Changes() {
		i := slices.Index(h.claims, change.Before)
		if change.Before == nil {
			h.claims = append(h.claims, change.After)
		} else {
			h.claims[i] = change.After
		}
	}
	for _, q := range qs.Changed() {
		h.rows[q.Resource] = q.Row
	}
	for _, change := range qs.ChangedSessions() {
		if change.After == nil {
			delete(h.sessions, change.ID())
		} else {
			h.sessions[change.ID()] = change.After
		}
	}
	return err
}

// of returns the claims of a session with a status.
func (h *house) of(session string, status claim.Status) (n int) {
	for _, c := range h.claims {
		if c.Session == session && c.Status == status {
			n++
		}
	}
	return n
}

// populate fills a house: sessions a and b hold and wait for resources of one another, and c waits for some.
func populate(t *rapid.T) *house {
	h := &house{rows: make(map[string]claim.Row), sessions: make(map[string]*claim.Session), now: claim.Instant{Wall: 1000, Lease: 1000}}
	for i := range 12 {
		name := fmt.Sprint("r", i)
		h.rows[name] = claim.Row{Resource: name}
	}
	for _, id := range []string{"a", "b", "c"} {
		if err := h.do(claim.Attach{Session: claim.Session{ID: id, TTL: time.Minute}, Server: "here"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range rapid.IntRange(0, 60).Draw(t, "claims") {
		session := rapid.SampledFrom([]string{"a", "a", "b", "c"}).Draw(t, "session")
		cmd := claim.Create{
			ID: fmt.Sprint(session, i), Session: session, Server: "here",
			Resource: fmt.Sprint("r", rapid.IntRange(0, 11).Draw(t, "resource")), Units: rapid.SampledFrom([]claim.Units{claim.Exclusive, claim.Shared}).Draw(t, "units"),
		}
		if err := h.do(cmd, 0); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// A session ends in steps of any size: it gets no more claims, is granted nothing that it gives up, and ends as the
// first step said, even if somebody else continues.
func TestSessionEndsInSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := populate(t)
		part := rapid.IntRange(1, 70).Draw(t, "part")
		cmd := claim.EndSession{ID: "a", Server: "here", Active: claim.Released, Waiting: claim.Withdrawn, Reason: "enough"}
		cmd.Keep = rapid.Bool().Draw(t, "keep")
		steps := 0
		for err := h.do(cmd, part); err != nil; err = h.do(cmd, part) {
			if !errors.Is(err, claim.ErrUnfinished) || steps > len(h.claims) {
				t.Fatalf("step %d: %v", steps, err)
			}
			steps++
			if h.of("a", claim.Released) > 0 && h.of("a", claim.Waiting) > 0 {
				t.Fatal("it has given something up, and waits still")
			}
			cmd = claim.Rest(cmd).(claim.EndSession)
			if cmd.Keep {
				continue
			}
			h.refuses(t)
			if rapid.IntRange(0, 3).Draw(t, "another") == 0 {
				h.now.Lease = h.now.Lease.Add(time.Minute)
				cmd = claim.EndSession{ID: "a", OnlyDue: true, Active: claim.Expired, Waiting: claim.Aborted, Reason: "late"}
			}
		}
		if (h.sessions["a"] != nil) != cmd.Keep {
			t.Fatalf("the session is %+v", h.sessions["a"])
		}
		for _, c := range h.claims {
			ended := c.Status == claim.Released || c.Status == claim.Withdrawn
			if (c.Session == "a") != (ended && c.Reason == "enough") {
				t.Fatalf("got %+v", c)
			}
		}
		for _, row := range h.rows {
			if row.Waiting > 0 && row.Holder == "" && row.Shared == 0 {
				t.Fatalf("nobody was granted %+v", row)
			}
		}
	})
}

// refuses checks that a session that ends cannot be used.
func (h *house) refuses(t *rapid.T) {
	for _, refused := range []struct {
		cmd  claim.Command
		want error
	}{
		{claim.Create{ID: "new", Resource: "r0", Session: "a", Server: "here"}, claim.ErrNotAttached},
		{claim.Create{ID: "new", Resource: "r0", Session: "a"}, claim.ErrNotAttached},
		{claim.Attach{Session: claim.Session{ID: "a"}, Server: "here"}, claim.ErrSessionEnded},
		{claim.EndSession{ID: "a", Server: "here", Keep: true, Active: claim.Released}, claim.ErrNotAttached},
		{claim.EndSession{ID: "a", OnlyDue: true, Active: claim.Expired}, nil},
	} {
		before := h.of("a", claim.Active) + h.of("a", claim.Waiting)
		if err := h.do(refused.cmd, 1); !errors.Is(err, refused.want) || before != h.of("a", claim.Active)+h.of("a", claim.Waiting) {
			t.Fatalf("%+v: %v", refused.cmd, err)
		}
	}
}

// A claim that cannot be loaded stays, and the others end; without any other its error is the answer.
func TestSessionEndsButForLocked(t *testing.T) {
	locked := errors.New("locked")
	for _, claims := range []string{"", "b", "bc"} {
		qs := claim.NewQueues(claim.Instant{Wall: 1000, Lease: 1000}, 3)
		for _, id := range strings.Split(claims, "") {
			qs.Put(claim.NewQueue(claim.Row{Resource: "r" + id, Holder: id, Version: 1}, 0, nil))
			qs.Add(&claim.Claim{ID: id, Resource: "r" + id, Session: "s", Status: claim.Active})
		}
		qs.Refuse(locked, "ra", "a")
		qs.PutSession(claim.Session{ID: "s", Server: "here"}, strings.Split("a"+claims, "")...)
		_, err := qs.Do(claim.EndSession{ID: "s", Active: claim.Released, Waiting: claim.Withdrawn})
		want := claim.ErrUnfinished
		if claims == "" {
			want = locked
		}
		if !errors.Is(err, want) || len(qs.Changes()) != len(claims) || !qs.Session("s").Ends() {
			t.Errorf("beside %q: %v, %d ended, the session is %+v", claims, err, len(qs.Changes()), qs.Session("s"))
		}
	}
}

// What one transaction grants is bounded over all resources; each that has waiters and nobody else gets one.
func TestGrantsOfManyResourcesAreBounded(t *testing.T) {
	const resources, readers = 10, claim.MaxGrants / 5
	qs := claim.NewQueues(claim.Instant{Wall: 1000, Lease: 1000}, resources)
	for i := range resources {
		name := fmt.Sprint(i)
		qs.Put(claim.NewQueue(claim.Row{Resource: name}, 0, nil))
		for n := range readers + 1 {
			cmd := claim.Create{ID: fmt.Sprint(name, "-", n), Resource: name, TTL: time.Minute, Units: claim.Shared}
			if n == 0 {
				cmd.Units = claim.Exclusive
			}
			if _, err := qs.Do(cmd); err != nil {
				t.Fatal(err)
			}
		}
	}
	granted := func() (n int) {
		for i := range resources {
			n += qs.Resource(fmt.Sprint(i)).Shared
		}
		return n
	}
	for i := range resources {
		if _, err := qs.Do(claim.End{ID: fmt.Sprint(i, "-0")}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range resources {
		if q := qs.Resource(fmt.Sprint(i)); q.Free() || q.Unsettled() != (q.Waiting > 0) {
			t.Errorf("%+v", q.Row)
		}
	}
	equal(t, "the number of grants", granted() <= claim.MaxGrants+resources, true)
}
