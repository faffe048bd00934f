package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/waits"
	"github.com/locket-service/locket/models"
)

// holderWaits returns the waits of the holders of a resource for other resources. It leaves out data that cannot be read in time.
func (h *handler) holderWaits(ctx context.Context, resource string, holders []claim.Claim) waits.Chain {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	owners := make([]claim.OwnerKey, len(holders))
	for i := range holders {
		owners[i] = holders[i].OwnerKey()
	}
	chain, err := waits.ChainOf(ctx, h.Store, owners, resource)
	if err != nil {
		h.Log.DebugContext(ctx, "whom the holders wait for is not known", "error", err)
	}
	return chain
}

// encodeWaits returns as much of a chain as fits on a page after some bytes. Its claims have no positions.
func encodeWaits(chain *waits.Chain, bytes int) (encoded []*models.Wait) {
	claims := func(list []claim.Claim) []*models.Claim {
		out := make([]*models.Claim, len(list))
		for i := range list {
			out[i] = encodeClaim(&list[i], chain.Now)
		}
		return out
	}
	for _, w := range chain.Waits {
		if bytes > pageBytes {
			break
		}
		wait := &models.Wait{Waiter: encodeClaim(&w.Waiter, chain.Now), Holders: claims(w.Holders), Ahead: claims(w.Ahead)}
		encoded = append(encoded, wait)
		bytes += proto.Size(wait)
	}
	return encoded
}

// keepTimeout limits how long an answer may wait for the write that keeps its claim waiting.
const keepTimeout = time.Second

// keepWaiting renews the wait of a claim that a caller asks about, if it is ToKeep, and reports whether it has: then the claim may
// have been granted meanwhile. A question that is not recorded must not be answered: the caller would not ask another server, and
// its claim would be aborted.
func (h *handler) keepWaiting(ctx context.Context, c *claim.Claim, now claim.Instant) (kept bool, err error) {
	if !c.ToKeep(now) {
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	_, err = h.Committer.Do(limited, claim.KeepWaiting{IDs: []string{c.ID}})
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("%w: the claim is not kept waiting: %w", db.ErrUnavailable, err)
	}
	return err == nil, err
}

// maxDeadlock limits the size of the members in an error: errors are in the trailer of an answer.
const maxDeadlock = 3 << 10

// deadlock returns the error of a claim that was aborted to end a deadlock, nil for any other claim. It has the members that
// the caller may see, and that can be read in time.
func (h *handler) deadlock(ctx context.Context, s claim.Status, reason string) error {
	ids := claim.Deadlock(s, reason)
	if ids == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	var members []models.DeadlockMember
	text := []byte("[]")
	for _, id := range ids {
		m, _, _, err := h.Store.Get(ctx, id, 0)
		if err != nil {
			continue
		}
		more := append(members, models.DeadlockMember{Owner: m.Owner, Session: m.Session, Claim: m.ID, Resource: m.Resource}) //nolint:gocritic // kept if it fits
		encoded, err := json.Marshal(more)
		if err != nil || len(encoded) > maxDeadlock {
			break
		}
		members, text = more, encoded
	}
	return models.WithInfo(status.New(codes.Aborted, describe(members)), models.ReasonDeadlock, map[string]string{models.DeadlockKey: string(text)})
}

func describe(members []models.DeadlockMember) string {
	const most = 5
	text := "the claim was aborted to end a deadlock of owners that waited for each other"
	for i, m := range members[:min(most, len(members))] {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		text += fmt.Sprintf("%s%s waited for %s", separator, brief(cmp.Or(m.Owner, m.Session)), brief(m.Resource))
	}
	if more := len(members) - most; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// brief quotes a name, which may be long.
func brief(name string) string {
	const most = 100
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return strconv.Quote(name)
}
