package lock_test

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"

	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/program/server"
)

// startServer starts a Locket for an example, as `locket server` does elsewhere: on a port
// of this machine, with its data in a temporary folder.
func startServer() (address string, stop func()) {
	folder, err := os.MkdirTemp("", "locket-example-")
	orPanic(err)
	store, err := replica.Open(filepath.Join(folder, "data"))
	orPanic(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	orPanic(err)
	log := slog.New(slog.DiscardHandler)
	service := server.NewService(server.Config{DatabaseTimeout: 10 * time.Second, HistoryRetention: time.Hour, HistoryLimit: 1000}, store, log, prometheus.NewRegistry(), server.Guards{})
	process := ifrit.Invoke(grouper.NewOrdered(os.Interrupt, append(service.Members, grouper.Member{
		Name: "grpc", Runner: grpcserver.New(grpcserver.Config{
			Listener: listener, Chain: service.Chain, Register: service.Register, OnDrain: service.Drain, ShutdownTimeout: time.Second, Log: log,
		}),
	})))
	return listener.Addr().String(), func() {
		process.Signal(os.Interrupt)
		orPanic(errors.Join(<-process.Wait(), store.Close(), os.RemoveAll(folder)))
	}
}

func orPanic(err error) {
	if err != nil {
		panic(err)
	}
}
