package cli

import (
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
