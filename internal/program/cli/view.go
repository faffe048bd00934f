package cli

import (
	"time"

	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// The views add to those of package jsonview how people see them.

const (
	exclusive = jsonview.Mode(models.Mode_MODE_EXCLUSIVE)
	shared    = jsonview.Mode(models.Mode_MODE_SHARED)
	waiting   = jsonview.Status(models.Status_STATUS_WAITING)
	active    = jsonview.Status(models.Status_STATUS_ACTIVE)
)

// claimView is a claim.
type claimView struct{ jsonview.Claim }

func viewClaim(c *models.Claim) claimView { return claimView{jsonview.OfClaim(c)} }

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

// heldView is a single lock.
type heldView struct {
	jsonview.Lock
	Token uint64 `json:"token"`
}
