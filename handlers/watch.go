package handlers

import (
	"google.golang.org/grpc"

	"github.com/locket-service/locket/models"
)

// Watch implements models.LocketServer.
func (h *handler) Watch(*models.WatchRequest, grpc.ServerStreamingServer[models.WatchResponse]) error {
	return errNotYet
}
