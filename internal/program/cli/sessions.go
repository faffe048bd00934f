package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newSessionsCommand() *cobra.Command {
	return clientCommand(&cobra.Command{
		Use:   "sessions",
		Short: "List the sessions: how much they hold and wait for, and their servers",
		Long: `List the sessions: how many resources each holds and waits for, the server that it is attached to, and, for a session
without a connection, when it ends unless it is resumed. If the server authenticates its callers, you see your own
sessions, or all of them if you may administer all resources.`,
		Example: `  locket sessions
  locket sessions -o json
  locket sessions -o name`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return connect.With(cmd, func(_ context.Context, c *connect.Connection) error {
				sessions, err := listSessions(cmd.Context(), c)
				if err != nil {
					return err
				}
				return printList(cmd, sessions, "no session is open")
			})
		},
	})
}

// listSessions returns all sessions.
func listSessions(ctx context.Context, c *connect.Connection) (sessionList, error) {
	sessions, _, err := collect(ctx, c, 0, func(ctx context.Context, size *uint32, token string) (*models.ListSessionsResponse, error) {
		return c.ListSessions(ctx, &models.ListSessionsRequest{Limit: size, PageToken: token})
	}, (*models.ListSessionsResponse).GetSessions, jsonview.OfSession)
	return sessions, err
}

// sessionList is all sessions.
type sessionList []jsonview.Session

func (l sessionList) Names() []string {
	return show.NamesOf(l, func(s jsonview.Session) string { return s.ID })
}

func (l sessionList) Text(look show.Look) string {
	t := show.NewTable(show.Long("OWNER"), show.Fixed("HOLDS"), show.Fixed("WAITS"), show.Since, show.Fixed("ENDS IN"), show.OnlyWide("TTL"), show.Long("SERVER"), show.ShortID(show.ShortSession))
	for _, s := range l {
		t.Add(show.Plain(printable.Quoted(s.Owner)), show.Plain(strconv.FormatUint(uint64(s.Holding), 10)), show.Plain(strconv.FormatUint(uint64(s.Waiting), 10)),
			show.Plain(look.Since(show.Moment{At: time.Time(s.Created)})), show.TtlCell(s.EndsIn), show.TtlCell(&s.TTL), show.NameCell(s.Server), show.Plain(s.ID))
	}
	return t.Text(look)
}
