package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// unwatched is a client of a server without Watch.
type unwatched struct{ models.LocketClient }

func (unwatched) Watch(context.Context, *models.WatchRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[models.WatchResponse], error) {
	return nil, status.Error(codes.Unimplemented, "unknown method Watch")
}

// TestRunnersHearOfTheEnd: a runner by calls learns at once that its claim was revoked, and why, also after a restart of the server. With
// a server without Watch it learns that at the next renewal.
func TestRunnersHearOfTheEnd(t *testing.T) {
	const long = time.Minute
	inWorld(t, func(t *testing.T, w *world) {
		lostly := func(runner func(lock.Option) *lock.Runner) (ifrit.Process, chan error) {
			lost := make(chan error, 1)
			p := ifrit.Background(runner(lock.WithCallbacks(lock.Callbacks{Lost: func(err error) { lost <- err }})))
			<-p.Ready()
			return p, lost
		}
		ways := map[string]func(c models.LocketClient, o lock.Option) *lock.Runner{
			"lock": func(c models.LocketClient, o lock.Option) *lock.Runner {
				return lock.NewLockRunner(c, resource("lock", ""), long, retry, o)
			},
			"presence": func(c models.LocketClient, o lock.Option) *lock.Runner {
				return lock.NewPresenceRunner(c, resource("presence", ""), long, retry, o)
			},
			"claim": func(c models.LocketClient, o lock.Option) *lock.Runner {
				return lock.NewClaimRunner(c, &models.CreateClaimRequest{Resource: "claim", Ttl: proto.Float64(long.Seconds())}, o)
			},
		}
		for name, way := range ways {
			for _, restart := range []bool{false, true} {
				p, lost := lostly(func(o lock.Option) *lock.Runner { return way(w.own(), o) })
				if restart {
					w.restart(0)
				}
				time.Sleep(5 * time.Second) // it watches
				revoked := time.Now()
				w.revoke(w.holding(name)[0].GetId(), "maintenance of "+name)
				err := <-lost
				if took := time.Since(revoked); took > time.Second || !errors.Is(err, lock.ErrLost) || !strings.Contains(fmt.Sprint(err), "revoked (maintenance of "+name+")") {
					t.Errorf("%s: after %v: %v", name, took, err)
				}
				if name == "presence" {
					must(t, end(p))
				} else if err := <-p.Wait(); !errors.Is(err, lock.ErrLost) {
					t.Errorf("%s ended with %v", name, err)
				}
			}
			p, lost := lostly(func(o lock.Option) *lock.Runner { return way(unwatched{w.own()}, o) })
			w.revoke(w.holding(name)[0].GetId(), "maintenance of "+name)
			revoked := time.Now()
			if err := <-lost; time.Since(revoked) > long/2 || !errors.Is(err, lock.ErrLost) {
				t.Errorf("%s, without Watch: after %v: %v", name, time.Since(revoked), err)
			}
			p.Signal(os.Interrupt)
			<-p.Wait()
		}
	})
}
