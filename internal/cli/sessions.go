package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newSessionsCommand() *cobra.Command {
	return clientCommand(&cobra.Command{
		Use:   "sessions",
		Short: "List the sessions: what they hold and wait for, where they are attached",
		Long: `List the sessions: how many resources each holds and waits for, the server that it is
attached to, and, if it is attached to none, when it ends unless it is resumed. Where the server
authenticates its callers, these are your own sessions; all of them, if you may administer all resources.`,
		Example: `  locket sessions
  locket sessions -o json
  locket sessions -o name`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withServers(cmd, func(_ context.Context, c *connection) error {
				sessions, err := c.sessions(cmd.Context())
				if err != nil {
					return err
				}
				return printView(cmd, sessions)
			})
		},
	})
}

// sessions returns all sessions.
func (c *connection) sessions(ctx context.Context) (sessionList, error) {
	sessions, _, err := collect(ctx, c, 0, func(ctx context.Context, size *uint32, token string) (*models.ListSessionsResponse, error) {
		return c.ListSessions(ctx, &models.ListSessionsRequest{Limit: size, PageToken: token})
	}, (*models.ListSessionsResponse).GetSessions, jsonview.OfSession)
	return sessions, err
}

// sessionList is all sessions.
type sessionList []jsonview.Session

func (l sessionList) names() []string {
	return namesOf(l, func(s jsonview.Session) string { return s.ID })
}

func (l sessionList) text(look look) string {
	t := newTable(long("OWNER"), fixed("HOLDS"), fixed("WAITS"), since, fixed("ENDS IN"), onlyWide("TTL"), long("SERVER"), shortID(shortSession))
	for _, s := range l {
		t.add(plain(printable.Quoted(s.Owner)), plain(strconv.FormatUint(uint64(s.Holding), 10)), plain(strconv.FormatUint(uint64(s.Waiting), 10)),
			plain(look.since(moment{at: time.Time(s.Created)})), ttlCell(s.EndsIn), ttlCell(&s.TTL), nameCell(s.Server), plain(s.ID))
	}
	return t.text(look)
}
