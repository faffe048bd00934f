package handlers_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/grpcserver"
	whole "github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// named is a guard that believes the name that a caller gives.
func named(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
	name := metadata.ValueFromIncomingContext(ctx, "identity")[0]
	call.Identify(name)
	return next(access.WithCaller(ctx, func() access.Caller { return access.Caller{Identity: access.Identity{Name: name}} }))
}

// TestWhatLastsIsShared: one identity cannot take all that lasts of a server: watches, calls that wait, sessions.
func TestWhatLastsIsShared(t *testing.T) {
	const room = 8 // half of it is for the first identity
	for what, begin := range map[string]func(s *server, t *testing.T, ctx context.Context, n int) error{
		"watches": func(s *server, t *testing.T, ctx context.Context, _ int) error {
			stream, err := s.Watch(ctx, &models.WatchRequest{})
			must(t, err)
			_, err = stream.Recv()
			return err
		},
		"waits": func(s *server, t *testing.T, ctx context.Context, _ int) error {
			ended := make(chan error, 1)
			go func() {
				_, err := s.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: "waiter"})
				ended <- err
			}()
			synctest.Wait()
			select {
			case err := <-ended:
				return err
			default:
				return nil
			}
		},
		"sessions": func(s *server, t *testing.T, ctx context.Context, n int) error {
			stream, err := s.Session(ctx)
			must(t, err)
			request := harness.OpenRequest(fmt.Sprint("session", n), harness.SessionTTL(3600))
			request.Sequence = 1
			must(t, stream.Send(request))
			_, err = stream.Recv()
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startGuarded(t, t.TempDir(), asIs, slog.LevelDebug, whole.Guards{Who: []grpcserver.Guard{named}}, func(c *whole.Config) {
					c.MaxSessions, c.MaxWaiting = room, room
					if what == "watches" {
						c.MaxWaiting = 10 * room
					}
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				as := func(name string) context.Context { return metadata.AppendToOutgoingContext(ctx, "identity", name) }
				for _, id := range []string{"holder", "waiter"} {
					_, err := s.CreateClaim(as("owner"), &models.CreateClaimRequest{Id: id, Resource: "r", Ttl: ptr(3600.0)})
					must(t, err)
				}
				n := 0
				for _, c := range []struct {
					name string
					want int
				}{{"greedy", room / 2}, {"modest", room / 4}, {"greedy", 0}, {"third", 1}, {"fourth", 1}, {"fifth", 0}} {
					got := 0
					for ; ; got++ {
						n++
						err := begin(s, t, as(c.name), n)
						if err == nil {
							continue
						}
						if reason := models.ReasonOf(err); reason != models.ReasonTooManyWaiting && reason != models.ReasonTooManySessions {
							t.Fatal(err)
						}
						break
					}
					if got != c.want {
						t.Errorf("%s gets %d, want %d", c.name, got, c.want)
					}
				}
			})
		})
	}
}

// TestResumingNeedsNoShare: an identity resumes the sessions that it had at another server beyond its share, and leaves room
// for others.
func TestResumingNeedsNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startGuarded(t, t.TempDir(), asIs, slog.LevelDebug, whole.Guards{Who: []grpcserver.Guard{named}}, func(c *whole.Config) { c.MaxSessions = 8 })
		ctx := metadata.AppendToOutgoingContext(t.Context(), "identity", "many")
		open := func(n int, more ...func(*models.OpenSession)) (leave context.CancelFunc, err error) {
			ctx, leave := context.WithCancel(ctx)
			stream, err := s.Session(ctx)
			must(t, err)
			request := harness.OpenRequest(fmt.Sprint("session", n), append(more, harness.SessionTTL(3600))...)
			request.Sequence = 1
			must(t, stream.Send(request))
			_, err = stream.Recv()
			return leave, err
		}
		for n := range 6 { // as at other servers
			leave, err := open(n)
			must(t, err)
			leave()
			time.Sleep(time.Second) // its stream ends
		}
		for n := range 6 {
			leave, err := open(n, harness.Resume)
			must(t, err)
			defer leave()
		}
		leave, err := open(6)
		defer leave()
		wantReason(t, err, models.ReasonTooManySessions)
		ctx = metadata.AppendToOutgoingContext(t.Context(), "identity", "other")
		leave, err = open(7)
		must(t, err)
		leave()
	})
}
