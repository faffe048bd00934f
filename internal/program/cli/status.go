package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the service: servers, database, clock, problems",
		Long: `Show the state of the service: its servers and their versions, the database, its clock, whether lease time runs, and
problems. It asks each server of --address; a server that does not answer is a problem. The first line is ok, or
degraded with the reasons. The status is 0 if ok, 7 if degraded, and 1 if no server answers.`,
		Example: `  locket status
  locket status -o 'jsonpath=$.problems[*]'
  locket status --timeout 2s > /dev/null || echo "Locket is degraded"`,
	}
	return clientCommand(cmd, func(ctx context.Context, c *connect.Connection, _ []string) (show.View, error) {
		status, err := serviceStatus(ctx, c)
		if err != nil {
			return nil, err
		}
		format, err := show.FormatOf(cmd)
		switch {
		case err != nil || len(status.Problems) == 0:
		case format.IsText():
			err = exit.With(exit.Degraded, nil) // the first line of the text has the reasons
		default:
			err = exit.With(exit.Degraded, fmt.Errorf("degraded: %s", strings.Join(status.Problems, "; ")))
		}
		return status, err
	})
}

// serviceStatus asks each server, at once. One that does not answer is a problem, unless none does, which is an error.
func serviceStatus(ctx context.Context, c *connect.Connection) (statusView, error) {
	servers, err := c.Each()
	defer func() {
		for _, server := range servers {
			_ = server.Close()
		}
	}()
	if err != nil {
		return statusView{}, err
	}
	answers, errs := make([]*models.ServiceStatus, len(servers)), make([]error, len(servers))
	var asked sync.WaitGroup
	for i, server := range servers {
		asked.Go(func() {
			answer, err := server.GetStatus(ctx, &models.GetStatusRequest{})
			answers[i], errs[i] = answer, server.Explain(err)
		})
	}
	asked.Wait()
	if !slices.Contains(errs, nil) {
		return statusView{}, errs[0]
	}
	return joinStatus(answers, errs), nil
}

// joinStatus joins the answers of the servers. The database and the clock are from the first answer.
func joinStatus(answers []*models.ServiceStatus, errs []error) (joined statusView) {
	first := slices.Index(errs, nil)
	joined.ServiceStatus = jsonview.OfStatus(answers[first])
	for i, answer := range answers {
		if errs[i] != nil {
			joined.Problems = append(joined.Problems, errs[i].Error())
			continue
		}
		of := jsonview.OfStatus(answer)
		for _, problem := range of.Problems {
			if !slices.Contains(joined.Problems, problem) {
				joined.Problems = append(joined.Problems, problem)
			}
		}
		for _, server := range of.Servers {
			if !slices.ContainsFunc(joined.Servers, func(known jsonview.Server) bool { return known.Name == server.Name }) {
				joined.Servers = append(joined.Servers, server)
			}
		}
	}
	return joined
}

// statusView is how the service is.
type statusView struct{ jsonview.ServiceStatus }

func (v statusView) Names() []string {
	return show.NamesOf(v.Servers, func(s jsonview.Server) string { return s.Name })
}

func (v statusView) Text(look show.Look) string {
	var text strings.Builder
	field := func(name, value string) { text.WriteString(look.Field(name, value)) }
	text.WriteString(v.verdict(look) + "\n")
	field("database", printable.OneLine(v.Database.Engine+" "+v.Database.Version))
	field("clock", v.clock())
	field("lease time", v.leaseTime())
	field("stood still", fmt.Sprintf("%s idle, %s unavailable, since the start", printable.Duration(v.Clock.Idle.Duration(), 2), printable.Duration(v.Clock.Unavailable.Duration(), 2)))
	t := show.NewTable(show.Long("SERVER"), show.Long("HOST"), show.Long("VERSION"), show.Fixed("STARTED"), show.Fixed("SILENT FOR"))
	for _, s := range v.Servers {
		t.Add(show.Plain(printable.Quoted(s.Name)), show.Plain(printable.OneLine(s.Host)), show.Plain(printable.OneLine(s.Version)),
			show.Plain(look.Since(show.Moment{At: time.Time(s.Started)})), show.Plain(printable.Duration(s.Silent.Duration(), 2)))
	}
	return text.String() + t.Text(look)
}

// verdict is the first line: one word, and the reasons.
func (v statusView) verdict(look show.Look) string {
	if len(v.Problems) == 0 {
		return look.Paint(show.Colored("ok", show.Green))
	}
	return look.Paint(show.Colored("degraded: "+printable.OneLine(strings.Join(v.Problems, "; ")), show.Red))
}

// leaseTime says whether lease time runs, and why not.
func (v statusView) leaseTime() string {
	switch {
	case v.Clock.LeaseTimeRuns:
		return "runs"
	case v.Clock.Reason != nil:
		return "stands still: " + printable.OneLine(*v.Clock.Reason)
	default:
		return "stands still"
	}
}

// clock is the database's time, and its differences from the clocks of the server and of a cluster.
func (v statusView) clock() string {
	text := time.Time(v.Clock.Time).Format(jsonview.TimeFormat)
	switch ahead := v.Clock.Ahead; {
	case time.Time(v.Clock.Time).Unix() <= 0:
		return "not known"
	case ahead >= 0.001:
		text += fmt.Sprintf("; the server's own is %.3f s ahead", ahead)
	case ahead <= -0.001:
		text += fmt.Sprintf("; the server's own is %.3f s behind", -ahead)
	}
	if v.Clock.Skew > 0 {
		text += fmt.Sprintf("; leases are kept %.3f s longer, because clocks differ or have stepped", v.Clock.Skew)
	}
	return text
}
