package cli

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

func newGetCommand() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show all of one claim, with its history",
		Long: `Show all of one claim, with its history. With --wait the command ends when the claim
is active (status 0), when it has ended (1), or when the time is up (3).`,
		Example: `  locket get 06hn3v5k8m
  locket get 06hn3v5k8m --wait 5m
  locket get 06hn3v5k8m -o yaml`,
		Args: takes("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withServers(cmd, func(ctx context.Context, c *connection) error {
				id, err := c.wholeID(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				claim, err := c.GetClaim(ctx, &models.GetClaimRequest{Id: id})
				if err != nil {
					return err
				}
				var inactive error
				if cmd.Flags().Changed("wait") {
					if claim, inactive = hold.Watch(cmd.Context(), c.Connection, cmd.ErrOrStderr(), claim, wait); inactive == nil {
						inactive = hold.Inactive(claim)
					}
				}
				return show.PrintWithError(cmd, viewClaim(claim), inactive)
			})
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long until it is active")
	return clientCommand(cmd)
}

func (v claimView) Names() []string { return []string{v.ID} }

// text shows all of the claim.
func (v claimView) Text(look show.Look) string {
	var text strings.Builder
	field := func(name, value string) { text.WriteString(look.Field(name, value)) }
	optional := func(name string, value *string) {
		if value != nil {
			field(name, printable.Quoted(*value))
		}
	}
	field("id", v.ID)
	field("resource", printable.Quoted(v.Resource))
	optional("owner", v.Owner)
	optional("identity", v.Identity)
	field("mode", v.Mode.String())
	if v.Type != nil {
		field("type", v.Type.String())
	}
	field("status", look.Paint(show.StatusCell(v.Status)))
	optional("reason", v.Reason)
	optional("ended by", v.EndedBy)
	if v.Position != nil {
		field("position", strconv.FormatUint(uint64(*v.Position), 10))
	}
	if v.Token != nil {
		field("token", strconv.FormatUint(*v.Token, 10))
	}
	if v.TTL != nil {
		field("ttl", printable.Duration(v.TTL.Duration(), 2)+" left")
	}
	field("waited", printable.Duration(v.WaitingDuration.Duration(), 2))
	if v.ActiveDuration != nil {
		field("active for", printable.Duration(v.ActiveDuration.Duration(), 2))
	}
	optional("value", v.Value)
	if v.UserData != nil {
		field("user data", printable.Text(compact(json.RawMessage(*v.UserData))))
	}
	text.WriteString(v.history(look))
	return text.String()
}

func (v claimView) history(look show.Look) string {
	if len(v.StatusHistory) == 0 {
		return ""
	}
	t := show.NewTable(show.Fixed(""), show.Fixed(""))
	if look.Terminal {
		t = show.NewTable(show.Fixed(""), show.Fixed(""), show.Fixed(""))
	}
	for i, change := range v.StatusHistory {
		m := show.Moment{At: time.Time(change.Timestamp)}
		if i == len(v.StatusHistory)-1 {
			m = v.since()
		}
		at := show.Plain(m.At.Format(jsonview.TimeFormat))
		if look.Terminal {
			t.Add(show.StatusCell(change.Status), show.Plain(look.Ago(m)), at)
		} else {
			t.Add(show.StatusCell(change.Status), at)
		}
	}
	if look.Width > 0 {
		look.Width -= len(show.Label(""))
	}
	var text strings.Builder
	name := "history"
	for line := range strings.Lines(t.Text(look)) {
		text.WriteString(show.Label(name) + line)
		name = ""
	}
	return text.String()
}

// compact returns JSON without its white space.
func compact(text json.RawMessage) string {
	short, err := json.Marshal(text)
	if err != nil {
		return string(text)
	}
	return string(short)
}
