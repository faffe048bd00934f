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

// lockFlags are the flags of locket lock.
type lockFlags struct {
	owner, value            string
	ttl                     time.Duration
	token                   uint64
	presence, keep, onlyNew bool
}

func newLockCommand() *cobra.Command {
	var f lockFlags
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
	}
	cmd.Flags().StringVar(&f.owner, "owner", "", "the owner of the lock (required without --hold)")
	cmd.Flags().StringVar(&f.value, "value", "", "text that others see with the lock")
	cmd.Flags().DurationVar(&f.ttl, "ttl", 15*time.Second, "how long the lock lasts without renewal")
	cmd.Flags().Uint64Var(&f.token, "token", 0, "only renew the grant with this fencing token")
	cmd.Flags().BoolVar(&f.onlyNew, "new", false, "fail if the owner holds the lock already, instead of renewing it")
	cmd.Flags().BoolVar(&f.presence, "presence", false, "announce a presence instead of a lock")
	cmd.Flags().BoolVar(&f.keep, "hold", false, "hold the lock until Ctrl-C")
	return clientCommand(cmd, func(ctx context.Context, c *connect.Connection, args []string) (show.View, error) {
		if err := f.complete(cmd); err != nil {
			return nil, err
		}
		return f.run(ctx, cmd, c, f.request(cmd, args[0]))
	})
}

// complete checks the flags, and sets the default owner.
func (f *lockFlags) complete(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	switch {
	case f.ttl < time.Second || f.ttl%time.Second != 0:
		return exit.Usagef("--ttl %s: must be whole seconds, at least 1s", f.ttl)
	case f.keep && changed("token"):
		return exit.Usagef("--hold and --token exclude each other")
	case f.onlyNew && changed("token"):
		return exit.Usagef("--new and --token exclude each other")
	case f.keep && !changed("owner"):
		f.owner = locklib.UniqueOwner()
	case !changed("owner"):
		return exit.Usagef("--owner is required, unless --hold is given")
	case f.owner == "":
		return exit.Usagef("--owner: must not be empty")
	}
	return nil
}

func (f *lockFlags) request(cmd *cobra.Command, name string) *models.LockRequest {
	kind := models.TypeCode_LOCK
	if f.presence {
		kind = models.TypeCode_PRESENCE
	}
	return &models.LockRequest{
		Resource:     &models.Resource{Key: name, Owner: f.owner, Value: f.value, TypeCode: kind},
		TtlInSeconds: int64(f.ttl / time.Second),
		Token:        given(cmd, "token", f.token),
	}
}

// run takes the lock, and keeps it if --hold is given.
func (f *lockFlags) run(ctx context.Context, cmd *cobra.Command, c *connect.Connection, req *models.LockRequest) (show.View, error) {
	name := req.GetResource().GetKey()
	resp, err := f.take(ctx, c, req)
	if err != nil {
		return nil, hold.Taken(ctx, c, hold.Free(err, name, req.GetToken()), name)
	}
	if resp.GetRenewed() && req.Token == nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "locket:", printable.OneLine(fmt.Sprintf("%q was held by %q already, and is renewed", name, f.owner)))
	}
	taken := takenLock{heldView{jsonview.OfLock(req.GetResource()), resp.GetToken()}, resp.GetRenewed()}
	if !f.keep {
		return taken, nil
	}
	return nil, hold.KeepLock(cmd.Context(), c, cmd.ErrOrStderr(), req, resp.GetToken(), func(token uint64) error {
		taken.Token = token
		return show.Print(cmd, taken)
	})
}

func (f *lockFlags) take(ctx context.Context, c *connect.Connection, req *models.LockRequest) (*models.LockResponse, error) {
	switch {
	case f.onlyNew:
		return lockAnew(ctx, c, req)
	case f.keep:
		return hold.Lock(ctx, c, req)
	default:
		return c.Lock(ctx, req)
	}
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
