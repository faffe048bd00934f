package auth_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// The answer to a caller that may revoke claims, but not read them, contains nothing of the claims; the audit log does.
func TestRevokeWithoutRead(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit")
	w := start(t, `
rules:
  - {identity: "credential:ann", may: [read, hold], resource_prefix: ""}
  - {identity: "credential:guard", may: [revoke], resource_prefix: ""}
`, []string{"ann", "guard"}, "--audit-log", audit)
	make := func(id string) {
		_, err := w.CreateClaim(w.as("ann"), &models.CreateClaimRequest{
			Id: id, Resource: "hidden/" + id, Owner: "hidden-owner", Ttl: proto.Float64(60), UserData: proto.String(`"hidden data"`), Value: "hidden value",
		})
		must(t, err)
	}
	is := func(what string, got, want *models.Claim, err error) {
		t.Helper()
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	revoked := models.Status_STATUS_REVOKED
	make("one")
	ended, err := w.EndClaim(w.as("guard"), &models.EndClaimRequest{Id: "one"})
	is("end", ended, &models.Claim{Id: "one", Status: ended.GetStatus()}, err)
	make("two")
	updated, err := w.UpdateClaim(w.as("guard"), &models.UpdateClaimRequest{Id: "two", Status: revoked})
	is("revoke", updated, &models.Claim{Id: "two", Status: revoked}, err)
	make("three")
	if code, _, text := w.http("guard", "PATCH", "/v1/claims/three/", `{"status": "revoked"}`); code != 204 || text != "" {
		t.Errorf("PATCH: %d %s", code, text)
	}
	for _, id := range []string{"one", "two", "three"} { // lines are written beside the calls
		harness.Until(t, "line of the audit log about "+id, func() bool {
			text, err := os.ReadFile(audit)
			must(t, err)
			return slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
				return strings.Contains(line, `"identity":"credential:guard"`) && strings.Contains(line, `"claim":"`+id+`","resource":"hidden/`+id+`"`)
			})
		})
	}
}
