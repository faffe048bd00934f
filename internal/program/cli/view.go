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

// sinceOf is from when on a claim in a queue has had its status.
func sinceOf(p jsonview.Place) show.Moment {
	return momentOf(p.Since, p.Status, p.WaitingDuration, p.ActiveDuration)
}

// momentOf returns a moment whose age is the duration that belongs to the status, if any.
func momentOf(at jsonview.Timestamp, status jsonview.Status, waited jsonview.Seconds, held *jsonview.Seconds) show.Moment {
	m := show.Moment{At: time.Time(at)}
	switch {
	case status == waiting:
		m.Age = new(waited.Duration())
	case status == active && held != nil:
		m.Age = new(held.Duration())
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

// nameOf names the owner of a claim.
func nameOf(p jsonview.ClaimRef) string {
	switch {
	case p.Owner != nil:
		return printable.Quoted(*p.Owner)
	case p.Session != nil:
		return "session " + printable.Quoted(*p.Session)
	default:
		return "claim " + p.Claim
	}
}

// below names a folder of resources, "" for all.
func below(prefix string) string {
	if prefix == "" {
		return ""
	}
	return " below " + printable.Quoted(prefix)
}

// heldView is a single lock.
type heldView struct {
	jsonview.Lock
	Token uint64 `json:"token"`
}

func (v heldView) Names() []string { return []string{v.Key} }

func (v heldView) Text(look show.Look) string {
	t := show.NewTable(show.Long("NAME"), show.Long("OWNER"), show.Long("VALUE"), show.Fixed("TOKEN"))
	t.Add(show.Plain(printable.Quoted(v.Key)), show.NameCell(v.Owner), show.NameCell(v.Value), show.Plain(strconv.FormatUint(v.Token, 10)))
	return t.Text(look)
}

// Line implements show.liner: a table for people, and for scripts what "cut -f1" takes.
func (v heldView) Line(look show.Look) string {
	if look.Terminal {
		return v.Text(look)
	}
	return fmt.Sprintf("%s\t%d\t%s\n", scriptField(v.Owner), v.Token, scriptField(v.Value))
}

// scriptField returns a text without tabs and newlines, in quotes if it needs escapes.
func scriptField(text *string) string {
	switch {
	case text == nil:
		return ""
	case !printable.Is(*text) || strings.HasPrefix(*text, `"`):
		return strconv.Quote(*text)
	default:
		return *text
	}
}
