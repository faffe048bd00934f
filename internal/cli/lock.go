package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/cli/exit"
	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/internal/ids"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newLockCommand() *cobra.Command {
	var (
		owner, value string
		ttl          time.Duration
		token        uint64
		presence     bool
		hold, anew   bool
	)
	cmd := &cobra.Command{
		Use:   "lock NAME",
		Short: "Take a lock, or renew it, and print its fencing token",
		Long: `Take a lock, or renew it, and print its fencing token.

A lock never waits: while another owner holds it, the command ends at once, with
status 3. The owner who holds it renews it by repeating the command, which says so on
standard error; with --new that ends with status 3, too. No other process should use
the same --owner: the server cannot tell two owners with one name apart.

` + holdHelp + `
The default owner is then HOST/PROCESS/RANDOM.`,
		Example: `  locket lock nightly-report --owner "$(hostname)/$$" --ttl 1m
  locket lock nightly-report --owner "$(hostname)/$$" --ttl 1m --value "see #ops" -o json
  locket lock nightly-report --owner me --ttl 1m --new   # and never renew it
  locket lock maintenance --hold      # until Ctrl-C
  locket lock api-7 --owner api-7 --presence --ttl 30s --value 10.0.0.7:8080
  locket lock nightly-report --owner me --ttl 1m --token 1795283222123457  # renew, and never take it anew`,
		Args: takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl < time.Second || ttl%time.Second != 0 {
				return exit.Usagef("--ttl %s: must be whole seconds, at least 1s", ttl)
			}
			switch {
			case hold && cmd.Flags().Changed("token"):
				return exit.Usagef("--hold and --token exclude each other")
			case anew && cmd.Flags().Changed("token"):
				return exit.Usagef("--new and --token exclude each other")
			case hold && !cmd.Flags().Changed("owner"):
				owner = defaultOwner()
			case !cmd.Flags().Changed("owner"):
				return exit.Usagef("--owner is required: who takes the lock, or give --hold")
			case owner == "":
				return exit.Usagef("--owner: must not be empty")
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
				lock := c.Lock
				switch {
				case anew:
					lock = c.lockAnew
				case hold:
					lock = c.lockToHold
				}
				resp, err := lock(ctx, req)
				if err != nil {
					return c.held(ctx, free(err, args[0], req.GetToken()), args[0])
				}
				if resp.GetRenewed() && req.Token == nil {
					fmt.Fprintln(cmd.ErrOrStderr(), "locket:", printable.OneLine(fmt.Sprintf("%q was held by %q already, and is renewed", args[0], owner)))
				}
				if hold {
					return c.holdLock(cmd, req, resp.GetToken())
				}
				return printView(cmd, takenLock{heldView{jsonview.OfLock(req.GetResource()), resp.GetToken()}, resp.GetRenewed()})
			})
		},
	}
	cmd.Flags().StringVar(&owner, "owner", "", "who takes the lock (required without --hold)")
	cmd.Flags().StringVar(&value, "value", "", "text that others see with the lock")
	cmd.Flags().DurationVar(&ttl, "ttl", 15*time.Second, "how long the lock is held without being renewed")
	cmd.Flags().Uint64Var(&token, "token", 0, "renew the grant with this fencing token, and take nothing new")
	cmd.Flags().BoolVar(&anew, "new", false, "take it if it is free, and do not renew it for an owner who holds it already")
	cmd.Flags().BoolVar(&presence, "presence", false, "announce a presence rather than a lock")
	cmd.Flags().BoolVar(&hold, "hold", false, "keep the lock until Ctrl-C")
	return clientCommand(cmd)
}

// lockAnew is Lock that does not renew: the claim of a lock, which is made if nobody holds the resource.
func (c *connection) lockAnew(ctx context.Context, req *models.LockRequest, _ ...grpc.CallOption) (*models.LockResponse, error) {
	r := req.GetResource()
	claim, err := c.makeClaim(ctx, &models.CreateClaimRequest{
		Id: ids.NewClaim(), Resource: r.GetKey(), Owner: r.GetOwner(), Value: r.GetValue(), TypeCode: r.GetTypeCode(),
		Ttl: proto.Float64(float64(req.GetTtlInSeconds())), NoWait: true,
	})
	return &models.LockResponse{Token: claim.GetToken()}, err
}

// lockToHold is Lock whose answer an interrupted command waits for, as without it the lock could not be given up by its token. If
// none comes, whatever the owner holds is released.
func (c *connection) lockToHold(ctx context.Context, req *models.LockRequest, _ ...grpc.CallOption) (*models.LockResponse, error) {
	attempt, cancel := answered(ctx)
	defer cancel()
	resp, err := c.Lock(attempt, req)
	if !unclear(err) || !errors.Is(ctx.Err(), context.Canceled) {
		return resp, err
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	if _, failed := c.Release(late, &models.ReleaseRequest{Resource: req.GetResource()}); unclear(failed) {
		return nil, exit.With(exit.Interrupted, fmt.Errorf("interrupted; %q may be held: then it is free when its TTL of %ds has passed", req.GetResource().GetKey(), req.GetTtlInSeconds()))
	}
	return nil, err
}

// holdLock keeps a lock that has just been taken, by the same request, with a token.
func (c *connection) holdLock(cmd *cobra.Command, req *models.LockRequest, token uint64) error {
	ttl := time.Duration(req.GetTtlInSeconds()) * time.Second
	h := &holding{
		connection: c, stderr: cmd.ErrOrStderr(), name: req.GetResource().GetKey(), ttl: ttl, wait: ttl,
		newRunner: func(options ...locklib.Option) *locklib.Runner {
			return locklib.NewLockRunner(c.LocketClient, req.GetResource(), ttl, 0, options...)
		},
		giveUp: func(ctx context.Context) error {
			_, err := c.Release(ctx, &models.ReleaseRequest{Resource: req.GetResource(), Token: &token})
			return err
		},
		show: func(_ context.Context, token uint64) error {
			return printView(cmd, takenLock{heldView{jsonview.OfLock(req.GetResource()), token}, false})
		},
	}
	return h.hold(cmd.Context())
}

// takenLock is a lock that was just taken or renewed.
type takenLock struct {
	heldView
	Renewed bool `json:"renewed"`
}

// line implements liner: the token alone, for scripts.
func (v takenLock) line(look) string { return fmt.Sprintln(v.Token) }
