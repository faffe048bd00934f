package handlers

import (
	"context"
	"fmt"
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// lists is a store that notes how its lists are read.
type lists struct {
	db.Reader
	read []db.Filter
}

func (l *lists) List(_ context.Context, f db.Filter) (claims []claim.Claim, now claim.Instant, err error) {
	l.read = append(l.read, f)
	for i := range f.Limit {
		claims = append(claims, claim.Claim{ID: fmt.Sprint(i), Resource: "r", Identity: "credential:other", UserData: []byte("{}"), Status: claim.Active, Created: claim.Time(i + 1)})
	}
	return claims, now, nil
}

// TestOffset: the store itself skips the offset of a page, so that a list with a large offset counts as an expensive
// one, and skipped claims take no memory. For a caller that may not see all claims, the store gets no offset.
func TestOffset(t *testing.T) {
	const offset = 20_000
	all, some := "", "r"
	rules := func(prefix *string) *access.Rules {
		return access.NewRules([]*access.Rule{{Everybody: true, May: access.Read, ResourcePrefix: prefix}})
	}
	for name, c := range map[string]struct {
		rules         *access.Rules
		offset, limit int
		userData      bool
	}{
		"without authentication":  {nil, offset, 11, true},
		"who may read all claims": {rules(&all), offset, 11, false},
		"who may read some":       {rules(&some), 0, readAtOnce, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := &lists{}
			h := &handler{Config: Config{Store: visible{store}}}
			ctx := access.WithCaller(t.Context(), func() access.Caller {
				return access.Caller{Identity: access.Identity{Name: "credential:ci"}, Rules: c.rules}
			})
			page, err := h.ListClaims(ctx, &models.ListClaimsRequest{Offset: offset})
			if err != nil || len(page.GetClaims()) != 10 || page.GetNextPageToken() == "" {
				t.Fatalf("%d claims, next page %q, %v", len(page.GetClaims()), page.GetNextPageToken(), err)
			}
			if (page.GetClaims()[0].UserData != nil) != c.userData {
				t.Errorf("user data %q", page.GetClaims()[0].GetUserData())
			}
			if first := store.read[0]; first.Offset != c.offset || first.Limit != c.limit {
				t.Errorf("the first read leaves out %d claims, and returns %d", first.Offset, first.Limit)
			}
		})
	}
}
