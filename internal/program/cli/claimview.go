package cli

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// claimView is a claim.
type claimView struct{ jsonview.Claim }

func viewClaim(c *models.Claim) claimView { return claimView{jsonview.OfClaim(c)} }

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

// since is from when on the claim has had its status.
func (v claimView) since() show.Moment {
	return momentOf(v.Since(), v.Status, v.WaitingDuration, v.ActiveDuration)
}

// claimList is some claims.
type claimList []claimView

func (l claimList) Names() []string {
	return show.NamesOf(l, func(v claimView) string { return v.ID })
}

func (l claimList) Text(look show.Look) string {
	t := show.NewTable(show.Long("RESOURCE"), show.Long("OWNER"), show.Fixed("STATUS"), show.Since, show.Fixed("TTL"), show.OnlyWide("MODE"), show.OnlyWide("VALUE"),
		show.OnlyWide("REASON"), show.OnlyWide("TOKEN"), show.OnlyWide("SESSION"), show.ShortID(show.ShortClaim))
	for _, v := range l {
		t.Add(show.Plain(printable.Quoted(v.Resource)), show.NameCell(v.Owner), show.StatusCell(v.Status), show.Plain(look.Since(v.since())), show.TtlCell(v.TTL),
			show.Plain(v.Mode.String()), show.NameCell(v.Value), show.NameCell(v.Reason), show.TokenCell(v.Token), show.NameCell(v.Session), show.Plain(v.ID))
	}
	return t.Text(look)
}

// claimRow is a claim that the user has just made or changed. It is shown as a row with the token.
type claimRow struct{ claimView }

func (v claimRow) Text(look show.Look) string {
	if look.Wide {
		return claimList{v.claimView}.Text(look)
	}
	t := show.NewTable(show.Long("RESOURCE"), show.Fixed("STATUS"), show.Fixed("TTL"), show.Fixed("TOKEN"), show.ShortID(show.ShortClaim))
	t.Add(show.Plain(printable.Quoted(v.Resource)), show.StatusCell(v.Status), show.TtlCell(v.TTL), show.TokenCell(v.Token), show.Plain(v.ID))
	return t.Text(look)
}

// changedClaim returns how a claim is shown that the caller has changed.
func changedClaim(c *models.Claim) show.View {
	if c.GetResource() == "" {
		return hiddenClaim{c.GetId(), jsonview.Status(c.GetStatus())}
	}
	return claimRow{viewClaim(c)}
}

// hiddenClaim is a claim that the caller may end, but not read.
type hiddenClaim struct {
	ID     string          `json:"id"`
	Status jsonview.Status `json:"status"`
}

func (v hiddenClaim) Names() []string { return []string{v.ID} }

func (v hiddenClaim) Text(look show.Look) string {
	t := show.NewTable(show.Fixed("STATUS"), show.Fixed("ID"))
	t.Add(show.StatusCell(v.Status), show.Plain(v.ID))
	return t.Text(look)
}
