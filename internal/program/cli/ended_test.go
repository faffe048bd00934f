package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/run"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// revoke revokes the first claim of a resource with some status, when there is one.
func revoke(t *testing.T, server *fixtures.Locket, resource string, status models.Status) {
	t.Helper()
	harness.Eventually(t, func() error {
		found, err := server.Client(t).ListClaims(t.Context(), &models.ListClaimsRequest{Resource: &resource, Status: []models.Status{status}})
		if err != nil || len(found.GetClaims()) == 0 {
			return fmt.Errorf("no claim on %s: %w", resource, err)
		}
		_, err = server.Client(t).UpdateClaim(t.Context(), &models.UpdateClaimRequest{
			Id: found.GetClaims()[0].GetId(), Status: models.Status_STATUS_REVOKED, Reason: "a fire drill",
		})
		return err
	})
}

// fieldsOf returns a command line with a command, in the place of COMMAND, that prints something and ends of a signal alone.
func fieldsOf(line string) []string {
	args := strings.Fields(line)
	if last := len(args) - 1; args[last] == "COMMAND" {
		args = append(args[:last], "sh", "-c", "echo runs; exec sleep 1000")
	}
	return args
}

// Every command that holds something tells in the same words how somebody else has ended its claim, and why.
func TestLossIsExplained(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	for line, status := range map[string]int{
		"lock lock --hold":         exit.Lost,
		"claim claim --hold":       exit.Lost,
		"elect lead":               exit.Lost,
		"elect elect -- COMMAND":   run.Lost,
		"run run -- COMMAND":       run.Lost,
		"run several 2 -- COMMAND": run.Lost,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			args := fieldsOf(line)
			h := startHeld(t, server.Address(), args...)
			h.printed("that it holds", func(text string) bool { return text != "" })
			revoke(t, server, args[1], models.Status_STATUS_ACTIVE)
			h.ends(0, status, fmt.Sprintf("%q is lost: the claim was revoked (a fire drill)", args[1]))
		})
	}
}

// Every command that waits tells in the same words how somebody else has ended its claim, and why.
func TestEndOfAWaitIsExplained(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	for line, status := range map[string]int{
		"claim wait --wait 1h":   exit.Failure,
		"claim hold --hold":      exit.Failure,
		"get get --wait 1h":      exit.Failure,
		"elect lead":             exit.Failure,
		"elect elect -- COMMAND": run.NotAcquired,
		"run run -- COMMAND":     run.NotAcquired,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			args := fieldsOf(line)
			harness.Create(t, server.Client(t), args[1], "holder-of-"+args[1], harness.HangTimeout)
			if args[0] == "get" {
				_, _, _ = (&cli{t: t, address: server.Address()}).try("claim", args[1], "--id", args[1])
			}
			h := startHeld(t, server.Address(), args...)
			revoke(t, server, args[1], models.Status_STATUS_WAITING)
			h.ends(0, status, "the claim was revoked (a fire drill)")
		})
	}
}
