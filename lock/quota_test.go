package lock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/internal/doors/guard/guardtest"
	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
)

// TestSessionWithQuota: a session that asks for more locks at once than its quota of requests allows within its TTL gets them all.
// Its heartbeats are answered meanwhile: its stream does not break.
func TestSessionWithQuota(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.stop()
		w.guards = server.Guards{Who: guardtest.Limited(access.Quota{Requests: 50})}
		w.start()
		var streams atomic.Int64
		count := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			streams.Add(1)
			return streamer(ctx, desc, cc, method, opts...)
		}
		s := w.session(lock.WithTTL(3*time.Second), lock.WithCommandTimeout(time.Hour), lock.WithDial(conn.WithDialOptions(grpc.WithStreamInterceptor(count))))
		const locks = 1000
		begin := time.Now()
		var all sync.WaitGroup
		for i := range locks {
			all.Go(func() {
				status, err := s.Lock(t.Context(), fmt.Sprint("k", i))
				if err != nil || status.Current != lock.Holding {
					t.Errorf("lock %d: %v, %v", i, status, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(begin); took < locks/50*time.Second-2*time.Second {
			t.Errorf("%d locks took %s", locks, took)
		}
		if n, err := streams.Load(), s.Err(); n != 1 || err != nil {
			t.Errorf("%d streams, %v", n, err)
		}
	})
}
