package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newLockCommand() *cobra.Command {
	var (
		owner, value  string
		ttl           time.Duration
		token         uint64
		presence      bool
		keep, onlyNew bool
	)
	cmd := &cobra.Command{
		Use:   "lock NAME",
		Short: "Take a lock, or renew it, and print its fencing token",
		Long: `Take a lock, or renew it, and print its fencing token.

This never waits: if another owner holds the lock, the command ends at once with status 3. If the same owner holds it,
the command renews it, and says so on standard error; with --new it ends with status 3. No two processes should use the
same --owner, because the server cannot tell them apart.

` + hold.Help + `
The default owner is then HOST/PROCESS/RANDOM.`,
		Example: `  locket lock nightly-report --owner "$(hostname)/$$" --ttl 1m
  locket lock nightly-report --owner "$(hostname)/$$" --ttl 1m --value "see #ops" -o json
  locket lock nightly-report --owner me --ttl 1m --new   # and never renew it
  locket lock maintenance --hold      # until Ctrl-C
  locket lock api-7 --owner api-7 --presence --ttl 30s --value 10.0.0.7:8080
  locket lock nightly-report --owner me --ttl 1m --token 1795283222123457  # only renew`,
		Args: takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if ttl < time.Second || ttl%time.Second != 0 {
				return exit.Usagef("--ttl %s: must be whole seconds, at least 1s", ttl)
			}
			switch {
			case keep && cmd.Flags().Changed("token"):
				return exit.Usagef("--hold and --token exclude each other")
			case onlyNew && cmd.Flags().Changed("token"):
				return exit.Usagef("--new and --token exclude each other")
			case keep && !cmd.Flags().Changed("owner"):
				owner = locklib.UniqueOwner()
			case !cmd.Flags().Changed("owner"):
				return exit.Usagef("--owner is required, unless --hold is given")
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
			return connect.With(cmd, func(ctx context.Context, c *connect.Connection) error {
				var resp *models.LockResponse
				var err error
				switch {
				case onlyNew:
					resp, err = lockAnew(ctx, c, req)
				case keep:
					resp, err = hold.Lock(ctx, c, req)
				default:
					resp, err = c.Lock(ctx, req)
				}
				if err != nil {
					return hold.Taken(ctx, c, hold.Free(err, args[0], req.GetToken()), args[0])
				}
				if resp.GetRenewed() && req.Token == nil {
					fmt.Fprintln(cmd.ErrOrStderr(), "locket:", printable.OneLine(fmt.Sprintf("%q was held by %q already, and is renewed", args[0], owner)))
				}
				taken := func(token uint64) takenLock {
					return takenLock{heldView{jsonview.OfLock(req.GetResource()), token}, resp.GetRenewed()}
				}
				if keep {
					return hold.KeepLock(cmd.Context(), c, cmd.ErrOrStderr(), req, resp.GetToken(), func(token uint64) error {
						return show.Print(cmd, taken(token))
					})
				}
				return show.Print(cmd, taken(resp.GetToken()))
			})
		},
	}
	cmd.Flags().StringVar(&owner, "owner", "", "the owner of the lock (required without --hold)")
	cmd.Flags().StringVar(&value, "value", "", "text that others see with the lock")
	cmd.Flags().DurationVar(&ttl, "ttl", 15*time.Second, "how long the lock lasts without renewal")
	cmd.Flags().Uint64Var(&token, "token", 0, "only renew the grant with this fencing token")
	cmd.Flags().BoolVar(&onlyNew, "new", false, "fail if the owner holds the lock already, instead of renewing it")
	cmd.Flags().BoolVar(&presence, "presence", false, "announce a presence instead of a lock")
	cmd.Flags().BoolVar(&keep, "hold", false, "hold the lock until Ctrl-C")
	return clientCommand(cmd)
}

// lockAnew is Lock that does not renew: the claim of a lock, which is made if nobody holds the resource.
func lockAnew(ctx context.Context, c *connect.Connection, req *models.LockRequest) (*models.LockResponse, error) {
	r := req.GetResource()
	claim, err := hold.Claim(ctx, c, &models.CreateClaimRequest{
		Id: ids.NewClaim(), Resource: r.GetKey(), Owner: r.GetOwner(), Value: r.GetValue(), TypeCode: r.GetTypeCode(),
		Ttl: proto.Float64(float64(req.GetTtlInSeconds())), NoWait: true,
	})
	return &models.LockResponse{Token: claim.GetToken()}, err
}

// takenLock is a lock that was just taken or renewed.
type takenLock struct {
	heldView
	Renewed bool `json:"renewed"`
}

// Line implements show.liner: the token alone, for scripts.
func (v takenLock) Line(show.Look) string { return fmt.Sprintln(v.Token) }
