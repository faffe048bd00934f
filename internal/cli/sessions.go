package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

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

// sessions returns all sessions, page by page.
func (c *connection) sessions(ctx context.Context) (sessions sessionList, err error) {
	sessions = sessionList{}
	for token := ""; ; {
		page, err := c.sessionsPage(ctx, token)
		if err != nil {
			return nil, err
		}
		for _, s := range page.GetSessions() {
			sessions = append(sessions, jsonview.OfSession(s))
		}
		if token = page.GetNextPageToken(); token == "" {
			return sessions, nil
		}
	}
}

func (c *connection) sessionsPage(ctx context.Context, token string) (*models.ListSessionsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return c.ListSessions(ctx, &models.ListSessionsRequest{Limit: proto.Uint32(maxPage), PageToken: token})
}

// sessionList is all sessions.
type sessionList []jsonview.Session

func (l sessionList) names() []string {
	ids := make([]string, len(l))
	for i, s := range l {
		ids[i] = s.ID
	}
	return ids
}

func (l sessionList) text(look look) string {
	t := newTable(fixed("ID"), long("OWNER"), fixed("HOLDS"), fixed("WAITS"), onlyWide("TTL"), long("SERVER"), fixed("ENDS IN"), since)
	for _, s := range l {
		t.add(plain(s.ID), plain(printable.Quoted(s.Owner)), plain(strconv.FormatUint(uint64(s.Holding), 10)), plain(strconv.FormatUint(uint64(s.Waiting), 10)),
			ttlCell(&s.TTL), nameCell(s.Server), ttlCell(s.EndsIn), plain(look.since(moment{at: time.Time(s.Created)})))
	}
	return t.text(look)
}
