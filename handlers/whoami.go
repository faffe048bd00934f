package handlers

import (
	"context"

	"github.com/locket-service/locket/internal/auth"
	"github.com/locket-service/locket/models"
)

// WhoAmI implements models.LocketServer.
func (h *handler) WhoAmI(ctx context.Context, _ *models.WhoAmIRequest) (*models.Identity, error) {
	caller := auth.CallerOf(ctx)
	if caller == nil {
		return &models.Identity{}, nil
	}
	return &models.Identity{Name: caller.Name, Groups: caller.Groups, Authentication: true}, nil
}

// rights are those of package auth, by their numbers on the wire.
var rights = map[models.Right]auth.Right{
	models.Right_RIGHT_READ: auth.Read, models.Right_RIGHT_HOLD: auth.Hold,
	models.Right_RIGHT_REVOKE: auth.Revoke, models.Right_RIGHT_ADMINISTER: auth.Administer,
}

// CanI implements models.LocketServer.
func (h *handler) CanI(ctx context.Context, req *models.CanIRequest) (*models.CanIResponse, error) {
	var c check
	right, known := rights[req.GetRight()]
	c.that(known, "right", "must be READ, HOLD, REVOKE or ADMINISTER")
	c.name("resource", req.GetResource())
	if err := c.err(); err != nil {
		return nil, h.wireError(ctx, err)
	}
	caller := auth.CallerOf(ctx)
	if caller == nil {
		return &models.CanIResponse{Allowed: true}, nil
	}
	decision := caller.Rules().Decide(caller.Identity, right, req.GetResource())
	return &models.CanIResponse{Allowed: decision.Allowed, Line: uint32(decision.Line)}, nil
}
