package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newWatchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Show the live claims, and every change as it happens",
		Long: `Show the live claims, and then every change of a status or a value as it happens: of one resource, or of all that pass
the filters. Each change comes once, and the changes of a resource come in order. If a server ends, the watch continues
at another.

-o json prints one line for each; --cursor continues after the cursor of an earlier line. A cursor is valid for 10
minutes, or less under heavy load. If it is too old, the first line has the event reset: forget everything, a new
snapshot follows.

--exec runs a shell command for each change, one after the other, with these variables: LOCKET_NAME, LOCKET_ID (of the
claim), LOCKET_OWNER, LOCKET_SESSION, LOCKET_BEFORE (the status before, empty for a new claim), LOCKET_STATUS,
LOCKET_TOKEN, LOCKET_VALUE, LOCKET_REASON and LOCKET_TIME. If the command fails, the watch ends with its status;
"COMMAND || true" prevents that.`,
		Example: `  locket watch backup
  locket watch --prefix jobs/ --type lock -o json
  locket watch nightly --no-snapshot --exec 'echo "$LOCKET_NAME: $LOCKET_STATUS"'`,
	}
	flags := cmd.Flags()
	flags.String("prefix", "", "only resources with this prefix")
	flags.String("owner", "", "only this owner")
	flags.String("session", "", "only claims of the session with this `id`")
	flags.String("type", "", strings.Join(typeNames, " or "))
	flags.String("cursor", "", "continue after this `cursor`")
	flags.Bool("no-snapshot", false, "skip the live claims")
	flags.String("exec", "", "a shell `command` to run for each change")
	_ = cmd.RegisterFlagCompletionFunc("prefix", completeFlag(completeNames))
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(typeNames, cobra.ShellCompDirectiveNoFileComp))
	return clientCommand(cmd, func(_ context.Context, c *connect.Connection, args []string) (show.View, error) {
		f := filters{cmd: cmd}
		req := &models.WatchRequest{Owner: f.textOf("owner"), Session: f.textOf("session"), Prefix: cmd.Flag("prefix").Value.String()}
		if len(args) == 1 {
			req.Resource = &args[0]
		}
		var kind jsonview.Type
		f.choose("type", &kind)
		req.TypeCode = models.TypeCode(kind)
		req.Cursor = cmd.Flag("cursor").Value.String()
		req.NoSnapshot, _ = cmd.Flags().GetBool("no-snapshot")
		if f.err != nil {
			return nil, f.err
		}
		w := &watch{
			Connection: c, req: req, cursor: req.GetCursor(), stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(),
			show: printEvents(cmd), command: cmd.Flag("exec").Value.String(),
		}
		return nil, w.run(cmd.Context())
	})
}

var typeNames = jsonview.Type(0).Names()

// watch is one run of `locket watch`.
type watch struct {
	*connect.Connection
	req     *models.WatchRequest
	cursor  string // the cursor behind the last event that was shown
	show    func(watchEvent) error
	command string
	stdout  io.Writer
	stderr  io.Writer
}

// run watches until ctx ends, or the servers refuse. That none can be reached is an error when it begins.
func (w *watch) run(ctx context.Context) error {
	began, warned := false, false
	for e, err := range locklib.Watch(ctx, w.LocketClient, w.req) {
		switch {
		case ctx.Err() != nil:
			return exit.With(exit.Interrupted, errors.New("interrupted"))
		case err != nil:
			return err
		case e.Broken != nil && !began:
			return e.Broken
		case e.Broken != nil && !warned:
			warned = true
			fmt.Fprintf(w.stderr, "locket: %s; trying again\n", printable.OneLine(w.Explain(e.Broken).Error()))
		case e.Missed:
			began = true
			what := "changes were missed: a new snapshot follows"
			if w.req.GetNoSnapshot() {
				what = "changes after the cursor are no longer kept: some were missed"
			}
			fmt.Fprintln(w.stderr, "locket:", what)
			if err := w.show(watchEvent{Event: "reset"}); err != nil {
				return err
			}
		case e.Broken == nil:
			began, warned = true, warned && e.Cursor == ""
			if err := w.handle(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// handle shows an event, and runs the command for a change.
func (w *watch) handle(ctx context.Context, e locklib.WatchEvent) error {
	line := watchEvent{Event: "synced", Cursor: unlessEmpty(e.Cursor)}
	switch t := e.Transition; {
	case e.Claim != nil:
		line = watchEvent{Event: "claim", Claim: new(jsonview.OfWatched(e.Claim))}
	case t != nil:
		v := jsonview.OfTransition(t)
		line = watchEvent{Event: "transition", Before: v.Before, Time: &v.Time, Claim: &v.Claim, Cursor: line.Cursor}
	case !e.Synced:
		w.cursor = e.Cursor
		return nil
	}
	if err := w.show(line); err != nil {
		return err
	}
	if e.Transition != nil {
		if err := w.execute(ctx, e.Transition); err != nil {
			return err
		}
	}
	if e.Cursor != "" {
		w.cursor = e.Cursor
	}
	return nil
}

// execute runs the command for a transition.
func (w *watch) execute(ctx context.Context, t *models.Transition) error {
	if w.command == "" {
		return nil
	}
	ctx, stop := hold.UntilHangUp(ctx)
	defer stop()
	ctx, stop = signal.NotifyContext(ctx, syscall.SIGQUIT) // Ctrl-\
	defer stop()
	cmd := exec.CommandContext(ctx, "sh", "-c", w.command)
	// All of its processes are killed. In a group of their own they get nothing from the terminal, but this process does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Stdout, cmd.Stderr = w.stdout, w.stderr
	cmd.Env = append(os.Environ(), variables(t)...)
	err := cmd.Run()
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil: // which has killed the command
		return exit.With(exit.Interrupted, errors.New("interrupted"))
	case errors.As(err, &failed):
		code := failed.ExitCode()
		if status, ok := failed.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = exit.Signal + int(status.Signal())
		}
		next := ""
		if w.cursor != "" { // which the snapshot ends with
			next = "; to go on with it, and perhaps some changes before it: --cursor " + w.cursor
		}
		return exit.With(code, fmt.Errorf("the command failed with status %d for %s%s", code, printable.Quoted(t.GetClaim().GetResource()), next))
	}
	return err
}

// variables tell a command of a transition.
func variables(t *models.Transition) []string {
	c := t.GetClaim()
	before := ""
	if t.GetBefore() != models.Status_STATUS_UNSPECIFIED {
		before = jsonview.Status(t.GetBefore()).String()
	}
	return []string{
		"LOCKET_NAME=" + c.GetResource(), "LOCKET_ID=" + c.GetId(), "LOCKET_OWNER=" + c.GetOwner(), "LOCKET_SESSION=" + c.GetSession(),
		"LOCKET_BEFORE=" + before, "LOCKET_STATUS=" + jsonview.Status(c.GetStatus()).String(),
		"LOCKET_TOKEN=" + strconv.FormatUint(c.GetToken(), 10), "LOCKET_VALUE=" + strings.ReplaceAll(c.GetValue(), "\x00", ""), "LOCKET_REASON=" + c.GetReason(),
		"LOCKET_TIME=" + t.GetTime().AsTime().Format(jsonview.TimeFormat),
	}
}

// printEvents returns a function that prints events in the format of --output.
func printEvents(cmd *cobra.Command) func(watchEvent) error {
	format, _ := show.FormatOf(cmd) // which has been looked at before
	look := show.LookOf(cmd.OutOrStdout())
	if look.Terminal && format.IsText() {
		_, _ = io.WriteString(cmd.OutOrStdout(), eventHead(look.For(format)))
	}
	return func(e watchEvent) error {
		look.Now = time.Now()
		return show.PrintLine(cmd.OutOrStdout(), e, format, look)
	}
}

// watchEvent is a line of `locket watch`.
type watchEvent struct {
	Event  string              `json:"event"`
	Cursor *string             `json:"cursor"`
	Before *jsonview.Status    `json:"before,omitempty"`
	Time   *jsonview.Timestamp `json:"time,omitempty"`
	Claim  *jsonview.Watched   `json:"claim,omitempty"`
}

func (e watchEvent) Names() []string {
	if e.Claim == nil {
		return nil
	}
	return []string{e.Claim.ID}
}

func (e watchEvent) Text(look show.Look) string {
	if e.Claim == nil {
		return ""
	}
	at, change := look.Now, show.StatusCell(e.Claim.Status)
	if e.Time != nil {
		at = time.Time(*e.Time)
	}
	if e.Before != nil && *e.Before != e.Claim.Status {
		change.Text = e.Before.String() + " > " + change.Text
	} else if e.Before != nil {
		change.Text += ", value"
	}
	cells := []show.Cell{
		show.Plain(at.Local().Format(show.ClockFormat)), look.Padded(show.Plain(printable.Quoted(e.Claim.Resource)), look.NameWidth()),
		look.Padded(show.NameCell(e.Claim.Owner), look.NameWidth()), change,
	}
	if look.Wide {
		cells = append(cells[:3], look.Padded(change, show.ChangeWidth), look.Padded(show.TokenCell(e.Claim.Token), tokenWidth), show.NameCell(e.Claim.Reason))
	}
	return look.Line(cells) + "\n"
}

// eventHead names the columns of events.
func eventHead(look show.Look) string {
	cells := []show.Cell{
		look.Padded(show.Title("TIME"), len(show.ClockFormat)), look.Padded(show.Title("RESOURCE"), look.NameWidth()), look.Padded(show.Title("OWNER"), look.NameWidth()),
		show.Title("STATUS"),
	}
	if look.Wide {
		cells = append(cells[:3], look.Padded(show.Title("STATUS"), show.ChangeWidth), look.Padded(show.Title("TOKEN"), tokenWidth), show.Title("REASON"))
	}
	return look.Line(cells) + "\n"
}

// tokenWidth is the width of a column of tokens.
const tokenWidth = 16
