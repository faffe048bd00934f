package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// The views are those types of package jsonview with a text for people.

const (
	exclusive = jsonview.Mode(models.Mode_MODE_EXCLUSIVE)
	shared    = jsonview.Mode(models.Mode_MODE_SHARED)
	waiting   = jsonview.Status(models.Status_STATUS_WAITING)
	active    = jsonview.Status(models.Status_STATUS_ACTIVE)
)

// live are the statuses of claims that have not ended, final the others.
var (
	live  = []models.Status{models.Status_STATUS_WAITING, models.Status_STATUS_ACTIVE}
	final = []models.Status{
		models.Status_STATUS_RELEASED, models.Status_STATUS_EXPIRED, models.Status_STATUS_ABORTED, models.Status_STATUS_WITHDRAWN, models.Status_STATUS_REVOKED,
	}
)

// maxPage is how many elements of a list the server returns at once.
const maxPage = 1000

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

// sinceOf is from when on a claim in a queue has had its status.
func sinceOf(p jsonview.Place) show.Moment {
	return momentOf(p.Since, p.Status, p.WaitingDuration, p.ActiveDuration)
}

// momentOf returns a moment whose age is the duration that belongs to the status, if any.
func momentOf(at jsonview.Timestamp, status jsonview.Status, waited jsonview.Seconds, held *jsonview.Seconds) show.Moment {
	m := show.Moment{At: time.Time(at)}
	switch {
	case status == waiting:
		age := waited.Duration()
		m.Age = &age
	case status == active && held != nil:
		age := held.Duration()
		m.Age = &age
	}
	return m
}

// unlessEmpty returns nil for an empty text.
func unlessEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// refOf names a claim and whose it is.
func refOf(c *models.Claim) jsonview.ClaimRef {
	return jsonview.ClaimRef{Claim: c.GetId(), Owner: unlessEmpty(c.GetOwner()), Session: unlessEmpty(c.GetSession()), Mode: jsonview.Mode(c.GetMode())}
}

// holderCell names a holder, and how many others there are.
func holderCell(p jsonview.Place, holding uint32) show.Cell {
	c := show.NameCell(p.Owner)
	if holding > 1 {
		c.Text += fmt.Sprintf(" and %d more", holding-1)
	}
	return c
}

func waitingCell(n uint32, deadlock bool) show.Cell {
	c := show.Plain(strconv.FormatUint(uint64(n), 10))
	switch {
	case deadlock:
		c.Text, c.Color = c.Text+" deadlock", show.Red
	case n > 0:
		c.Color = show.Yellow
	}
	return c
}

// silent is a view that people see nothing of unless they ask for a format: there was nothing to find out.
type silent struct{ show.View }

func (v silent) MarshalJSON() ([]byte, error) { return json.Marshal(v.View) }

// Line implements show.liner.
func (silent) Line(show.Look) string { return "" }

// heldView is a single lock.
type heldView struct {
	jsonview.Lock
	Token uint64 `json:"token"`
}
