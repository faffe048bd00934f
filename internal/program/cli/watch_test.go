package cli

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/top"
	"github.com/locket-service/locket/models"
)

// A watch that is told to end while its command runs kills all of that, and says that it was interrupted. If a signal has ended the command, the watch ends with the
// status of that.
func TestWatchInterrupted(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	watch := func(command string) *held {
		c.run("lock", "r", "--owner", "me", "--ttl", "1h")
		h := startHeld(t, c.address, "watch", "r", "--exec", command)
		h.printed("who holds", func(text string) bool { return strings.Contains(text, "active") })
		c.run("release", "r", "--owner", "me")
		return h
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		interrupted := watch("echo it runs; sleep 1000; true") // its output ends with the last process
		interrupted.printed("the command", func(text string) bool { return strings.Contains(text, "it runs") })
		interrupted.ends(sig, exit.Interrupted, "interrupted")
	}
	watch("kill -KILL $$").ends(0, exit.Signal+int(syscall.SIGKILL), "the command failed with status 137")
}

// breaking is a client whose feeds begin, and end with these errors, one after the other.
type breaking struct {
	models.LocketClient
	errs []error
}

func (b *breaking) ListResources(context.Context, *models.ListResourcesRequest, ...grpc.CallOption) (*models.ListResourcesResponse, error) {
	return &models.ListResourcesResponse{}, nil
}

func (b *breaking) Watch(ctx context.Context, _ *models.WatchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[models.WatchResponse], error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	err := b.errs[0]
	b.errs = b.errs[1:]
	return &brokenFeed{err: err}, nil
}

type brokenFeed struct {
	grpc.ClientStream
	begun bool
	err   error
}

func (f *brokenFeed) Recv() (*models.WatchResponse, error) {
	if !f.begun {
		f.begun = true
		return &models.WatchResponse{Cursor: "c", Synced: true}, nil
	}
	return nil, f.err
}

// What follows changes goes on, once it has begun, whatever a server or somebody between ends its streams with, as package lock does. It ends when
// the servers refuse.
func TestFollowingGoesOn(t *testing.T) {
	t.Parallel()
	for name, follow := range map[string]func(c *connect.Connection) error{
		"watch": func(c *connect.Connection) error {
			return (&watch{Connection: c, req: &models.WatchRequest{}, stderr: new(output), show: func(watchEvent) error { return nil }}).run(context.Background())
		},
		"top": func(c *connect.Connection) error {
			config := top.Config{Client: c.LocketClient, Timeout: c.Timeout, Explain: c.Explain, Limit: 1, Interval: 1e9}
			return top.Lines(context.Background(), config, func(top.Snapshot) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &breaking{}
				for _, code := range []codes.Code{codes.Internal, codes.Canceled, codes.DeadlineExceeded, codes.Unknown, codes.Unavailable, codes.PermissionDenied, codes.OK} {
					server.errs = append(server.errs, status.Error(code, "broken"))
				}
				err := follow(&connect.Connection{LocketClient: server, Settings: connect.Settings{Timeout: 1e9}})
				if status.Code(err) != codes.PermissionDenied || len(server.errs) != 1 {
					t.Errorf("%v, with %d to come", err, len(server.errs))
				}
			})
		})
	}
}
