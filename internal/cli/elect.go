package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/cli/connect"
	"github.com/locket-service/locket/internal/cli/exit"
	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/internal/cli/run"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// election is what the flags of locket elect say.
type election struct {
	name, owner, value string
	ttl, grace         time.Duration
	observe            bool
}

// maxLead is the longest TTL of a session; locket elect leads by a session.
const maxLead = 24 * time.Hour

func newElectCommand() *cobra.Command {
	var e election
	cmd := &cobra.Command{
		Use:   "elect NAME [flags] [-- COMMAND ARG...]",
		Short: "Campaign for an election, and lead; or show who leads",
		Long: `Campaign for an election, first come, first served, and lead.

With a COMMAND it runs that while it leads, stops it when the leadership is lost, and
resigns when it has ended: as "locket run" does, with the same statuses. Without one it
leads until it gets INT (Ctrl-C), TERM or HUP, and resigns then, with status 0; if the
leadership is lost, the status is 5.

With --observe it shows who leads, and each change, until it is interrupted: the time, the owner,
the fencing token and the value, or - when nobody leads. It goes on when servers come
and go.

The election is the resource NAME: "locket resource" shows the leader and who campaigns.`,
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
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e.name = args[0]
		words := args[1:]
		switch changed := cmd.Flags().Changed; {
		case e.name == "":
			return exit.Usagef("NAME: must not be empty")
		case e.ttl < time.Second:
			return exit.Usagef("--ttl %s: must be at least 1s", e.ttl)
		case e.ttl > maxLead && len(words) == 0:
			return exit.Usagef("--ttl %s: must be at most %s without a COMMAND", e.ttl, maxLead)
		case e.grace < 0:
			return exit.Usagef("--grace %s: must be 0 or more", e.grace)
		case e.observe && (len(words) > 0 || changed("owner") || changed("value") || changed("ttl") || changed("grace")):
			return exit.Usagef("--observe goes together with -o, and with no COMMAND and no other flag of its own")
		case changed("grace") && len(words) == 0:
			return exit.Usagef("--grace needs a COMMAND")
		case len(words) > 0 && changed("output"):
			return exit.Usagef("--output and a COMMAND exclude each other: what is printed is the command's")
		case e.observe:
			return e.withClient(cmd, e.watch)
		}
		if e.owner == "" {
			e.owner = defaultOwner()
		}
		if len(words) > 0 {
			return e.command(cmd, words)
		}
		return e.withClient(cmd, e.lead)
	}
	flags := cmd.Flags()
	flags.BoolVar(&e.observe, "observe", false, "show who leads, and each change")
	flags.StringVar(&e.owner, "owner", "", "who campaigns, for others to see (default HOST/PROCESS/RANDOM)")
	flags.StringVar(&e.value, "value", "", "text that others see of the leader: its address")
	flags.DurationVar(&e.ttl, "ttl", time.Minute, "how long it leads without being heard of")
	flags.DurationVar(&e.grace, "grace", 9*time.Second, "how long after TERM the command gets KILL")
	return clientCommand(cmd)
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

// withClient calls do with a client of package lock, once a server has answered: what the client itself asks for waits for
// servers as long as it takes.
func (e election) withClient(cmd *cobra.Command, do func(context.Context, *cobra.Command, *locklib.Client) error) error {
	return withServers(cmd, func(ctx context.Context, c *connection) error {
		if _, err := c.WhoAmI(ctx, &models.WhoAmIRequest{}); err != nil {
			return err
		}
		client, err := c.Client(locklib.WithTTL(e.ttl), locklib.WithOwner(e.owner))
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		return errors.Join(do(cmd.Context(), cmd, client), client.Close())
	})
}

// lead campaigns, and leads until the context ends.
func (e election) lead(ctx context.Context, cmd *cobra.Command, client *locklib.Client) error {
	ctx, stop := keeping(ctx)
	defer stop()
	say := func(format string, args ...any) {
		fmt.Fprintln(cmd.ErrOrStderr(), "locket:", printable.OneLine(fmt.Sprintf(format, args...)))
	}
	say("campaigns for %q as %q; Ctrl-C withdraws", e.name, e.owner)
	campaign := locklib.NewElection(client, e.name)
	hold, err := campaign.Campaign(ctx, e.value)
	switch {
	case ctx.Err() != nil && err != nil:
		return exit.With(exit.Interrupted, fmt.Errorf("interrupted before %q was led", e.name))
	case err != nil:
		return refused(endOf(err))
	}
	lock := jsonview.OfLock(&models.Resource{Key: e.name, Owner: e.owner, Value: e.value, TypeCode: models.TypeCode_LOCK})
	if err := printView(cmd, leader{heldView{lock, hold.Token()}}); err != nil {
		return err
	}
	say("leads %q, with token %d; Ctrl-C resigns", e.name, hold.Token())
	select {
	case <-hold.Done():
		return exit.With(exit.Lost, fmt.Errorf("the leadership of %q is lost: %w; to see who leads: locket resource %s", e.name, endOf(hold.Err()), printable.ShellQuoted(e.name)))
	case <-ctx.Done(): // the end of the client resigns, in bounded time
		if client.Close() != nil {
			return exit.With(exit.Failure, fmt.Errorf("%q may still be led by %q: then that ends when the TTL of %s has passed", e.name, e.owner, e.ttl))
		}
		return nil
	}
}

// watch shows each leader until the context ends.
func (e election) watch(ctx context.Context, cmd *cobra.Command, client *locklib.Client) error {
	format, err := formatOf(cmd)
	if err != nil {
		return err
	}
	look := lookOf(cmd.OutOrStdout())
	for now, err := range locklib.NewElection(client, e.name).Observe(ctx) {
		if err := cmp.Or(ctx.Err(), refused(err)); err != nil {
			return err
		}
		look.now = time.Now()
		if err := printLine(cmd.OutOrStdout(), viewLeader(now), format, look); err != nil {
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

// line implements liner: the token alone, for scripts.
func (v leader) line(look) string { return fmt.Sprintln(v.Token) }

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

func (v observedLeader) names() []string {
	if v.Owner == nil {
		return []string{""}
	}
	return []string{*v.Owner}
}

func (v observedLeader) text(look look) string {
	token := printable.None
	if v.Token != nil {
		token = strconv.FormatUint(*v.Token, 10)
	}
	width := look.nameWidth()
	rest := max(leastLong, look.width-len(clockFormat)-width-tokenWidth-3*len(gap))
	return fmt.Sprintf("%s  %s  %s  %s\n", look.now.Local().Format(clockFormat), look.padded(nameCell(v.Owner), width).text,
		look.padded(plain(token), tokenWidth).text, strings.TrimRight(look.padded(nameCell(v.Value), rest).text, " "))
}

// tokenWidth is the width of a column of tokens.
const tokenWidth = 16
