package handlers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// livePages is a store with a number of pages of live claims; every third one is the caller's.
type livePages struct {
	db.Reader
	pages, reads int
}

func (l *livePages) Live(_ context.Context, _ db.LiveOf, page db.Page) (claims []claim.Claim, err error) {
	if l.reads++; l.reads > l.pages {
		return nil, nil
	}
	for i := range page.Limit {
		c := claim.Claim{ID: fmt.Sprintf("%d-%03d", l.reads, i), Resource: "hidden", Identity: "other", Status: claim.Active, Version: 1}
		if l.reads%3 == 0 {
			c.Resource = "shown"
		}
		claims = append(claims, c)
	}
	return claims, nil
}

// TestSnapshotOfHiddenClaims: a watch waits for its turn for each page of its snapshot, even if its caller sees nothing
// of it: it does not keep its place among the few readers until there is something to see.
func TestSnapshotOfHiddenClaims(t *testing.T) {
	shown := "shown"
	rules := access.NewRules([]*access.Rule{{Everybody: true, May: access.Read, ResourcePrefix: &shown}})
	ctx := access.WithCaller(t.Context(), func() access.Caller {
		return access.Caller{Identity: access.Identity{Name: "credential:ci"}, Rules: rules}
	})
	store := &livePages{pages: 4}
	s := &watching{handler: &handler{Config: Config{Store: visible{store}}, watches: newWatches(1)}, view: newView(access.CallerOf(ctx))}
	seen, page := 0, db.Page{Limit: 10}
	for n := 1; ; n++ {
		claims, err := s.readPage(ctx, page)
		if err != nil {
			t.Fatal(err)
		}
		if store.reads != n || len(s.watches.reading) != 0 {
			t.Fatalf("after %d pages: %d reads, %d places", n, store.reads, len(s.watches.reading))
		}
		if len(claims) == 0 {
			break
		}
		last := claims[len(claims)-1]
		if want := fmt.Sprintf("%d-009", n); last.ID != want {
			t.Errorf("page %d goes on after %q, want %q", n, last.ID, want)
		}
		for _, c := range claims {
			switch {
			case c.Resource == "shown":
				seen++
			case c.Resource != "" || c.Identity != "" || c.Status.Live():
				t.Errorf("the caller gets %+v", c)
			}
		}
		page.After = last.ID
	}
	if seen != 10 {
		t.Errorf("the caller sees %d claims, want those of one page", seen)
	}
}

// TestVersionOfHiddenResource: a caller that presents a token which is too high learns the resource's version only if it may read the resource.
func TestVersionOfHiddenResource(t *testing.T) {
	name := "r"
	for may, shown := range map[access.Right]bool{access.Hold: false, access.Hold | access.Read: true} {
		rules := access.NewRules([]*access.Rule{{Everybody: true, May: may, Resource: &name}})
		ctx := access.WithCaller(t.Context(), func() access.Caller {
			return access.Caller{Identity: access.Identity{Name: "credential:ci"}, Rules: rules}
		})
		err := (&handler{}).lockError(ctx, &claim.AheadError{Resource: name, Known: 9, Version: 7})
		if _, got := models.ErrorInfoOf(err).GetMetadata()["version"]; got != shown || models.ReasonOf(err) != models.ReasonRolledBack {
			t.Errorf("with the rights %v: %v, with the metadata %v", may, err, models.ErrorInfoOf(err).GetMetadata())
		}
	}
}

// members is a store with the claims of a deadlock. Their resources are "hidden" and "shown" in turn.
type members struct{ db.Reader }

func (members) Get(_ context.Context, id string, _ int) (claim.Claim, int, claim.Instant, error) {
	resource := "shown"
	if len(id)%2 == 0 {
		resource = "hidden"
	}
	return claim.Claim{ID: id, Resource: resource, Owner: "owner of " + id, Identity: "other"}, 0, claim.Instant{}, nil
}

// TestMembersOfADeadlock: the error has the members that its caller may see, as many as there is room for, and names few of
// them.
func TestMembersOfADeadlock(t *testing.T) {
	shown := "shown"
	rules := access.NewRules([]*access.Rule{{Everybody: true, May: access.Read, ResourcePrefix: &shown}})
	ctx := access.WithCaller(t.Context(), func() access.Caller {
		return access.Caller{Identity: access.Identity{Name: "credential:ci"}, Rules: rules}
	})
	h := &handler{Config: Config{Store: visible{members{}}}}
	err := h.deadlock(ctx, claim.Aborted, claim.ReasonDeadlock+"a, bb, ccc, dddd")
	if info := models.ErrorInfoOf(err); info.GetMetadata()[models.DeadlockKey] != `[{"owner":"owner of a","claim":"a","resource":"shown"},{"owner":"owner of ccc","claim":"ccc","resource":"shown"}]` {
		t.Errorf("%v", info)
	}
	if text := status.Convert(err).Message(); strings.Contains(text, "bb") || !strings.HasSuffix(text, `: "owner of a" waited for "shown", "owner of ccc" waited for "shown"`) {
		t.Error(text)
	}
	var ids []string
	for range 100 {
		ids = append(ids, strings.Repeat("i", 101))
	}
	err = h.deadlock(t.Context(), claim.Aborted, claim.ReasonDeadlock+strings.Join(ids, ", "))
	if size := len(models.ErrorInfoOf(err).GetMetadata()[models.DeadlockKey]); size < maxDeadlock-400 || size > maxDeadlock {
		t.Errorf("the members have %d bytes", size)
	}
	if text := status.Convert(err).Message(); !strings.Contains(text, ", and ") || len(text) > 1500 {
		t.Error(text)
	}
	if err := h.deadlock(t.Context(), claim.Withdrawn, claim.ReasonDeadlock+"a"); err != nil {
		t.Error(err)
	}
}
