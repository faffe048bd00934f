package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/run"
	"github.com/locket-service/locket/internal/program/cli/show"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// election is the flags of locket elect.
type election struct {
	name, owner, value string
	ttl, grace         time.Duration
}

func newElectCommand() *cobra.Command {
	var e election
	var observe bool
	cmd := &cobra.Command{
		Use:   "elect NAME [flags] [-- COMMAND ARG...]",
		Short: "Campaign for an election, and lead; or show who leads",
		Long: `Campaign for an election, first come, first served, and lead.

With a COMMAND it runs the command while it leads, stops it if the leadership is lost, and resigns when it has ended,
like "locket run" and with the same statuses. Without one it leads until it gets INT (Ctrl-C), TERM or HUP; then it
resigns, and the status is 0. If the leadership is lost, the status is 5.

With --observe it shows the leader and each change until it is interrupted: the time, the owner, the fencing token and
the value, or - while nobody leads. It continues when servers come and go.

The election is the resource NAME: "locket resource" shows the leader and the candidates.`,
		Example: `  locket elect scheduler --value 10.0.0.7:8080 -- ./scheduler
  locket elect scheduler --value 10.0.0.7:8080      # until Ctrl-C
  locket elect scheduler --observe -o json`,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if n := cmd.ArgsLenAtDash(); n >= 0 {
			if n == len(args) {
				return errors.New("COMMAND is missing")
			}
			args = args[:n]
		}
		return takes("NAME")(cmd, args)
	}
	cmd.RunE = printing(func(cmd *cobra.Command, args []string) (show.View, error) {
		e.name = args[0]
		words := args[1:]
		if err := e.validate(cmd, words, observe); err != nil {
			return nil, err
		}
		if observe {
			return nil, e.observe(cmd)
		}
		if e.owner == "" {
			e.owner = locklib.UniqueOwner()
		}
		if len(words) > 0 {
			return nil, e.command(cmd, words)
		}
		return nil, e.lead(cmd)
	})
	flags := cmd.Flags()
	flags.BoolVar(&observe, "observe", false, "show the leader, and each change")
	flags.StringVar(&e.owner, "owner", "", "the candidate's name that others see (default HOST/PROCESS/RANDOM)")
	flags.StringVar(&e.value, "value", "", "text that others see with the leader, such as its address")
	flags.DurationVar(&e.ttl, "ttl", time.Minute, "how long the leadership lasts without renewal")
	flags.DurationVar(&e.grace, "grace", 9*time.Second, "how long after TERM the command is killed")
	return withConnection(cmd)
}

// validate checks the flags.
func (e election) validate(cmd *cobra.Command, words []string, observe bool) error {
	switch changed := cmd.Flags().Changed; {
	case e.name == "":
		return exit.Usagef("NAME: must not be empty")
	case e.ttl < time.Second:
		return exit.Usagef("--ttl %s: must be at least 1s", e.ttl)
	case e.grace < 0:
		return exit.Usagef("--grace %s: must be 0 or more", e.grace)
	case observe && (len(words) > 0 || changed("owner") || changed("value") || changed("ttl") || changed("grace")):
		return exit.Usagef("--observe takes no COMMAND, and of the other flags only --output")
	case changed("grace") && len(words) == 0:
		return exit.Usagef("--grace needs a COMMAND")
	case len(words) > 0 && changed("output"):
		return exit.Usagef("--output and a COMMAND exclude each other: what is printed is the command's")
	}
	return nil
}

// command leads while a command runs.
func (e election) command(cmd *cobra.Command, words []string) error {
	o := run.Options{
		Names: []string{e.name}, Words: words, Owner: e.owner, Value: e.value, Forever: true, TTL: e.ttl,
		WaitTTL: locklib.DefaultWaitTTL, Grace: e.grace, ConflictStatus: run.NotAcquired,
	}
	dial := func() (*connect.Connection, error) { return connect.Dial(cmd) }
	return run.Complain(cmd.ErrOrStderr(), run.Run(o, dial, cmd.ErrOrStderr()))
}

// lead campaigns, and leads until the command is interrupted.
func (e election) lead(cmd *cobra.Command) error {
	req := &models.CreateClaimRequest{
		Resource: e.name, Owner: e.owner, Value: e.value, Id: ids.NewClaim(), TypeCode: models.TypeCode_LOCK,
		Ttl: proto.Float64(e.ttl.Seconds()), WaitTtl: proto.Float64(locklib.DefaultWaitTTL.Seconds()),
	}
	return connect.With(cmd, func(ctx context.Context, c *connect.Connection) error {
		claim, err := hold.Claim(ctx, c, req)
		if err != nil {
			return err
		}
		return hold.KeepClaim(cmd.Context(), c, cmd.ErrOrStderr(), req, claim, 0, func(held *models.Claim) error {
			lock := &models.Resource{Key: held.GetResource(), Owner: held.GetOwner(), Value: held.GetValue(), TypeCode: held.GetTypeCode()}
			return show.Print(cmd, leader{heldView{jsonview.OfLock(lock), held.GetToken()}})
		})
	})
}

// observe shows each leader until the context ends. The client itself waits for servers as long as it takes, so one must answer first.
func (e election) observe(cmd *cobra.Command) error {
	return connect.With(cmd, func(ctx context.Context, c *connect.Connection) error {
		if _, err := c.WhoAmI(ctx, &models.WhoAmIRequest{}); err != nil {
			return err
		}
		client, err := c.Client()
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		return errors.Join(e.follow(cmd.Context(), cmd, client), client.Close())
	})
}

// follow shows each leader until the context ends.
func (e election) follow(ctx context.Context, cmd *cobra.Command, client *locklib.Client) error {
	format, err := show.FormatOf(cmd)
	if err != nil {
		return err
	}
	look := show.LookOf(cmd.OutOrStdout())
	if look.Terminal && format.IsText() {
		_, _ = io.WriteString(cmd.OutOrStdout(), leaderLine(look.For(format), show.Title("TIME"), show.Title("OWNER"), show.Title("TOKEN"), show.Title("VALUE")))
	}
	for now, err := range locklib.NewElection(client, e.name).Observe(ctx) {
		if err := cmp.Or(ctx.Err(), refused(err)); err != nil {
			return err
		}
		look.Now = time.Now()
		if err := show.PrintLine(cmd.OutOrStdout(), viewLeader(now), format, look); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// refused returns an error of an election with its status: one that is neither of a server nor of the claim is about an argument.
func refused(err error) error {
	if err == nil || connect.ErrorOfCall(err) != nil || errors.As(err, new(models.ClaimEndedError)) {
		return err
	}
	return exit.With(exit.Usage, err)
}

// leader is who leads since just now.
type leader struct{ heldView }

// Line implements show.liner: the token alone, for scripts.
func (v leader) Line(show.Look) string { return fmt.Sprintln(v.Token) }

// observedLeader is who leads; all of its members are null when nobody does.
type observedLeader struct {
	Owner *string `json:"owner"`
	Token *uint64 `json:"token"`
	Value *string `json:"value"`
}

func viewLeader(l locklib.Leader) observedLeader {
	if l == (locklib.Leader{}) {
		return observedLeader{}
	}
	return observedLeader{unlessEmpty(l.Owner), &l.Token, unlessEmpty(l.Value)}
}

func (v observedLeader) Names() []string {
	if v.Owner == nil {
		return []string{""}
	}
	return []string{*v.Owner}
}

func (v observedLeader) Text(look show.Look) string {
	token := printable.None
	if v.Token != nil {
		token = strconv.FormatUint(*v.Token, 10)
	}
	return leaderLine(look, show.Plain(look.Now.Local().Format(show.ClockFormat)), show.NameCell(v.Owner), show.Plain(token), show.NameCell(v.Value))
}

func leaderLine(look show.Look, at, owner, token, value show.Cell) string {
	width := look.NameWidth()
	if rest := look.Width - len(show.ClockFormat) - width - tokenWidth - 3*len(show.Gap); look.Width > 0 {
		value.Text = printable.Middle(value.Text, max(show.LeastLong, rest))
	}
	return look.Line([]show.Cell{look.Padded(at, len(show.ClockFormat)), look.Padded(owner, width), look.Padded(token, tokenWidth), value}) + "\n"
}
