package handlers

import (
	"context"

	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/models"
)

// WhoAmI implements models.LocketServer.
func (h *handler) WhoAmI(ctx context.Context, _ *models.WhoAmIRequest) (*models.Identity, error) {
	caller := access.CallerOf(ctx)
	if caller.Rules == nil {
		return &models.Identity{}, nil
	}
	return &models.Identity{Name: caller.Name, Groups: caller.Groups, Authentication: true}, nil
}

// rights are the rights of package access, by their numbers in the protocol.
var rights = map[models.Right]access.Right{
	models.Right_RIGHT_READ: access.Read, models.Right_RIGHT_HOLD: access.Hold,
	models.Right_RIGHT_REVOKE: access.Revoke, models.Right_RIGHT_ADMINISTER: access.Administer,
}

func (h *handler) CanI(ctx context.Context, req *models.CanIRequest) (*models.CanIResponse, error) {
	var c check
	right, known := rights[req.GetRight()]
	c.that(known, "right", "must be READ, HOLD, REVOKE or ADMINISTER")
	c.name("resource", req.GetResource())
	if err := c.err(); err != nil {
		return nil, h.wireError(ctx, err)
	}
	caller := access.CallerOf(ctx)
	if caller.Rules == nil {
		return &models.CanIResponse{Allowed: true}, nil
	}
	decision := caller.Rules.Decide(caller.Identity, right, req.GetResource())
	return &models.CanIResponse{Allowed: decision.Allowed, Line: uint32(decision.Line)}, nil
}
