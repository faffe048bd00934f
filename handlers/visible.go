package handlers

import (
	"context"
	"fmt"
	"math"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// visible is the store as the caller in a context may see it: without claims that it may not see, and without user data
// of others. It does not embed a Reader, so that a new way to read does not compile without a decision.
type visible struct{ store db.Reader }

var _ db.Reader = visible{}

// Get implements db.Getter.
func (v visible) Get(ctx context.Context, id string, limit int) (claim.Claim, int, claim.Instant, error) {
	c, ahead, now, err := v.store.Get(ctx, id, limit)
	if err == nil && !show(access.CallerOf(ctx), &c) {
		return claim.Claim{}, 0, now, claim.ErrNotFound
	}
	return c, ahead, now, err
}

// show removes from a claim what the caller may not see, and reports whether the caller may see the claim.
func show(caller access.Caller, c *claim.Claim) bool {
	if !claim.SeesUserData(caller, c) {
		c.UserData = nil
	}
	return claim.Sees(caller, c)
}

// shown returns the claims that the caller may see. It reuses the slice.
func shown(caller access.Caller, claims []claim.Claim) []claim.Claim {
	if caller.Rules == nil {
		return claims
	}
	left := claims[:0]
	for i := range claims {
		if show(caller, &claims[i]) {
			left = append(left, claims[i])
		}
	}
	return left
}

func (v visible) Holder(ctx context.Context, resource string) (claim.Claim, error) {
	c, err := v.store.Holder(ctx, resource)
	if err == nil && !show(access.CallerOf(ctx), &c) {
		return claim.Claim{}, claim.ErrNotFound
	}
	return c, err
}

func (v visible) Queue(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
	queue, now, err := v.store.Queue(ctx, resource, limit)
	queue.Holders = shown(access.CallerOf(ctx), queue.Holders)
	queue.Waiters = shown(access.CallerOf(ctx), queue.Waiters)
	return queue, now, err
}

const (
	// readAtOnce is how many items one read returns while some of them may be hidden.
	readAtOnce = 1000
	// maxHidden limits how many items that the caller must not see are read for one answer.
	maxHidden = 100_000
)

// restricted reports whether there may be claims that the caller must not see.
func restricted(caller access.Caller) bool { return caller.NeedAll(access.Read, "") != nil }

// seesAll reports whether the caller may see all claims and the user data of each.
func seesAll(caller access.Caller) bool {
	return !restricted(caller) && caller.NeedAll(access.Administer, "") == nil
}

// readLimit is how many claims to read at once for an answer of limit claims (0: no limit). There is always a limit: without
// one a store returns all claims, and not those after the last read.
func readLimit(caller access.Caller, limit int) int {
	switch {
	case restricted(caller):
		return readAtOnce
	case limit == 0:
		return math.MaxInt32
	}
	return limit
}

// Live implements db.Reader. A page is one page of the store, so that its caller may do something else between two of
// them: it has the claims that the caller in the context may see. If the caller may not see the last claim of the
// store's page, a claim with nothing but its id stands for it, and the next page continues after it.
func (v visible) Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	if of.Held != nil {
		return v.held(ctx, of, page)
	}
	claims, err := v.store.Live(ctx, of, page)
	if err != nil || len(claims) == 0 {
		return nil, err
	}
	last := claims[len(claims)-1].ID
	left := shown(access.CallerOf(ctx), claims)
	if len(left) == 0 || left[len(left)-1].ID != last {
		left = append(left, claim.Claim{ID: last})
	}
	return left, nil
}

// held returns active claims of a type. Limit and Bytes count only what the caller may see, so that what is hidden
// takes no room in its answer.
func (v visible) held(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	caller := access.CallerOf(ctx)
	if seesAll(caller) {
		return v.store.Live(ctx, of, page)
	}
	read := page
	read.Limit = readLimit(caller, page.Limit)
	return pick(caller, page.Limit, 0, page.Bytes, func(last *claim.Claim) ([]claim.Claim, error) {
		if last != nil {
			read.After = last.ID
		}
		return v.store.Live(ctx, of, read)
	})
}

// List implements db.Reader. Limit, Offset and Bytes count only claims that the caller may see. If it may see all, the
// store skips the Offset: it knows the cost.
func (v visible) List(ctx context.Context, f db.Filter) (claims []claim.Claim, now claim.Instant, err error) {
	caller := access.CallerOf(ctx)
	if seesAll(caller) {
		return v.store.List(ctx, f)
	}
	read, offset := f, 0
	read.Limit = readLimit(caller, f.Limit)
	if restricted(caller) {
		read.Offset, offset = 0, f.Offset
	}
	claims, err = pick(caller, f.Limit, offset, f.Bytes, func(last *claim.Claim) (some []claim.Claim, err error) {
		if last != nil {
			read.After, read.Offset = &db.Cursor{Created: last.Created, ID: last.ID}, 0
		}
		some, now, err = v.store.List(ctx, read)
		return some, err
	})
	return claims, now, err
}

// Resources implements db.Resources. It filters nothing: ListResources does, because it must count what it has read.
func (v visible) Resources(ctx context.Context, prefix, after string, limit int) ([]db.Resource, string, claim.Instant, error) {
	return v.store.Resources(ctx, prefix, after, limit)
}

// Contended implements db.Resources. It filters nothing, like Resources.
func (v visible) Contended(ctx context.Context, prefix string, after *db.Contention, limit int) ([]db.Resource, claim.Instant, error) {
	return v.store.Contended(ctx, prefix, after, limit)
}

// pick reads until it has limit claims that the caller may see (0: no limit) after the first offset of them, or until
// they have a number of bytes (0: no limit). read returns the claims after the last one, none at the end.
func pick(caller access.Caller, limit, offset, bytes int, read func(last *claim.Claim) ([]claim.Claim, error)) (picked []claim.Claim, err error) {
	budget := db.Budget(bytes)
	var last *claim.Claim
	for seen, kept := 0, 0; ; {
		some, err := read(last)
		if err != nil || len(some) == 0 {
			return picked, err
		}
		end := some[len(some)-1]
		last = &end
		seen += len(some)
		some = shown(caller, some)
		if kept += len(some); seen-kept > maxHidden {
			return nil, hidden(seen)
		}
		for _, c := range some {
			if offset > 0 {
				offset--
				continue
			}
			picked = append(picked, c)
			if len(picked) == limit || bytes > 0 && !budget.Take(&c) {
				return picked, nil
			}
		}
	}
}

// hidden is the error of a list that would need too many reads.
func hidden(seen int) error {
	return fmt.Errorf("%w: of %d most are hidden from the caller", db.ErrListTooLong, seen)
}

func (v visible) WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error) {
	claims, err := v.store.WaitsOf(ctx, owners, limit)
	return shown(access.CallerOf(ctx), claims), err
}
