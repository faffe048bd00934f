package cli

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/show"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// claimFlags are the flags of locket claim.
type claimFlags struct {
	owner, id, userData, value  string
	ttl, wait, waitTTL          time.Duration
	shared, presence, keep      bool
	noWait, hold, allowDeadlock bool
}

func newClaimCommand() *cobra.Command {
	var f claimFlags
	cmd := &cobra.Command{
		Use:   "claim NAME",
		Short: "Claim a resource: hold it at once, or wait in its queue",
		Long: `Claim a resource: hold it at once, or wait in its queue.

The answer shows the claim. Use its id to renew the claim before its TTL has passed, and to release it. The status is 0
only if the claim is active. A claim that has to wait ends the command with status 3, and stays in the queue. It becomes
active when its turn comes, whether or not a client waits for it; its TTL starts then. "locket run" does all this around
a command.

With --wait the command ends when the claim is active. If the time is up first, or the command is interrupted, it
withdraws the claim and ends with status 3 or 130; with --keep the claim stays in the queue. Without --keep the claim
has a wait TTL, so that it leaves the queue by itself if this command is killed. With --no-wait the claim is active at
once, or it is not made (status 3). The default owner is HOST/PROCESS/RANDOM; with --id it is HOST/ID, the same each
time.

` + hold.Help + `
First it waits for its turn, at most as long as --wait.`,
		Example: `  locket claim backup --ttl 5m && echo mine    # status 3, and no echo, while it waits
  locket claim backup --ttl 5m --wait 1h
  locket claim backup --ttl 5m --no-wait
  locket claim backup --hold                   # wait for it, and keep it until Ctrl-C
  locket claim backup --ttl 5m --shared --owner me --value "see #ops"
  locket claim backup --ttl 5m --id nightly-2026-11-21 -o name   # safe to repeat
  locket claim backup --ttl 5m --user-data '{"host": "a7"}' -o json`,
	}
	cmd.Flags().DurationVar(&f.ttl, "ttl", time.Minute, "how long the claim lasts without renewal")
	cmd.Flags().DurationVar(&f.wait, "wait", 0, "how long to wait for the claim's turn")
	cmd.Flags().DurationVar(&f.waitTTL, "wait-ttl", 0, "how long the claim may wait while no client asks about it; then it is aborted (default 1m with --wait or --hold, otherwise and with --keep for ever)")
	cmd.Flags().BoolVar(&f.allowDeadlock, "allow-deadlock", false, "go on waiting even in a deadlock, where owners wait for each other")
	cmd.Flags().BoolVar(&f.keep, "keep", false, "with --wait: leave the claim in the queue when the time is up")
	cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "do not wait: make no claim if others hold the resource or wait for it")
	cmd.Flags().BoolVar(&f.hold, "hold", false, "wait for its turn, and hold it until Ctrl-C")
	cmd.Flags().StringVar(&f.owner, "owner", "", "the owner that others see (default HOST/PROCESS/RANDOM)")
	cmd.Flags().BoolVar(&f.shared, "shared", false, "share the resource with other shared claims")
	cmd.Flags().BoolVar(&f.presence, "presence", false, "announce a presence instead of a lock")
	cmd.Flags().StringVar(&f.id, "id", "", "an id of your choice: repeating the command finds the same claim")
	cmd.Flags().StringVar(&f.userData, "user-data", "", "`JSON` to store with the claim")
	cmd.Flags().StringVar(&f.value, "value", "", "text that others see with the claim")
	return clientCommand(cmd, func(ctx context.Context, c *connect.Connection, args []string) (show.View, error) {
		if err := f.validate(cmd); err != nil {
			return nil, err
		}
		return f.run(ctx, cmd, c, f.request(cmd, args[0]))
	})
}

// run makes the claim, and waits for its turn or keeps it, as the flags say.
func (f claimFlags) run(ctx context.Context, cmd *cobra.Command, c *connect.Connection, req *models.CreateClaimRequest) (show.View, error) {
	claim, err := hold.Claim(ctx, c, req)
	switch {
	case err != nil:
		return nil, hold.Taken(ctx, c, err, req.GetResource())
	case f.hold:
		return nil, hold.KeepClaim(cmd.Context(), c, cmd.ErrOrStderr(), req, claim, f.wait, func(held *models.Claim) error {
			return show.Print(cmd, claimRow{viewClaim(held)})
		})
	case f.wait > 0:
		claim, err = hold.AwaitTurn(cmd.Context(), c, cmd.ErrOrStderr(), claim, f.wait, f.keep)
		claim = hold.RenewGranted(cmd.Context(), c, claim, f.ttl)
	default:
		err = hold.Inactive(claim)
	}
	return claimRow{viewClaim(claim)}, err
}

func (f claimFlags) validate(cmd *cobra.Command) error {
	switch {
	case f.id == "" && cmd.Flags().Changed("id"):
		return exit.Usagef("--id: must not be empty; leave it out to have one chosen")
	case f.ttl <= 0:
		return exit.Usagef("--ttl %s: must be more than 0", f.ttl)
	case f.wait < 0:
		return exit.Usagef("--wait %s: must be 0 or more", f.wait)
	case f.waitTTL != 0 && f.waitTTL < time.Second:
		return exit.Usagef("--wait-ttl %s: must be at least 1s, or 0 for ever", f.waitTTL)
	case f.noWait && (f.wait > 0 || f.keep):
		return exit.Usagef("--no-wait excludes --wait and --keep")
	case f.hold && f.keep:
		return exit.Usagef("--hold and --keep exclude each other")
	case f.hold && f.ttl < time.Second:
		return exit.Usagef("--ttl %s: must be at least 1s with --hold", f.ttl)
	}
	return nil
}

func (f claimFlags) request(cmd *cobra.Command, name string) *models.CreateClaimRequest {
	req := &models.CreateClaimRequest{
		Resource: name, Ttl: proto.Float64(f.ttl.Seconds()), Owner: f.owner, Value: f.value, Id: f.id,
		UserData: given(cmd, "user-data", f.userData), TypeCode: models.TypeCode_LOCK, NoWait: f.noWait,
	}
	req.AllowDeadlock = f.allowDeadlock
	if stays := f.keep || f.wait == 0 && !f.hold; !stays && !cmd.Flags().Changed("wait-ttl") {
		f.waitTTL = locklib.DefaultWaitTTL
	}
	if f.waitTTL > 0 {
		req.WaitTtl = proto.Float64(f.waitTTL.Seconds())
	}
	switch {
	case cmd.Flags().Changed("owner"):
	case f.id != "":
		req.Owner = ownerOfClaim(f.id)
	default:
		req.Owner = locklib.UniqueOwner()
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

// ownerOfClaim returns the owner of a claim with an id that a user chose: it is the same when
// the command is repeated, or the second would not find the claim of the first.
func ownerOfClaim(id string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + id
}
