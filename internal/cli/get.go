package cli

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/cli/hold"
	"github.com/locket-service/locket/internal/cli/printable"
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
					stop := hold.ShowLine(cmd.Context(), c, cmd.ErrOrStderr(), claim)
					claim, inactive = hold.Await(cmd.Context(), c.Connection, claim, wait)
					if stop(); inactive == nil {
						inactive = hold.Inactive(claim)
					}
				}
				return showWithError(cmd, viewClaim(claim), inactive)
			})
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long until it is active")
	return clientCommand(cmd)
}

func (v claimView) names() []string { return []string{v.ID} }

// text shows all of the claim.
func (v claimView) text(look look) string {
	var text strings.Builder
	field := func(name, value string) { text.WriteString(look.field(name, value)) }
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
	field("status", look.paint(statusCell(v.Status)))
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

func (v claimView) history(look look) string {
	if len(v.StatusHistory) == 0 {
		return ""
	}
	t := newTable(fixed(""), fixed(""))
	if look.terminal {
		t = newTable(fixed(""), fixed(""), fixed(""))
	}
	for i, change := range v.StatusHistory {
		m := moment{at: time.Time(change.Timestamp)}
		if i == len(v.StatusHistory)-1 {
			m = v.since()
		}
		at := plain(m.at.Format(jsonview.TimeFormat))
		if look.terminal {
			t.add(statusCell(change.Status), plain(look.ago(m)), at)
		} else {
			t.add(statusCell(change.Status), at)
		}
	}
	if look.width > 0 {
		look.width -= len(label(""))
	}
	var text strings.Builder
	name := "history"
	for line := range strings.Lines(t.text(look)) {
		text.WriteString(label(name) + line)
		name = ""
	}
	return text.String()
}

// label is the name of a field, and a space to the values.
func label(name string) string {
	const columns = 12
	return name + strings.Repeat(" ", columns-len(name))
}

// field returns a line with a name and a value, which holds nothing unprintable.
func (l look) field(name, value string) string { return label(name) + value + "\n" }

// compact returns JSON without its white space.
func compact(text json.RawMessage) string {
	short, err := json.Marshal(text)
	if err != nil {
		return string(text)
	}
	return string(short)
}
