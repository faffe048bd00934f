package models_test

import (
	"errors"
	"testing"

	"github.com/locket-service/locket/models"
)

// TestClaimEnded: the error names the status, the identity that ended the claim, and the reason, as far as they are known.
func TestClaimEnded(t *testing.T) {
	for want, c := range map[string]*models.Claim{
		"the claim has ended":                            {},
		"the claim expired":                              {Status: models.Status_STATUS_EXPIRED},
		"the claim was revoked":                          {Status: models.Status_STATUS_REVOKED},
		`the claim was revoked by "cert:ops" (draining)`: {Status: models.Status_STATUS_REVOKED, EndedBy: "cert:ops", Reason: "draining"},
		"the claim was aborted (nobody asked)":           {Status: models.Status_STATUS_ABORTED, Reason: "nobody asked"},
		"the claim was released":                         {Status: models.Status_STATUS_RELEASED},
		"the claim was withdrawn (a deadlock)":           {Status: models.Status_STATUS_WITHDRAWN, Reason: "a deadlock"},
	} {
		if got := models.ClaimEnded(c).Error(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	status := &models.SessionStatus{Status: models.Status_STATUS_REVOKED, EndedBy: "ops"}
	if got := models.ClaimEnded(status); !errors.Is(got, models.ClaimEndedError{Status: models.Status_STATUS_REVOKED, EndedBy: "ops"}) {
		t.Errorf("of a session: %+v", got)
	}
}
