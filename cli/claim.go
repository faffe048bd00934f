package cli

import (
	"context"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/cli/exit"
	"github.com/locket-service/locket/ids"
	"github.com/locket-service/locket/models"
)

// claimFlags are those of locket claim.
type claimFlags struct {
	owner, id, userData, value string
	ttl, wait                  time.Duration
	shared, presence, keep     bool
}

func newClaimCommand() *cobra.Command {
	var f claimFlags
	cmd := &cobra.Command{
		Use:   "claim NAME",
		Short: "Claim a resource: hold it at once, or wait in its line",
		Long: `Claim a resource: hold it at once, or wait in its line.

The answer shows the claim, with the id by which to renew it before its TTL is over,
and to give it back. A claim that waits becomes active when its turn comes, whether
anybody looks or not; only then its TTL begins. "locket run" does all this around a
command.

With --wait the command ends when the claim is active. When the time is up first, or
the command is interrupted, the claim leaves the line, and the status is 3 or 130;
unless --keep is given.`,
		Example: `  locket claim backup --ttl 5m
  locket claim backup --ttl 5m --wait 1h
  locket claim backup --ttl 5m --shared --owner me --value "see #ops"
  locket claim backup --ttl 5m --id nightly-2026-11-21 -o name   # safe to repeat
  locket claim backup --ttl 5m --user-data '{"host": "a7"}' -o json`,
		Args: takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.ttl < 0 || f.wait < 0 {
				return exit.Usagef("--ttl and --wait cannot be less than 0")
			}
			return withServers(cmd, func(ctx context.Context, c *connection) error {
				claim, err := c.makeClaim(ctx, f.request(cmd, args[0]))
				if err != nil {
					return err
				}
				if f.wait > 0 {
					claim, err = c.awaitTurn(cmd.Context(), claim, f.wait, f.keep)
				} else if claim.GetStatus() != models.Status_STATUS_WAITING {
					err = turnOf(claim)
				}
				return showTurn(cmd, claimRow{viewClaim(claim)}, err)
			})
		},
	}
	cmd.Flags().DurationVar(&f.ttl, "ttl", time.Minute, "how long it is held without being renewed")
	cmd.Flags().DurationVar(&f.wait, "wait", 0, "wait so long for its turn")
	cmd.Flags().BoolVar(&f.keep, "keep", false, "with --wait: stay in the line when the time is up")
	cmd.Flags().StringVar(&f.owner, "owner", "", "who claims, for others to see (default USER@HOST)")
	cmd.Flags().BoolVar(&f.shared, "shared", false, "hold it together with other shared claims")
	cmd.Flags().BoolVar(&f.presence, "presence", false, "announce a presence rather than a lock")
	cmd.Flags().StringVar(&f.id, "id", "", "a name for the claim: asking again with it finds the claim that it made")
	cmd.Flags().StringVar(&f.userData, "user-data", "", "`JSON` to keep with the claim")
	cmd.Flags().StringVar(&f.value, "value", "", "text that the list of locks shows")
	return clientCommand(cmd)
}

// defaultOwner names the user and the machine.
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if who, err := user.Current(); err == nil {
		return who.Username + "@" + host
	}
	return host
}

func (f claimFlags) request(cmd *cobra.Command, name string) *models.CreateClaimRequest {
	req := &models.CreateClaimRequest{
		Resource: name, Ttl: proto.Float64(f.ttl.Seconds()), Owner: f.owner, Value: f.value, Id: f.id,
		UserData: given(cmd, "user-data", f.userData), TypeCode: models.TypeCode_LOCK,
	}
	if !cmd.Flags().Changed("owner") {
		req.Owner = defaultOwner()
	}
	if f.shared {
		req.Mode = models.Mode_MODE_SHARED
	}
	if f.presence {
		req.TypeCode = models.TypeCode_PRESENCE
	}
	if req.GetId() == "" {
		req.Id = ids.NewClaim()
	}
	return req
}

// retryPause is between two requests that found no server.
const retryPause = 300 * time.Millisecond

// makeClaim makes a claim. Its request has an id, so it is sent again if the answer is lost.
func (c *connection) makeClaim(ctx context.Context, req *models.CreateClaimRequest) (*models.Claim, error) {
	for tries := 1; ; tries++ {
		claim, err := c.CreateClaim(ctx, req)
		if status.Code(err) != codes.Unavailable || tries == 3 {
			return claim, err
		}
		if pause(ctx, retryPause) != nil {
			return nil, err
		}
	}
}

// pause waits, less long if the context ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
