package handlers

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

var errNotYet = status.Error(codes.Unimplemented, "not implemented yet")

// GetWaits implements models.LocketServer.
func (h *handler) GetWaits(context.Context, *models.GetWaitsRequest) (*models.Waits, error) {
	return nil, errNotYet
}
