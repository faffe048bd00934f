package handlers_test

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/locket-service/locket/models"
)

// startQuiet starts a server that logs errors only, as in production.
func startQuiet(b *testing.B) *server {
	b.Helper()
	return startWithLog(b, b.TempDir(), asIs, slog.LevelError)
}

// BenchmarkUnary is a Lock and its Release, from the client through the whole server and back, with many callers.
func BenchmarkUnary(b *testing.B) {
	s := startQuiet(b)
	var callers atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		r := resource(fmt.Sprint("r", callers.Add(1)), "me")
		for pb.Next() {
			if _, err := s.Lock(b.Context(), &models.LockRequest{Resource: r, TtlInSeconds: 30}); err != nil {
				b.Error(err)
				return
			}
			if _, err := s.Release(b.Context(), &models.ReleaseRequest{Resource: r}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkSession is the same by the commands of a session, with 64 in flight.
func BenchmarkSession(b *testing.B) {
	s := startQuiet(b)
	stream, err := s.Session(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	send := func(r *models.SessionRequest) {
		if err := stream.Send(r); err != nil {
			b.Error(err)
		}
	}
	answered := func() {
		for {
			m, err := stream.Recv()
			if err != nil || m.GetError() != nil {
				b.Fatal(m, err)
			}
			if m.GetSequence() != 0 {
				return
			}
		}
	}
	send(&models.SessionRequest{Sequence: 1, Command: &models.SessionRequest_Open{Open: &models.OpenSession{
		Id: "a-session-of-a-benchmark", Secret: secret, Ttl: 30,
	}}})
	answered()
	sequence, room := uint64(1), make(chan struct{}, 64)
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for i := range b.N {
			name := fmt.Sprint("r", i%64)
			room <- struct{}{}
			send(&models.SessionRequest{Sequence: sequence + 1, Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: name}}})
			room <- struct{}{}
			send(&models.SessionRequest{Sequence: sequence + 2, Command: &models.SessionRequest_Unlock{Unlock: &models.UnlockCommand{Resource: name}}})
			sequence += 2
		}
	}()
	for range 2 * b.N {
		answered()
		<-room
	}
}
