package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/cli/exit"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newLockCommand() *cobra.Command {
	var (
		owner, value string
		ttl          time.Duration
		token        uint64
		presence     bool
	)
	cmd := &cobra.Command{
		Use:   "lock NAME",
		Short: "Take a lock, or renew it, and print its fencing token",
		Long: `Take a lock, or renew it, and print its fencing token.

A lock never waits: while another owner holds it, the command ends at once, with
status 3. The owner who holds it renews it by repeating the command. No other process
should use the same --owner: the server cannot tell two owners with one name apart.`,
		Example: `  locket lock nightly-report --owner "$(hostname)" --ttl 1m
  locket lock nightly-report --owner "$(hostname)" --ttl 1m --value "see #ops" -o json
  locket lock api-7 --owner api-7 --presence --ttl 30s --value 10.0.0.7:8080
  locket lock nightly-report --owner me --ttl 1m --token 1795283222123457  # renew, and never take it anew`,
		Args: takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl < time.Second || ttl%time.Second != 0 {
				return exit.Usagef("--ttl %s: must be whole seconds, at least 1s", ttl)
			}
			req := &models.LockRequest{
				Resource:     &models.Resource{Key: args[0], Owner: owner, Value: value, TypeCode: models.TypeCode_LOCK},
				TtlInSeconds: int64(ttl / time.Second),
				Token:        given(cmd, "token", token),
			}
			if presence {
				req.Resource.TypeCode = models.TypeCode_PRESENCE
			}
			return withServers(cmd, func(ctx context.Context, c *connection) error {
				resp, err := c.Lock(ctx, req)
				if err != nil {
					return c.held(ctx, free(err, args[0], req.GetToken()), args[0])
				}
				return printView(cmd, takenLock{heldView{jsonview.OfLock(req.GetResource()), resp.GetToken()}})
			})
		},
	}
	cmd.Flags().StringVar(&owner, "owner", "", "who takes the lock (required)")
	cmd.Flags().StringVar(&value, "value", "", "text that others see with the lock")
	cmd.Flags().DurationVar(&ttl, "ttl", 15*time.Second, "how long the lock is held without being renewed")
	cmd.Flags().Uint64Var(&token, "token", 0, "renew the grant with this fencing token, and take nothing new")
	cmd.Flags().BoolVar(&presence, "presence", false, "announce a presence rather than a lock")
	return clientCommand(cmd, "owner")
}

// takenLock is a lock that was just taken or renewed.
type takenLock struct{ heldView }

// line implements liner: the token alone, for scripts.
func (v takenLock) line(look) string { return fmt.Sprintln(v.Token) }
