package cli

import (
	"strings"
	"time"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models/jsonview"
)

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
		cells = append(cells[:3], look.Padded(change, show.ChangeWidth), show.TokenCell(e.Claim.Token), show.NameCell(e.Claim.Reason))
	}
	line := make([]string, len(cells))
	for i, c := range cells {
		line[i] = look.Paint(c)
	}
	return strings.Join(line, show.Gap) + "\n"
}
