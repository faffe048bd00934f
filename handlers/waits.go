package handlers

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/waits"
	"github.com/locket-service/locket/models"
)

// GetWaits implements models.LocketServer.
func (h *handler) GetWaits(ctx context.Context, req *models.GetWaitsRequest) (*models.Waits, error) {
	id, owner, err := decodeWaits(req)
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	chain, err := h.waits(ctx, id, owner)
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return &models.Waits{Waits: encodeWaits(&chain, 0), Deadlock: chain.Deadlock}, nil
}

// waits returns the chain of waits of a claim, or of an owner if id is empty.
func (h *handler) waits(ctx context.Context, id string, owner claim.OwnerKey) (waits.Chain, error) {
	if id == "" {
		return waits.OfOwners(ctx, h.Store, "", owner)
	}
	c, _, now, err := h.Store.Get(ctx, id, 0)
	if err == nil {
		_, err = h.keepWaiting(ctx, &c, now)
	}
	if err != nil {
		return waits.Chain{}, err
	}
	return waits.OfClaim(ctx, h.Store, c)
}

func decodeWaits(req *models.GetWaitsRequest) (id string, owner claim.OwnerKey, err error) {
	var c check
	id, owner = req.GetClaim(), claim.OwnerKey{Session: req.GetSession(), Owner: req.GetOwner()}
	given := 0
	for _, name := range []string{id, owner.Session, owner.Owner} {
		if name != "" {
			given++
		}
	}
	if given != 1 {
		for _, field := range []string{"claim", "owner", "session"} {
			c.fail(field, "give one of claim, owner and session")
		}
	}
	c.text("owner", owner.Owner)
	c.text("session", owner.Session)
	if c.err() == nil && id != "" && !validID(id) {
		return "", owner, claim.ErrNotFound
	}
	return id, owner, c.err()
}

// holderWaits returns the holders' waits for other resources. It leaves out data that cannot be read in time.
func (h *handler) holderWaits(ctx context.Context, resource string, holders []claim.Claim) waits.Chain {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	owners := make([]claim.OwnerKey, len(holders))
	for i := range holders {
		owners[i] = holders[i].OwnerKey()
	}
	chain, err := waits.OfOwners(ctx, h.Store, resource, owners...)
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
