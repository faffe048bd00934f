package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/internal/program/cli/top"
	"github.com/locket-service/locket/models/jsonview"
)

// topView is one picture of `locket top`.
type topView struct{ top.Snapshot }

// topJSON is its JSON form.
type topJSON struct {
	Time      jsonview.Timestamp  `json:"time"`
	Live      bool                `json:"live"`
	NotLive   *jsonview.Timestamp `json:"not_live_since"`
	Problem   *string             `json:"problem"`
	Resources []topRow            `json:"resources"`
	// Known is how many resources are known, and Waiting how many claims wait for them; there are more if More is set.
	Known   int  `json:"known"`
	Waiting int  `json:"waiting"`
	More    bool `json:"more"`
	// PerSecond is how often something happens.
	PerSecond topRates `json:"per_second"`
}

type topRates struct {
	Grants   float64 `json:"grants"`
	Waits    float64 `json:"waits"`
	Ends     float64 `json:"ends"`
	Expiries float64 `json:"expiries"`
	Refusals float64 `json:"refusals"`
}

type topRow struct {
	Resource string             `json:"resource"`
	Holding  int                `json:"holding"`
	Holder   *jsonview.ClaimRef `json:"holder"`
	Waiting  *int               `json:"waiting"`
	Oldest   *jsonview.Seconds  `json:"oldest_wait"`
	Deadlock bool               `json:"deadlock"`
	Changes  float64            `json:"changes_per_second"`
}

func (v topView) toJSON() topJSON {
	j := topJSON{
		Time: jsonview.Timestamp(v.Time.UTC()), Live: v.Problem == "", Problem: unlessEmpty(v.Problem), Resources: []topRow{},
		Known: v.Resources, Waiting: v.Waiting, More: v.More, PerSecond: topRates{v.Grants, v.Waits, v.Ends, v.Expiries, v.Refusals},
	}
	if !j.Live {
		j.NotLive = new(jsonview.Timestamp(v.NotLive.UTC()))
	}
	for _, r := range v.Rows {
		row := topRow{Resource: r.Resource, Holding: r.Holding, Deadlock: r.Deadlock, Changes: r.Rate}
		if r.Holder != nil {
			ref := refOf(r.Holder)
			ref.Since = jsonview.Timestamp(r.Since.UTC())
			row.Holder = &ref
		}
		if r.Waiting >= 0 {
			row.Waiting = new(r.Waiting)
		}
		if !r.WaitsSince.IsZero() {
			row.Oldest = new(jsonview.Seconds(v.Time.Sub(r.WaitsSince).Seconds()))
		}
		j.Resources = append(j.Resources, row)
	}
	return j
}

func (v topView) MarshalJSON() ([]byte, error) { return json.Marshal(v.toJSON()) }

func (v topView) Names() []string {
	return show.NamesOf(v.Rows, func(r top.Row) string { return r.Resource })
}

func (v topView) Text(look show.Look) string { return v.head(look) + v.table(look).Text(look) }

// head says whether it is live, and what happens in all.
func (v topView) head(look show.Look) string {
	cut := func(text string) string {
		if look.Width > 0 {
			text = printable.Shortened(text, look.Width)
		}
		return text
	}
	state := show.Colored(cut(v.Time.Local().Format(time.TimeOnly)+"  live"), show.Green)
	if v.Problem != "" {
		state = show.Colored(cut(fmt.Sprintf("%s  NOT LIVE since %s (%s): %s", v.Time.Local().Format(time.TimeOnly), v.NotLive.Local().Format(time.TimeOnly),
			printable.Duration(v.Time.Sub(v.NotLive), 1), printable.OneLine(v.Problem))), show.Red)
	}
	more := ""
	if v.More {
		more = "at least "
	}
	counts := more + count(uint64(v.Resources), "resource", "resources") + below(v.Prefix) + fmt.Sprintf(", %d wait", v.Waiting)
	if v.More && v.Order == top.Oldest {
		counts += "; the longest waits of the most contended resources"
	}
	rates := fmt.Sprintf("per second: %.1f granted, %.1f begin to wait, %.1f end, %.1f expire, %.1f refused", v.Grants, v.Waits, v.Ends, v.Expiries, v.Refusals)
	text := look.Paint(state) + "\n" + cut(counts) + "\n"
	if !v.Listed {
		if look.Width > 0 {
			rates = printable.Wrapped(rates, look.Width)
		}
		text += rates + "\n"
	}
	return text
}

// On a terminal narrower than these widths, the table leaves out the rates, or the times.
const (
	widthOfRates = 60
	widthOfTimes = 75
)

func (v topView) table(look show.Look) *show.Table {
	room := func(least int, c show.Column) show.Column {
		if look.Terminal && look.Width < least || v.Listed && least == widthOfRates {
			return show.OnlyWide(c.Name)
		}
		return c
	}
	t := show.NewTable(show.Long("RESOURCE"), show.Long("HOLDER"), room(widthOfTimes, show.Since), show.OnlyWide("TOKEN"), show.Fixed("WAITING"), room(widthOfTimes, show.Fixed("OLDEST WAIT")),
		room(widthOfRates, show.Fixed("CHANGES/S")))
	for _, r := range v.Rows {
		holder, held, token := show.Cell{Text: "free", Color: show.Dim}, "", show.Cell{Text: printable.None}
		switch {
		case r.Holder != nil:
			holder, held, token = show.Plain(nameOf(refOf(r.Holder))), look.Since(show.Moment{At: r.Since}), show.TokenCell(new(r.Holder.GetToken()))
			if r.Holding > 1 {
				holder.Text += fmt.Sprintf(" and %d more", r.Holding-1)
			}
		case r.Holding > 0:
			holder = show.Plain(fmt.Sprintf("%d holders", r.Holding))
		}
		waits, oldest := show.Plain(""), show.Plain("")
		if r.Waiting >= 0 {
			waits = waitingCell(uint32(r.Waiting), r.Deadlock)
		}
		if !r.WaitsSince.IsZero() {
			oldest = show.Plain(printable.Duration(max(0, v.Time.Sub(r.WaitsSince)), 2))
		}
		rate := strconv.FormatFloat(r.Rate, 'f', 1, 64)
		if v.Listed {
			rate = ""
		}
		t.Add(show.Plain(printable.Quoted(r.Resource)), holder, show.Plain(held), token, waits, oldest, show.Plain(rate))
	}
	return t
}

// leastForChanges is the least height of a terminal that shows the last changes.
const leastForChanges = 16

// screen is a picture of so many lines.
func (v topView) screen(look show.Look, height int) string {
	foot := printable.Shortened(fmt.Sprintf("q quits, s changes the order (by %s)", v.Order), look.Width)
	changes := v.lastChanges(look, height)
	head := v.head(look)
	room := height - strings.Count(head, "\n") - len(changes) - 2 // the names of the columns, and the foot
	v.Rows = v.Rows[:min(len(v.Rows), max(room, 0))]
	body := head + v.table(look).Text(look)
	gap := height - strings.Count(body, "\n") - len(changes) - 1
	return body + strings.Repeat("\n", max(gap, 0)) + strings.Join(changes, "") + foot
}

// lastChanges are lines for the last changes, as many as a terminal of that height has room for.
func (v topView) lastChanges(look show.Look, height int) (lines []string) {
	if height < leastForChanges {
		return nil
	}
	for _, t := range v.Changes[max(0, len(v.Changes)-height/4):] {
		of := jsonview.OfTransition(t)
		lines = append(lines, watchEvent{Before: of.Before, Time: &of.Time, Claim: &of.Claim}.Text(look))
	}
	return lines
}

func count(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(n, 10) + " " + many
}
