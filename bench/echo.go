package main

import (
	"context"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/models"
)

// echo answers at once with messages of the size of the real ones.
type echo struct {
	models.UnimplementedLocketServer
	token atomic.Uint64
}

// Lock implements models.LocketServer.
func (e *echo) Lock(context.Context, *models.LockRequest) (*models.LockResponse, error) {
	return &models.LockResponse{Token: 1_800_000_000_000_000 + e.token.Add(1)}, nil
}

// Release implements models.LocketServer.
func (e *echo) Release(context.Context, *models.ReleaseRequest) (*models.ReleaseResponse, error) {
	return &models.ReleaseResponse{}, nil
}

// serveEcho serves the echo twice: bare, without interceptors, and tuned, with the windows and workers of the real
// server. It shows the upper limit of gRPC itself.
func serveEcho(args []string) error {
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.InitialWindowSize(256<<10), grpc.InitialConnWindowSize(1<<20), grpc.NumStreamWorkers(512))
	models.RegisterLocketServer(server, &echo{})
	return server.Serve(listener)
}
