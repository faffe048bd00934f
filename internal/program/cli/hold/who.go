package hold

import (
	"fmt"
	"strconv"
	"time"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// Holders names the holders of a resource: held by "me" (build 17) and 2 more. It returns "" if nobody holds it. when
// returns the words about the holder's time.
func Holders(queue *models.Queue, when func(*models.Claim) string) string {
	holders := queue.GetHolders()
	if len(holders) == 0 {
		return ""
	}
	text := heldBy(holders[0]) + when(holders[0])
	if more := len(holders) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func heldBy(holder *models.Claim) string {
	text := "held by " + name(holder)
	if value := ValueOf(holder); value != "" {
		text += " (" + value + ")"
	}
	return text
}

// maxValue is how many columns of a value fit into a sentence.
const maxValue = 60

// ValueOf returns the beginning of a claim's value that fits into a sentence, "" if the claim has none.
func ValueOf(c *models.Claim) string {
	if c.GetValue() == "" {
		return ""
	}
	return printable.Shortened(printable.Quoted(c.GetValue()), maxValue)
}

// name returns the owner of a claim, or its session or id.
func name(c *models.Claim) string {
	switch {
	case c.GetOwner() != "":
		return strconv.Quote(c.GetOwner())
	case c.GetSession() != "":
		return "the session " + printable.Quoted(c.GetSession())
	}
	return "the claim " + c.GetId()
}

// Untimed says nothing of a holder's time.
func Untimed(*models.Claim) string { return "" }

func heldFor(c *models.Claim) string {
	return " for " + printable.Duration(jsonview.Seconds(c.GetActiveDuration()).Duration(), 2)
}

// heldSince is since when a claim has held, by the server's clock.
func heldSince(c *models.Claim) string {
	at := time.Time(jsonview.OfClaim(c).Since())
	return fmt.Sprintf(" since %s (%s ago)", at.Format(time.RFC3339), printable.Duration(jsonview.Seconds(c.GetActiveDuration()).Duration(), 1))
}
