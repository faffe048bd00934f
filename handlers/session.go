package handlers

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

var errNotYet = status.Error(codes.Unimplemented, "not implemented yet")

// Session implements models.LocketServer.
func (h *handler) Session(grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]) error {
	return errNotYet
}

// ListSessions implements models.LocketServer.
func (h *handler) ListSessions(context.Context, *models.ListSessionsRequest) (*models.ListSessionsResponse, error) {
	return nil, errNotYet
}

// ResetSessions implements models.LocketServer.
func (h *handler) ResetSessions(context.Context, *models.ResetSessionsRequest) (*models.ResetSessionsResponse, error) {
	return nil, errNotYet
}
