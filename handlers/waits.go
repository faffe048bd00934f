package handlers

import (
	"context"

	"github.com/locket-service/locket/models"
)

// GetWaits implements models.LocketServer.
func (h *handler) GetWaits(context.Context, *models.GetWaitsRequest) (*models.Waits, error) {
	return nil, errNotYet
}
